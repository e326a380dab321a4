package archive

import (
	"context"
	"errors"
	"io"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Joined is EVENTS with what was archived of it in front: one log, of which the
// beginning may be trimmed. It replaces pipeline.Events where that is only read.
type Joined struct {
	Archive *Directory // nil: none
	pipeline.Events
}

// Open implements pipeline.Events: it reads on after from, in the archive as long
// as that reaches, then in EVENTS. Where EVENTS has what is asked for, the archive is
// not needed.
func (j *Joined) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	source, err := j.Events.Open(ctx, from)
	if !errors.Is(err, pipeline.ErrGap) || j.Archive == nil {
		return source, err
	}
	_, last, _ := j.Archive.Extent()
	if from.Next() > last {
		return nil, err
	}
	joined, aerr := j.Archive.Then(from, func() (pipeline.Source, error) { return j.Events.Open(ctx, pipeline.EndOf(last)) })
	if aerr != nil {
		return nil, errors.Join(err, aerr)
	}
	return joined, nil
}

// Then is a source that reads on after a position, to the end of what is there,
// and goes on with the one that next opens then.
func (d *Directory) Then(from pipeline.Position, next func() (pipeline.Source, error)) (pipeline.Source, error) {
	archived, err := d.Source(from)
	if err != nil {
		return nil, err
	}
	return &joinedSource{now: archived, then: next}, nil
}

// joinedSource is one source after another.
type joinedSource struct {
	now  pipeline.Source
	then func() (pipeline.Source, error) // nil: now is the last
}

// Next implements pipeline.Source.
func (s *joinedSource) Next(ctx context.Context) ([]pipeline.Message, error) {
	messages, err := s.now.Next(ctx)
	if err != io.EOF || s.then == nil {
		return messages, err
	}
	next, err := s.then()
	if err != nil {
		return nil, err
	}
	_ = s.now.Close()
	s.now, s.then = next, nil
	return s.now.Next(ctx)
}

// Close implements pipeline.Source.
func (s *joinedSource) Close() error { return s.now.Close() }
