package backup

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A system that was restored has an EVENTS of its own, which goes on from the one that
// is lost. It backs up into the place that it was restored from: each manifest names
// the EVENTS before its own. It is refused where the place has a backup that is
// neither its own nor one that it goes on from. So of two systems that were restored
// from one backup, or a system and its copy, the first one to make a backup has the
// place, and the other is refused.

// Ancestor is an EVENTS that is lost, up to where another goes on from it.
type Ancestor struct {
	Events   time.Time         `json:"events"`          // when it was created
	Position pipeline.Position `json:"position,string"` // that was restored
}

// ancestorsMax bounds how many a manifest names, and how often a system is restored
// into one place.
const ancestorsMax = 1000

// lineage is what an EVENTS that was created then goes on from, the newest first, if a
// place with these backups may have one of it: all of them are of it, or of that.
// continues is the EVENTS that it goes on from itself; the zero: none.
func lineage(p Place, all []*Manifest, events time.Time, continues Ancestor) ([]Ancestor, error) {
	var before []Ancestor
	if !continues.Events.IsZero() {
		before = append(before, continues)
	}
	for _, b := range all {
		if b.Events.Equal(continues.Events) && !continues.Events.IsZero() {
			before = append(before[:1], b.Before...) // all of one EVENTS name the same
		}
	}
	if len(before) > ancestorsMax {
		return nil, fmt.Errorf("backup: %s has the backups of %d systems that were restored from one another, and %d at most: choose another place", p, len(before), ancestorsMax)
	}
	for _, b := range all {
		if err := related(p, b, events, before); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// related says why a backup keeps others out of its place.
func related(p Place, b *Manifest, events time.Time, before []Ancestor) error {
	if b.Events.Equal(events) {
		return nil
	}
	for _, a := range before {
		if !b.Events.Equal(a.Events) {
			continue
		}
		if b.Position <= a.Position {
			return nil
		}
		return fmt.Errorf("%w: %s has backup %s, of position %d, and this system was restored as of position %d: another one has gone on since, or this one was restored to an earlier point: choose another place",
			ErrForeign, p, b.ID, b.Position, a.Position)
	}
	for _, a := range b.Before {
		if a.Events.Equal(events) {
			return fmt.Errorf("%w: %s has backup %s of a system that was restored from a backup of this one, and backs up there now: choose another place for one of them", ErrForeign, p, b.ID)
		}
	}
	return fmt.Errorf("%w: %s has backup %s of the EVENTS created at %v, and this one was created at %v: choose another place", ErrForeign, p, b.ID, b.Events, events)
}
