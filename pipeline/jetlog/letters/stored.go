package letters

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A router that was killed between storing letters and appending their window
// derives them again when it goes on. Within DuplicateWindow the server knows their
// Nats-Msg-Id; after that DEADLETTER itself says which are there. So the first
// letters of a run are looked for in it.

const (
	// storedMax bounds the letters that are remembered, some 40 MB. Of more, some are
	// stored twice; whoever sends letters again knows them by their events.
	storedMax = 1 << 20
	// storedTries is how often DEADLETTER is read before letters are stored unseen.
	storedTries = 5
	// sinceFirst is how many of the newest letters Since reads first.
	sinceFirst = 1024
	// sinceWiden is by how much more it reads each time that these are too few.
	sinceWiden = 8
)

// stored are the letters that an earlier run of a router may have stored.
type stored struct {
	mu   sync.Mutex
	look bool               // they are not looked for yet
	all  map[EventID]uint64 // never changed once it is here
	last pipeline.Position  // of all
}

// Begin says that letters may come that an earlier run has stored: the next Keep
// looks for them.
func (d *DeadLetters) Begin() {
	d.stored.mu.Lock()
	defer d.stored.mu.Unlock()
	d.stored.look = true
}

// unstored are the letters that DEADLETTER does not have.
func (d *DeadLetters) unstored(ctx context.Context, letters []pipeline.DeadLetter) (missing []pipeline.DeadLetter) {
	if len(letters) == 0 {
		return nil
	}
	if d.stored.begins() {
		d.stored.set(d.found(ctx, letters[0].Position))
	}
	known := d.stored.since(letters[0].Position)
	if len(known) == 0 {
		return letters
	}
	for i := range letters {
		if _, there := known[eventIDOf(letters[i].Position, letters[i].Data)]; !there {
			missing = append(missing, letters[i])
		}
	}
	return missing
}

// begins says, once after Begin, that DEADLETTER is to be read.
func (s *stored) begins() (begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins, s.look = s.look, false
	return begins
}

func (s *stored) set(all map[EventID]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.last = all, 0
	for event := range all {
		s.last = max(s.last, event.Position)
	}
}

// since is all while there may be letters of a position or a later one.
func (s *stored) since(position pipeline.Position) map[EventID]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if position > s.last {
		s.all = nil
	}
	return s.all
}

// found reads which letters there are from a position on.
func (d *DeadLetters) found(ctx context.Context, from pipeline.Position) map[EventID]uint64 {
	for try := 1; ; try++ {
		box, err := OpenBox(ctx, d.js.Conn())
		if err == nil {
			var all map[EventID]uint64
			if all, err = box.Since(ctx, from); err == nil {
				return all
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if try == storedTries {
			d.logger.Warn("letters: cannot read which dead letters are stored already; some may be stored twice", "error", err)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(letterWaitMin << try):
		}
	}
}

// Since gives the letters of events at a position or after it, storedMax at most:
// the first letter of each event. Letters stand in the order of their events, but
// for those that were stored again: they are read back to where none is of so late
// an event.
func (b *Box) Since(ctx context.Context, position pipeline.Position) (map[EventID]uint64, error) {
	s, err := b.State(ctx)
	if err != nil {
		return nil, err
	}
	for width := uint64(sinceFirst); ; width *= sinceWiden {
		from := s.First
		if s.Last >= s.First && s.Last-s.First >= width {
			from = s.Last - width + 1
		}
		found := map[EventID]uint64{}
		older, later := 0, false // in the oldest part
		err := b.Visit(ctx, from, "", func(l *Letter) error {
			event, ok := l.Event()
			if !ok {
				return nil
			}
			if event.Position < position {
				if l.Sequence < from+width/2 {
					older++
				}
				return nil
			}
			later = later || l.Sequence < from+width/2
			if _, known := found[event]; !known && len(found) < storedMax {
				found[event] = l.Sequence
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("letters: look for the letters of position %d and later ones: %w", position, err)
		}
		if from == s.First || older > 0 && !later || len(found) == storedMax {
			return found, nil
		}
	}
}
