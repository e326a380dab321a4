package hot

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Readers beside each other, and a writer that keeps them out by a lock, of each structure.
// What a reader notes of use the race detector looks at.
func TestReadersBesideAWriter(t *testing.T) {
	const ids, wide = 500, 100
	var lock sync.RWMutex
	var stop atomic.Bool
	var readers sync.WaitGroup
	table, lists, sets := NewTable([]int{16, 8, 4}), NewLists(1, ByBoth), NewSets(SetsForm{Emptied: true})
	reader := func(read func(id uint64, random *rand.Rand)) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for !stop.Load() {
				lock.RLock()
				for range 20 {
					read(1+random.Uint64N(ids), random)
				}
				lock.RUnlock()
			}
		})
	}
	list := make([]uint64, wide)
	for i := range list {
		list[i] = uint64(i) + 1
	}
	reader(func(id uint64, _ *rand.Rand) { // columns 0 and 1 of a row change together
		var cells [3]int64
		var deltas [3]pipeline.Delta
		if table.Read(id, cells[:]); cells[0] != cells[1] {
			t.Errorf("cells %v of row %d", cells, id)
		}
		if table.Deltas(id, deltas[:]); deltas[0].Low != deltas[1].Low {
			t.Errorf("deltas %v of row %d", deltas, id)
		}
	})
	reader(func(uint64, *rand.Rand) {
		cells, states := make([]int64, 3*wide), make([]State, wide)
		table.ReadBatch(list, cells, states)
		for i := range list {
			if cells[3*i] != cells[3*i+1] {
				t.Errorf("cells %v of row %d of a batch", cells[3*i:3*i+3], list[i])
			}
		}
	})
	reader(func(id uint64, _ *rand.Rand) {
		out := make([]uint64, 1)
		Gather([]*Lists{lists}, []Pair{{A: id}}, out)
		word, ok := lists.Word(id, 0)
		pairs := lists.Pairs(id, 0, nil)
		if word != out[0] || ok && word != id || len(pairs) != lists.CountAbove(id, 0, 0, math.MaxInt) {
			t.Errorf("%d: word %d, gathered %d, %d pairs", id, word, out[0], len(pairs))
		}
	})
	reader(func(id uint64, random *rand.Rand) {
		a := 1 + random.Uint64N(ids)
		if _, there, _ := sets.Get(id, pipeline.Member{A: a}); there && id >= a {
			t.Errorf("%d, %d: %v", id, a, there)
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 1500 {
		id, a := 1+random.Uint64N(ids), 1+random.Uint64N(ids)
		lock.Lock()
		table.Change(id, 0, pipeline.Add(int64(step%5-1)), Whole)
		table.Change(id, 1, pipeline.Add(int64(step%5-1)), Whole)
		lists.Make(id)
		lists.SetWord(id, 0, id)
		lists.Fill(id, 0, nil)
		for i := range uint64(random.IntN(100)) {
			lists.Set(id, 0, Pair{1 + i*1000, i * id})
		}
		sets.Put(id, pipeline.Member{A: a}, 0, id < a)
		if step%100 == 99 {
			table.Clean(make([]int64, 3), func(uint64, State) {})
			table.Evict(50)
			lists.Evict(random.IntN(20_000), func(id uint64) bool { return id%5 == 0 })
			sets.Evict(30)
			sets.Empty(id)
		}
		lock.Unlock()
	}
	stop.Store(true)
	readers.Wait()
}
