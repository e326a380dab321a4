package tier

import (
	"iter"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// storedPiece is how many entries of the disk are read at a time, about.
const storedPiece = 8192

// Stored are the ids that the disk has something of: rows, lists, marks. Some come
// more often than once. The disk is read piece by piece, each as it is by then, and
// nothing of it is held on to while an id is handed over. After an error there are
// no more.
func (t *Shard) Stored() iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		var ids []uint64
		add := func(id uint64) {
			if n := len(ids); n == 0 || ids[n-1] != id {
				ids = append(ids, id)
			}
		}
		var part cold.Part
		users := cold.Range{Most: storedPiece}
		walks := []func(v *cold.View) error{
			func(v *cold.View) error {
				return v.WalkRows(&part, func(_ int, id uint64, _ []int64) error { add(id); return nil })
			},
			func(v *cold.View) error {
				err := v.UserRange(&users,
					func(id, _ uint64, _ pipeline.Position) { add(id) },
					func(id uint64, _ [4]uint64) { add(id) },
					func(id uint64, _ string, _ pipeline.Position) { add(id) })
				users.From, part.Done = users.To, users.To == math.MaxUint64
				return err
			},
			func(v *cold.View) error { return v.WalkAuthors(&part, add) },
			func(v *cold.View) error { return v.WalkEdges(&part, func(id, _ uint64) { add(id) }) },
		}
		for _, column := range t.schema.Sets() {
			walks = append(walks, func(v *cold.View) error {
				return v.WalkMembers(column, &part, func(id uint64, _ pipeline.Member, _ int64) { add(id) })
			})
		}
		for _, walk := range walks {
			for part = (cold.Part{Most: storedPiece}); !part.Done; {
				ids = ids[:0]
				var view *cold.View
				_, err := t.Pin(func() { view = t.stack.View() })
				if err == nil {
					err = walk(view)
					view.Close()
				}
				if err != nil {
					yield(0, err)
					return
				}
				for _, id := range ids {
					if !yield(id, nil) {
						return
					}
				}
			}
		}
	}
}
