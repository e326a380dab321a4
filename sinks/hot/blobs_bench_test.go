package hot

import (
	"math/rand/v2"
	"runtime"
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
var authors = sync.OnceValue(func() []*Blobs {
	tables := make([]*Blobs, benchTables)
	for i := range tables {
		tables[i] = NewBlobs(1)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for range benchAuthors { // in no order, as they come to post
		id := 1 + random.Uint64N(benchAuthors)
		position := uint64(1)<<40 + random.Uint64N(1<<40)
		b = AppendPosts(b[:0], []Pair{{position, 1<<62 + random.Uint64N(1<<61)}})
		t := tables[pipeline.ShardOf(id, benchTables)]
		t.Put(id, b)
		t.SetWord(id, 0, position)
	}
	for id := uint64(1); id <= benchAuthors; id++ {
		if t := tables[pipeline.ShardOf(id, benchTables)]; !t.Has(id) {
			t.Put(id, b)
			t.SetWord(id, 0, 1<<40)
		}
	}
	return tables
})

// What an author with one post takes, id, words, coded post (15 bytes) and all
// that is free included.
func BenchmarkBlobsBytes(b *testing.B) {
	bytes, count := 0, 0
	for b.Loop() {
		bytes, count = 0, 0
		for _, t := range authors() {
			bytes += t.Bytes()
			count += t.Count()
		}
	}
	b.ReportMetric(float64(bytes)/float64(count), "B/author")
}

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

// What memory can do: one word for each of 500 ids, of as many bytes.
func BenchmarkGatherFloor(b *testing.B) {
	words, next, sum := make([]uint64, 24*benchAuthors/8), uint64(1), uint64(0)
	for i := range words {
		words[i] = uint64(i) // or all pages are one
	}
	for b.Loop() {
		for range 500 {
			next = next*6364136223846793005 + 1442695040888963407
			sum += words[next>>32*uint64(len(words))>>32]
		}
	}
	runtime.KeepAlive(sum)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*500), "ns/id")
}

// Gather's ids one after the other.
func BenchmarkWord(b *testing.B) {
	tables := authors()
	random := rand.New(rand.NewPCG(3, 4))
	for b.Loop() {
		id := 1 + random.Uint64N(benchAuthors)
		tables[pipeline.ShardOf(id, benchTables)].Word(id, 0)
	}
}

func BenchmarkPut(b *testing.B) {
	tables := authors()
	random := rand.New(rand.NewPCG(5, 6))
	payload := make([]byte, 64)
	for b.Loop() {
		id := 1 + random.Uint64N(benchAuthors)
		tables[pipeline.ShardOf(id, benchTables)].Put(id, payload[:12+random.IntN(8)])
	}
}
