package sim

import (
	"context"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// Lease is the router's lease. It implements pipeline.Lease.
//
// It knows no time: its holder keeps it until it is released, taken by a later process
// of the same owner, or taken by force, by a call that the gate lets on although it is
// not Ready. Then two believe that they hold it until Depose informs the first: what a
// process that was stopped for a while goes through.
type Lease struct {
	c     *Client
	owner string
}

var _ pipeline.Lease = (*Lease)(nil)

// Lease is the lease as an owner asks for it: a name that no other process
// has, the same after a restart.
func (c *Client) Lease(owner string) *Lease { return &Lease{c, owner} }

// lease is the server's side. The server's lock guards it.
type lease struct {
	holder  *holding
	deposed []*holding // that do not know it yet
}

// holding is one time that someone holds the lease.
type holding struct {
	owner  string
	cancel context.CancelCauseFunc
}

// Acquire implements pipeline.Lease.
func (l *Lease) Acquire(ctx context.Context) (held context.Context, release func(), err error) {
	s := l.c.s
	free := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lease.holder == nil || s.lease.holder.owner == l.owner
	}
	for {
		fate, err := l.c.pass(ctx, Call{Kind: Acquire, Ready: free})
		if err != nil {
			return nil, nil, err
		}
		if fate.Err == nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held, cancel := context.WithCancelCause(ctx)
	h := &holding{l.owner, cancel}
	if was := s.lease.holder; was != nil && was.owner == l.owner {
		was.cancel(bucket.ErrLeaseLost)
	} else if was != nil {
		s.lease.deposed = append(s.lease.deposed, was)
	}
	s.lease.holder = h
	s.changedLocked()
	var once sync.Once
	return held, func() { once.Do(func() { h.release(s) }) }, nil
}

func (h *holding) release(s *Server) {
	h.cancel(context.Canceled)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(h)
	s.changedLocked()
}

func (s *Server) forgetLocked(h *holding) {
	if s.lease.holder == h {
		s.lease.holder = nil
	}
	for i, d := range s.lease.deposed {
		if d == h {
			s.lease.deposed = append(s.lease.deposed[:i:i], s.lease.deposed[i+1:]...)
			return
		}
	}
}

// Holder is the owner that holds the lease, "" for none, and how many others
// still believe that they do.
func (s *Server) Holder() (owner string, deposed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.holder != nil {
		owner = s.lease.holder.owner
	}
	return owner, len(s.lease.deposed)
}

// Depose informs the first of those whose lease was taken by force.
func (s *Server) Depose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lease.deposed) > 0 {
		h := s.lease.deposed[0]
		s.forgetLocked(h)
		h.cancel(bucket.ErrLeaseLost)
	}
}

// Expire lets the holder's lease run out: the holder learns of it, and the lease is
// free.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.lease.holder; h != nil {
		s.forgetLocked(h)
		h.cancel(bucket.ErrLeaseLost)
		s.changedLocked()
	}
}

// Deposed is the owner that Depose would tell, "" for none.
func (s *Server) Deposed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lease.deposed) == 0 {
		return ""
	}
	return s.lease.deposed[0].owner
}
