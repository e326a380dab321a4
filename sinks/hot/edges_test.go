package hot

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// hostilePairs are few enough to meet again, some of them all in one place.
func hostilePairs() *rapid.Generator[Pair] {
	few := rapid.Uint64Range(1, 9)
	return rapid.Custom(func(t *rapid.T) Pair {
		a := rapid.OneOf(few, ids()).Draw(t, "a")
		b := rapid.OneOf(few, ids(), rapid.Map(few, func(n uint64) uint64 {
			return unmix(0xabcd<<48+n) - pipeline.Mix(a) // as Edges mixes
		})).Draw(t, "b")
		return Pair{a, b}
	})
}

// Edges against a map.
func TestEdgesTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, twin := NewEdges(), map[Pair]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for _, p := range rapid.SliceOfN(hostilePairs(), 1, 30).Draw(t, "pairs") {
					present := rapid.Bool().Draw(t, "present")
					e.Put(p.A, p.B, present)
					twin[p] = present
				}
			},
			"forget": func(t *rapid.T) {
				p := hostilePairs().Draw(t, "pair")
				e.Forget(p.A, p.B)
				delete(twin, p)
			},
			"get": func(t *rapid.T) {
				p := hostilePairs().Draw(t, "pair")
				checkEdge(t, e, twin, p)
				checkEdge(t, e, twin, Pair{p.B, p.A})
			},
			"evict": func(t *rapid.T) { evictEdges(t, e, twin) },
			"": func(t *rapid.T) {
				present := 0
				for _, is := range twin {
					if is {
						present++
					}
				}
				if e.Known() != len(twin) || e.Count() != present {
					t.Fatalf("%d known, %d present; want %d, %d", e.Known(), e.Count(), len(twin), present)
				}
			},
		})
		for p := range twin {
			checkEdge(t, e, twin, p)
		}
	})
}

func checkEdge(t *rapid.T, e *Edges, twin map[Pair]bool, p Pair) {
	is, has := twin[p]
	if present, known := e.Get(p.A, p.B); present != is || known != has {
		t.Fatalf("Get(%d, %d): %v, %v; want %v, %v", p.A, p.B, present, known, is, has)
	}
}

func evictEdges(t *rapid.T, e *Edges, twin map[Pair]bool) {
	pairs := rapid.IntRange(-1, 40).Draw(t, "pairs")
	keep := func(a, b uint64) bool { return (a+b)%3 == 0 }
	before, evictable := len(twin), 0
	for p := range twin {
		if !keep(p.A, p.B) {
			evictable++
		}
		if _, ok := e.index.find([2]uint64{p.A, p.B}); ok {
			continue
		}
		t.Fatalf("%v was gone before", p)
	}
	evicted := e.Evict(pairs, keep)
	if want := min(max(pairs, 0), evictable); evicted != want {
		t.Fatalf("%d of %d evicted, want %d", evicted, before, want)
	}
	for p := range twin {
		if _, ok := e.index.find([2]uint64{p.A, p.B}); !ok {
			if keep(p.A, p.B) {
				t.Fatalf("%v was to be kept", p)
			}
			delete(twin, p)
		}
	}
	if len(twin) != before-evicted {
		t.Fatalf("%d pairs are gone, Evict says %d", before-len(twin), evicted)
	}
}

// What was read since the hand passed stays; and memory is given back.
func TestEdgesEvictsUnused(t *testing.T) {
	e := NewEdges()
	e.Evict(0, nil) // from now on use is recorded
	const pairs = 100_000
	for i := uint64(1); i <= pairs; i++ {
		e.Put(i%1000+1, i, i%2 == 0)
	}
	full := e.Bytes()
	t.Logf("%.1f bytes a pair", float64(full)/pairs)
	for i := uint64(10); i <= pairs; i += 10 {
		e.Get(i%1000+1, i)
	}
	if got := e.Evict(pairs*9/10, func(uint64, uint64) bool { return false }); got != pairs*9/10 {
		t.Fatalf("%d evicted", got)
	}
	wrong := 0
	for i := uint64(1); i <= pairs; i++ {
		present, known := e.Get(i%1000+1, i)
		if known != (i%10 == 0) {
			wrong++
		}
		if known && present != (i%2 == 0) {
			t.Fatalf("pair %d: %v", i, present)
		}
	}
	if wrong > pairs/1000 { // A few pairs pass under the hand twice.
		t.Errorf("%d pairs are not as their use was", wrong)
	}
	if e.Bytes() > full/5 {
		t.Errorf("%d bytes of %d after nine tenths are gone", e.Bytes(), full)
	}
	if got := e.Evict(math.MaxInt, func(uint64, uint64) bool { return false }); got != pairs/10 || e.Known() != 0 || e.Count() != 0 {
		t.Errorf("%d evicted, %d known, %d present", got, e.Known(), e.Count())
	}
}

// Readers side by side, kept out by a lock while one writes. (For -race.)
func TestEdgesReaders(t *testing.T) {
	var (
		lock sync.RWMutex
		stop atomic.Bool
		work sync.WaitGroup
		e    = NewEdges()
	)
	for range 3 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for !stop.Load() {
				lock.RLock()
				for range 50 {
					a, b := 1+random.Uint64N(100), 1+random.Uint64N(100)
					if present, known := e.Get(a, b); known && present != (a < b) {
						t.Errorf("%d, %d: %v", a, b, present)
					}
				}
				lock.RUnlock()
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 5000 {
		a, b := 1+random.Uint64N(100), 1+random.Uint64N(100)
		lock.Lock()
		e.Put(a, b, a < b)
		if step%100 == 99 {
			e.Evict(30, func(a, _ uint64) bool { return a%5 == 0 })
		}
		lock.Unlock()
	}
	stop.Store(true)
	work.Wait()
}
