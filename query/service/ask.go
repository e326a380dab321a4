package service

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/query"
)

// ErrStopping: the service stops, and has not begun with the request.
var ErrStopping = errors.New("query: the service stops")

// Ask answers a request of this process, which came by another door than NATS: in the
// same lanes, with the same limits, codes and words. endpoint is the subject's last name,
// body the request in JSON; it is kept until it is answered, which may be after ctx has
// ended: then Ask returns code 503. Stop waits for it.
func (s *Service) Ask(ctx context.Context, endpoint string, body []byte) (query.Reply, error) {
	e := s.endpointOf(endpoint)
	if e == nil {
		return query.Reply{Code: int(codeNotFound), Message: "this process does not answer " + query.Name + "." + endpoint}, nil
	}
	if !s.ask() {
		return query.Reply{}, ErrStopping
	}
	defer s.waiting.Done()
	a := &asked{endpoint: e, asks: body, done: make(chan struct{})}
	s.begin(e, a, false)
	select {
	case <-a.done:
		return a.reply, nil
	case <-ctx.Done():
		return query.Reply{Code: int(codeNotReady), Message: "the asker has gone"}, nil
	}
}

// ask makes Stop wait for one request more, unless it has begun.
func (s *Service) ask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.waiting.Add(1)
	return true
}

func (s *Service) endpointOf(name string) *endpoint {
	for _, e := range s.endpoints {
		if e.name == name {
			return e
		}
	}
	return nil
}

// asked is a request of this process.
type asked struct {
	endpoint *endpoint
	asks     []byte
	reply    query.Reply
	done     chan struct{} // closed when there is a reply
}

func (a *asked) body() []byte         { return a.asks }
func (a *asked) header(string) string { return "" }

func (a *asked) answer(body []byte, f *failure, _ bool) error {
	if f != nil {
		a.reply = query.Reply{Code: int(f.code), Message: f.line(), Data: f.body}
	} else {
		a.reply = query.Reply{Code: int(codeOK), Data: slices.Clone(body)}
	}
	close(a.done)
	return nil
}
