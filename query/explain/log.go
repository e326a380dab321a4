package explain

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Log is EVENTS. It may be used concurrently.
type Log interface {
	// Extent is what there is now.
	Extent(ctx context.Context) (Extent, error)
	// Begin begins to look things up: what is the same for all parts that are read
	// is looked up once.
	Begin(ctx context.Context) (Parts, error)
}

// Parts are what is read of the log for one explanation. All but Get fail with
// pipeline.ErrGap where the beginning of what is asked for is gone.
type Parts interface {
	// Extent is what there was at the beginning.
	Extent() Extent
	// Open is that of pipeline.Events, for so many messages. It may be called
	// concurrently; of the sources one is read at a time.
	Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error)
	// Get is one message; false where there is none. It may be called
	// concurrently, but not while a source is read.
	Get(ctx context.Context, sequence uint64) (m pipeline.Message, there bool, err error)
}

// Extent is which messages a stream holds.
type Extent struct {
	First, Last uint64 // sequences; First is above Last where there are none
	Created     time.Time
}

// open begins to read the messages of s.
func open(ctx context.Context, parts Parts, s stretch) (pipeline.Source, error) {
	return parts.Open(ctx, pipeline.EndOf(s.first-1), int(min(s.last-s.first, 1<<30))+1)
}

// read visits the messages of s run by run, in order, and closes the source.
func read(ctx context.Context, source pipeline.Source, s stretch, visit func(run []pipeline.Message)) (messages int, err error) {
	defer source.Close()
	for {
		run, err := source.Next(ctx)
		if err != nil {
			return messages, err
		}
		end := run[len(run)-1].Sequence
		for len(run) > 0 && run[len(run)-1].Sequence > s.last {
			run = run[:len(run)-1]
		}
		visit(run)
		messages += len(run)
		if end >= s.last {
			return messages, nil
		}
	}
}
