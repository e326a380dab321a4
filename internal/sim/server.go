package sim

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Server holds the fake's streams: EVENTS, DELTAS, what DEADLETTER has been
// given, and the lease. Safe for concurrent use.
//
// Its own methods are what happens to it: producers store, disks sync, power
// is cut. They take place at once. Processes use a Client, whose calls wait at
// its Gate.
type Server struct {
	mu      sync.Mutex
	changed chan struct{} // closed at every change, and made again
	life    int           // counts power cuts: connections of an earlier one are gone
	events  *stream
	deltas  *stream
	ever    map[place]*Stored // all that EVENTS ever held
	letters []pipeline.DeadLetter
	kept    map[letterID]time.Time // the letters' message ids
	lease   lease
	bucket  bucketState
}

// place is one message that was ever stored: a sequence may be used again
// after a lost tail, a sequence and a time may not.
type place struct {
	sequence uint64
	millis   int64
}

// NewServer makes a server with empty streams.
func NewServer() *Server {
	now := time.Now()
	return &Server{
		changed: make(chan struct{}),
		events:  newStream(jetlog.EventsStream, now),
		deltas:  newStream(jetlog.DeltasStream, now),
		ever:    map[place]*Stored{},
		kept:    map[letterID]time.Time{},
		bucket:  bucketState{keys: map[string]cluster.Entry{}},
	}
}

// change is closed when anything has changed.
func (s *Server) change() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// changedLocked wakes all that wait.
func (s *Server) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) stream(name string) *stream {
	switch name {
	case jetlog.EventsStream:
		return s.events
	case jetlog.DeltasStream:
		return s.deltas
	}
	panic("sim: there is no stream " + name)
}

// Store is a producer's publish: m's Sequence and Time are given by the stream.
func (s *Server) Store(m Stored) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storeLocked(m)
}

func (s *Server) storeLocked(m Stored) uint64 {
	last := s.events.last
	sequence := s.events.store(m, time.Now())
	if sequence > last {
		stored := s.events.held[sequence]
		s.ever[place{sequence, stored.Time.UnixMilli()}] = stored
	}
	s.changedLocked()
	return sequence
}

// Ever is the message that EVENTS held at a sequence since a time (Unix ms),
// whether it still does or not; nil for none.
func (s *Server) Ever(sequence uint64, millis int64) *Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ever[place{sequence, millis}]
}

// AllEver are all the messages that EVENTS ever held, in no order.
func (s *Server) AllEver() (all []*Stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.ever {
		all = append(all, m)
	}
	return all
}

// Held are the messages a stream holds, in order.
func (s *Server) Held(name string) []*Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.stream(name)
	return of.after(0, len(of.held))
}

// State is a stream's, as its leader says.
func (s *Server) State(name string) jetlog.StreamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(name).state()
}

// Delete removes one message, as an operator may.
func (s *Server) Delete(name string, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream(name).remove(sequence)
	s.changedLocked()
}

// Purge removes what is below a sequence.
func (s *Server) Purge(name string, below uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream(name).purge(below)
	s.changedLocked()
}

// Recreate deletes a stream and makes it again.
func (s *Server) Recreate(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recreateLocked(name)
}

func (s *Server) recreateLocked(name string) *stream {
	now := time.Now()
	if was := s.stream(name); !now.After(was.created) {
		now = was.created.Add(1)
	}
	anew := newStream(name, now)
	if name == jetlog.EventsStream {
		s.events = anew
	} else {
		s.deltas = anew
	}
	s.life++
	s.changedLocked()
	return anew
}

// renew recreates DELTAS, if it is still the one created then.
func (s *Server) renew(created time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deltas.created.Equal(created) {
		s.recreateLocked(jetlog.DeltasStream)
	}
}

// Intrude stores in DELTAS what is no router's.
func (s *Server) Intrude(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deltas.store(Stored{Subject: jetlog.DeltasSubject, Data: data}, time.Now())
	s.changedLocked()
}

// Sync writes a stream's messages to disk: a power cut does not take them.
func (s *Server) Sync(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.stream(name)
	of.synced = of.last
}

// Synced is the last message that a power cut does not take.
func (s *Server) Synced(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.stream(name)
	return min(of.synced, of.last)
}

// PowerCut ends every connection and leaves of each stream what lies up to a
// sequence. What readers have taken off the wire already they still have.
func (s *Server) PowerCut(events, deltas uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.cut(events)
	s.deltas.cut(deltas)
	s.life++
	s.changedLocked()
}

// Letters are the dead letters kept, in the order in which they came.
func (s *Server) Letters() []pipeline.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pipeline.DeadLetter{}, s.letters...)
}

// Client is one process's connection: the roles that the pipeline knows, and
// what a node asks of streams besides. Safe for concurrent use.
type Client struct {
	s       *Server
	gate    Gate
	process int
	created time.Time // of EVENTS, when it was opened
}

// NewClient opens the streams for a process. gate may be nil: every call goes
// on as soon as it can, and nothing goes wrong.
func (s *Server) NewClient(process int, gate Gate) *Client {
	if gate == nil {
		gate = open{s}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Client{s: s, gate: gate, process: process, created: s.events.created}
}

type turnKey struct{}

// Turn is a context for another life of a process, or another go of something
// in it: the gate distinguishes calls of two turns.
func Turn(ctx context.Context, turn int) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// pass takes a call to the gate.
func (c *Client) pass(ctx context.Context, call Call) (Fate, error) {
	call.Process = c.process
	call.Turn, _ = ctx.Value(turnKey{}).(int)
	return c.gate.Pass(ctx, &call)
}

// Work lets others go first.
func (c *Client) Work(ctx context.Context, key uint64) error {
	fate, err := c.pass(ctx, Call{Kind: Work, Key: key})
	if err == nil {
		err = fate.Err
	}
	return err
}

// sameLocked is the stream of a name; EVENTS only if it is the one that was opened.
func (c *Client) sameLocked(name string) (*stream, error) {
	of := c.s.stream(name)
	if name != jetlog.EventsStream {
		return of, nil
	}
	return of, of.same(c.created)
}

// look asks one thing of a stream.
func (c *Client) look(ctx context.Context, name string, ask func(*stream) error) error {
	fate, err := c.pass(ctx, Call{Kind: Look})
	if err != nil {
		return err
	}
	if fate.Err != nil {
		return fate.Err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	of, err := c.sameLocked(name)
	if err != nil {
		return err
	}
	return ask(of)
}
