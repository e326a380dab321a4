package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// Trim is how much of EVENTS may go: the messages before Below. Why says what keeps
// the rest. It is pure; the trim asks for what it decides by.
type Trim struct {
	Below uint64
	Why   string
}

// Bound keeps the messages from next on.
func (t *Trim) Bound(next uint64, why string) {
	if next < t.Below {
		t.Below, t.Why = next, why
	}
}

// Trimmable is an error while nothing of EVENTS may go, whatever is backed up.
func Trimmable(set generation.Set) error {
	if set.Building != 0 {
		return fmt.Errorf("generation %d is being built, which needs all of EVENTS: trim it when that serves, or after 'tidemark rebuild --abort'", set.Building)
	}
	return nil
}

// To keeps what came after the newest backup, which is in a place. It is an error if
// that is no base for what serves: of another generation, or of another EVENTS than the
// one created then.
func (t *Trim) To(m *Manifest, place string, set generation.Set, events time.Time) error {
	if err := Trimmable(set); err != nil {
		return err
	}
	if m.Generation() != set.Serving {
		return fmt.Errorf("the newest backup, %s in %s, is of generation %d, and generation %d serves: run 'tidemark backup %s' first", m.ID, place, m.Generation(), set.Serving, place)
	}
	// A number comes again where a record was lost: what it counts by distinguishes them.
	if of, serves := m.Generations.Owner(set.Serving), set.Owner(set.Serving); of != serves {
		return fmt.Errorf("the newest backup, %s in %s, is of another %v, and %v serves: run 'tidemark backup %s' first", m.ID, place, of, serves, place)
	}
	if !m.Events.Equal(events) {
		return fmt.Errorf("%w: backup %s in %s is of the EVENTS created at %v, and this one was created at %v", ErrForeign, m.ID, place, m.Events, events)
	}
	t.Bound(m.From.Next(), "the rest came after backup "+m.ID)
	return nil
}

// Archived says how far EVENTS is archived, and where.
type Archived struct {
	Directory string    `json:"directory"`
	Events    time.Time `json:"events"` // when the EVENTS that was archived was created
	Last      uint64    `json:"last"`
}

// Archived keeps what is not archived, of the EVENTS created then.
func (t *Trim) Archived(a *Archived, events time.Time) {
	if a.Events.Equal(events) {
		t.Bound(a.Last+1, "the rest is not archived in "+a.Directory)
	}
}

// Archive appends to a directory what EVENTS has of before the newest backup, which is
// in a place, and the directory does not have; see [archive.Directory.Add]. Only what
// is archived is trimmed from then on: that must be noted afterwards.
func Archive(ctx context.Context, d *archive.Directory, m *Manifest, place string, stream archive.Stream, last uint64, open func(pipeline.Position) (pipeline.Source, error), progress func(s *archive.Segment)) error {
	if !m.Events.Equal(stream.Created) {
		return fmt.Errorf("%w: backup %s in %s is of the EVENTS created at %v, and this one was created at %v", ErrForeign, m.ID, place, m.Events, stream.Created)
	}
	return d.Add(ctx, stream.Created, stream.First, min(m.Position.Sequence(), last), open, progress)
}
