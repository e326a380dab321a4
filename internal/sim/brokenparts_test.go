package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// skipping says that a shard stands where its node does, and not where it was
// checkpointed.
type skipping struct {
	cold.Source
	from *process
}

func (s skipping) Manifest() *cold.Manifest {
	m := *s.Source.Manifest()
	if s.from.up() {
		m.State.Applied, m.State.Sequence = s.from.node.Applied(), s.from.node.Sequence()
	}
	return &m
}

// blind appends behind whatever is last.
type blind struct {
	pipeline.Log
	s *Server
}

func (l blind) Append(ctx context.Context, _ uint64, window []byte) (uint64, error) {
	return l.Log.Append(ctx, l.s.State(jetlog.DeltasStream).Last, window)
}

// hasty appends once more when there was no answer.
type hasty struct {
	pipeline.Log
	s *Server
}

func (l hasty) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	sequence, err := l.Log.Append(ctx, last, window)
	if err != nil && !errors.Is(err, pipeline.ErrFenced) && ctx.Err() == nil {
		return l.Log.Append(ctx, l.s.State(jetlog.DeltasStream).Last, window)
	}
	return sequence, err
}

// unnoticed takes every tail for whole.
type unnoticed struct{ pipeline.Events }

func (unnoticed) Holds(context.Context, uint64, int64) error { return nil }

// credulous takes any window for the one that is meant.
type credulous struct{ pipeline.Log }

func (l credulous) At(ctx context.Context, sequence uint64) (pipeline.Header, error) {
	_, err := l.Log.At(ctx, sequence)
	return pipeline.Header{}, err
}

// endless says that nothing was ever purged.
type endless struct{ pipeline.Log }

func (l endless) First(ctx context.Context) (pipeline.Header, uint64, error) {
	_, first, err := l.Log.First(ctx)
	return pipeline.Header{}, first, err
}

// unsealed lists files that are not durable.
type unsealed struct{ cold.Engine }

func (e unsealed) Create(name string) (cold.NewFile, error) {
	f, err := e.Engine.Create(name)
	return unsealedFile{f}, err
}

type unsealedFile struct{ cold.NewFile }

func (unsealedFile) Seal() error { return nil }

// byPosition keeps one letter for a position.
type byPosition struct {
	pipeline.DeadLetters
	s *Server
}

func (k byPosition) Keep(ctx context.Context, letters []pipeline.DeadLetter) error {
	var others []pipeline.DeadLetter
	for _, l := range letters {
		if !slices.ContainsFunc(k.s.Letters(), func(have pipeline.DeadLetter) bool { return have.Position == l.Position }) {
			others = append(others, l)
		}
	}
	return k.DeadLetters.Keep(ctx, others)
}
