package archive

import (
	"context"
	"fmt"
	"io"
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
)

// runMessages bounds what one Next returns.
const runMessages = 8192

// Source reads segments like EVENTS. It implements pipeline.Source, but that it
// ends: after the last message Next returns io.EOF.
type Source struct {
	segments []Segment
	read     func(ctx context.Context, s *Segment) ([]pipeline.Message, error)
	next     uint64 // sequence
	messages []pipeline.Message
	err      error
}

var _ pipeline.Source = (*Source)(nil)

// NewSource reads on after from, in segments that follow on one another; load
// fetches the two files of one. The error wraps pipeline.ErrGap where they begin
// after that.
func NewSource(segments []Segment, from pipeline.Position, load func(ctx context.Context, s *Segment) (bodies, index []byte, err error)) (*Source, error) {
	next := from.Next()
	if err := Chain(segments); err != nil {
		return nil, err
	}
	if len(segments) > 0 && next < segments[0].First {
		return nil, fmt.Errorf("archive: %w: it begins with message %d, but %d is the next to read", pipeline.ErrGap, segments[0].First, next)
	}
	at := sort.Search(len(segments), func(i int) bool { return segments[i].Last >= next })
	read := func(ctx context.Context, s *Segment) ([]pipeline.Message, error) {
		bodies, index, err := load(ctx, s)
		if err != nil {
			return nil, err
		}
		messages, err := s.Decode(bodies, index)
		if err != nil {
			return nil, fmt.Errorf("archive: messages %d to %d: %w", s.First, s.Last, err)
		}
		return messages, nil
	}
	return &Source{segments: segments[at:], read: read, next: next}, nil
}

// Chain says what is wrong with a list of segments: each must be sound, of the
// same EVENTS, and go on where the one before ends.
func Chain(segments []Segment) error {
	for i := range segments {
		s := &segments[i]
		if err := s.Check(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		switch before := &segments[i-1]; {
		case !s.Events.Equal(before.Events):
			return fmt.Errorf("archive: messages %d to %d are of the EVENTS created at %v, and those before of that of %v", s.First, s.Last, s.Events, before.Events)
		case s.First > before.Last+1:
			return fmt.Errorf("archive: %w: messages %d to %d are missing", pipeline.ErrGap, before.Last+1, s.First-1)
		case s.First <= before.Last:
			return fmt.Errorf("%w: messages %d to %d are there twice", ErrCorrupt, s.First, min(s.Last, before.Last))
		}
	}
	return nil
}

// Next implements pipeline.Source.
func (s *Source) Next(ctx context.Context) ([]pipeline.Message, error) {
	for len(s.messages) == 0 && s.err == nil {
		s.err = s.advance(ctx)
	}
	if s.err != nil {
		return nil, s.err
	}
	n := min(len(s.messages), runMessages)
	run := s.messages[:n:n]
	s.messages = s.messages[n:]
	s.next = run[n-1].Sequence + 1
	return run, nil
}

// advance reads the next segment.
func (s *Source) advance(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(s.segments) == 0 {
		return io.EOF
	}
	messages, err := s.read(ctx, &s.segments[0])
	if err != nil {
		return err
	}
	skip := sort.Search(len(messages), func(i int) bool { return messages[i].Sequence >= s.next })
	s.messages, s.segments = messages[skip:], s.segments[1:]
	return nil
}

// Close implements pipeline.Source.
func (s *Source) Close() error {
	s.messages, s.segments, s.err = nil, nil, io.ErrClosedPipe
	return nil
}
