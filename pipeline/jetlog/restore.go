package jetlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamStats are figures of the streams since they were opened.
type StreamStats struct {
	NoWindow atomic.Uint64 // messages found in DELTAS that were no windows

	mu     sync.Mutex
	remade map[string]uint64
	told   map[string]time.Time
	untold map[string]remaking
}

// remaking is what the log will have of a stream that was recreated.
type remaking struct {
	consequence string
	why         error
}

// Remade is how often this process recreated a stream.
func (s *StreamStats) Remade(stream string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remade[stream]
}

// remadeLogEvery bounds how often a recreated stream is logged.
var remadeLogEvery = 10 * time.Second // a test shortens it

// remade counts and logs that a stream was recreated, and how to prevent that.
func (s *Streams) remade(stream, consequence string, why error) {
	s.stats.mu.Lock()
	s.stats.remade[stream]++
	s.stats.untold[stream] = remaking{consequence, why}
	s.stats.mu.Unlock()
	s.tellRemade()
}

// tellRemade logs which streams were recreated, each at its time: what comes
// too soon after a line is in a later one.
func (s *Streams) tellRemade() {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	for stream, r := range s.stats.untold {
		if time.Since(s.stats.told[stream]) < remadeLogEvery {
			continue
		}
		s.stats.told[stream] = time.Now()
		delete(s.stats.untold, stream)
		s.logger.Error("stream "+stream+" is recreated: "+r.consequence, "why", r.why, "times", s.stats.remade[stream])
	}
}

// Restore recreates what somebody has deleted of DELTAS, DEADLETTER and the
// bucket. What needs it goes on by itself.
func (s *Streams) Restore(ctx context.Context) error {
	s.tellRemade()
	for _, lost := range []struct{ stream, consequence string }{
		{s.deltas(), "its windows are derived again from EVENTS"},
		{DeadLetterStream, "the dead letters in it are lost"},
		{BucketStream, "who routes is settled again, nodes say again what they hold; drains, degradations and how far imports had come are forgotten"},
	} {
		why, err := s.gone(ctx, lost.stream)
		if why == nil && err == nil {
			continue
		}
		made := false
		if err == nil {
			made, err = s.create(ctx, s.configs[lost.stream])
		}
		if err != nil {
			return fmt.Errorf("jetlog: restore stream %s: %w", lost.stream, err)
		}
		if !made {
			continue
		}
		s.remade(lost.stream, lost.consequence, why)
	}
	return nil
}

// gone says why a stream is not there. A server that leads its cluster no more
// may say so of one that is: it is asked twice.
func (s *Streams) gone(ctx context.Context, stream string) (why, err error) {
	for range 2 {
		_, err := s.js.Stream(ctx, stream)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, err
		}
		why = err
		time.Sleep(lookPause)
	}
	return why, nil
}

// create makes a stream that is not there, and says whether it did: that another node
// was faster is as good. It knows so of DELTAS and EVENTS alone, which have subjects of
// their own each time: NATS answers a request for a stream that is there, with the
// wanted settings, as if that had made it.
//
// A server that has room for the streams once may say that it has none, while it
// makes the same stream for another node.
func (s *Streams) create(ctx context.Context, c jetstream.StreamConfig) (made bool, err error) {
	if c.Name == s.deltas() {
		made, err = s.createDeltas(ctx)
	} else {
		_, err = s.js.CreateStream(ctx, c)
		made = err == nil
	}
	switch api := (*jetstream.APIError)(nil); {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return false, nil
	case errors.As(err, &api) && api.ErrorCode == insufficientStorage && s.appears(ctx, c.Name):
		return false, nil
	}
	return made, err
}

// appears says whether a stream is there within a moment.
func (s *Streams) appears(ctx context.Context, name string) bool {
	for range 10 {
		if _, err := s.js.Stream(ctx, name); err == nil {
			return true
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return false
}
