package tier

import (
	"math/rand/v2"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Sample draws up to n of the ids that the disk has something of, ascending, each once:
// of a small shard from all ids, of a larger one from the first ids of its blocks. So it
// reads n blocks at most. shards is how many there are.
func (t *Shard) Sample(n, shards int) (ids []uint64, err error) {
	var view *cold.View
	if _, err = t.Pin(func() { view = t.stack.View() }); err != nil {
		return nil, err
	}
	ids = view.Draw(n, rand.IntN)
	view.Close()
	if ids == nil {
		for id, err := range t.Stored() {
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return id == 0 || pipeline.ShardOf(id, shards) != t.Number })
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:min(n, len(ids))]
	slices.Sort(ids)
	return ids, nil
}
