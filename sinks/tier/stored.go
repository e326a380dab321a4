package tier

import (
	"iter"
	"math"

	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Kinds are the kinds of entries that the disk has of an id.
type Kinds uint8

// The kinds.
const (
	HasRow      Kinds = 1 << iota
	HasUser           // followees, marks or cursors
	HasPosts          // of an author
	HasFollower       // of a user
	HasMember         // of the set or list of a column
)

// Stored is an id that the disk has entries of.
type Stored struct {
	ID    uint64
	Kinds Kinds
}

// storedPiece is how many entries of the disk are read at a time, about.
const storedPiece = 8192

// Stored are the ids that the disk has entries of, also such as say that something is gone,
// ascending, each once. The disk is read piece by piece, each as it is by then, and nothing of it is held on to while an id is
// handed over. After an error there are no more.
func (t *Shard) Stored() iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		walks := t.walks()
		for {
			next := Stored{ID: math.MaxUint64}
			some := false
			for i := range walks {
				w := &walks[i]
				for len(w.ids) == 0 && !w.part.Done {
					if err := w.read(t); err != nil {
						yield(Stored{}, err)
						return
					}
				}
				switch {
				case len(w.ids) == 0 || w.ids[0] > next.ID:
				case w.ids[0] == next.ID:
					next.Kinds, some = next.Kinds|w.kind, true
				default:
					next, some = Stored{w.ids[0], w.kind}, true
				}
			}
			if !some || !yield(next, nil) {
				return
			}
			for i := range walks {
				if w := &walks[i]; len(w.ids) > 0 && w.ids[0] == next.ID {
					w.ids = w.ids[1:]
				}
			}
		}
	}
}

// walk goes over the ids of one kind of entries.
type walk struct {
	kind   Kinds
	part   cold.Part
	ids    []uint64 // of the piece read last, not handed over yet
	buffer []uint64
}

func (t *Shard) walks() (all []walk) {
	kinds := map[run.Kind]Kinds{
		run.Row: HasRow, run.Following: HasUser, run.Marks: HasUser, run.Cursor: HasUser, run.Follower: HasFollower, run.Post: HasPosts,
		run.Member: HasMember, run.Pair: HasMember, run.Kept: HasMember, run.Item: HasMember,
	}
	for _, head := range t.stack.Heads() {
		all = append(all, walk{kind: kinds[head.Kind], part: cold.Part{From: head, Most: storedPiece}})
	}
	return all
}

// read reads the next piece, whose first id may be the last one of the piece before.
func (w *walk) read(t *Shard) error {
	last := uint64(0)
	if n := len(w.buffer); n > 0 {
		last = w.buffer[n-1]
	}
	w.buffer = append(w.buffer[:0], last)
	var view *cold.View
	if _, err := t.Pin(func() { view = t.stack.View() }); err != nil {
		return err
	}
	defer view.Close()
	err := view.WalkIDs(&w.part, func(id uint64) {
		if id != w.buffer[len(w.buffer)-1] {
			w.buffer = append(w.buffer, id)
		}
	})
	w.ids = w.buffer[1:]
	return err
}
