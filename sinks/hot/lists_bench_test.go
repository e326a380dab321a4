package hot

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	benchAuthors = 10_000_000
	benchTables  = 64
)

// authors are the outboxes of benchAuthors authors, one post each, in shards:
// word 0 is the newest position.
var authors = sync.OnceValue(func() []*Lists {
	tables := make([]*Lists, benchTables)
	for i := range tables {
		tables[i] = NewLists(1, ByBoth)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range benchAuthors { // in no order, as they come to post
		id := 1 + random.Uint64N(benchAuthors)
		position := uint64(1)<<40 + random.Uint64N(1<<40)
		t := tables[pipeline.ShardOf(id, benchTables)]
		t.Make(id)
		t.Fill(id, 0, []Pair{{position, 1<<62 + random.Uint64N(1<<61)}})
		t.SetWord(id, 0, position)
	}
	for id := uint64(1); id <= benchAuthors; id++ {
		if t := tables[pipeline.ShardOf(id, benchTables)]; !t.Has(id) {
			t.Make(id)
			t.Fill(id, 0, []Pair{{1 << 40, 1<<62 + random.Uint64N(1<<61)}})
			t.SetWord(id, 0, 1<<40)
		}
	}
	return tables
})

// Feed unread's inner loop: 500 of 10M authors in 64 shards.
func BenchmarkGather(b *testing.B) {
	for _, c := range []struct {
		name string
		most uint64
	}{{"all there", benchAuthors}, {"half there", 2 * benchAuthors}} {
		b.Run(c.name, func(b *testing.B) {
			tables, next := authors(), uint64(1)
			ids, out := make([]Pair, 500), make([]uint64, 500)
			for b.Loop() {
				for i := range ids { // cheaper than a list of so many that no cache has their rows
					next = next*6364136223846793005 + 1442695040888963407
					ids[i].A = 1 + next>>32*c.most>>32
				}
				Gather(tables, ids, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/id")
		})
	}
}

// A post more by an author who has so many; of a list that long the oldest
// goes. And a followee more for a user who follows so many, anywhere among
// them.
func BenchmarkSet(b *testing.B) {
	for _, n := range []uint64{10, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("post/%d", n), func(b *testing.B) {
			l, random := NewLists(1, ByBoth), rand.New(rand.NewPCG(1, 2))
			l.Make(1)
			last := uint64(0)
			add := func() {
				last += 1024
				l.Set(1, 0, Pair{last, random.Uint64()})
			}
			for range n {
				add()
			}
			for b.Loop() {
				add()
				first, _ := l.First(1, 0)
				l.Delete(1, 0, first.A)
			}
		})
		b.Run(fmt.Sprintf("followee/%d", n), func(b *testing.B) {
			l, random := NewLists(1, ByA), rand.New(rand.NewPCG(1, 2))
			l.Make(1)
			for range n {
				l.Set(1, 0, Pair{random.Uint64N(1 << 40), 1 << 30})
			}
			for b.Loop() {
				a := random.Uint64N(1 << 40)
				l.Set(1, 0, Pair{a, 1 << 30})
				l.Delete(1, 0, a)
			}
		})
	}
}
