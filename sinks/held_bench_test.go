package sinks_test

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// processor is the processor time of this process, in nanoseconds: what other
// processes take meanwhile does not count.
func processor(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// likesWindows are windows of so many events each: a like of a post, which is
// counted for the post, its author and the user, of a million each.
func likesWindows(windows, events, shards int) (entries []pipeline.Entry) {
	r := rand.New(rand.NewPCG(1, 2))
	at := pipeline.Position(0)
	for i := range windows {
		win := &pipeline.Window{
			Header:  pipeline.Header{From: at, To: at + pipeline.Position(events), Events: uint64(events), Time: int64(i + 1)},
			Columns: []string{"post.like", "user.like", "user.post"}, Sections: make([][]byte, shards+1),
		}
		for range events {
			for column := range win.Columns {
				id := 1 + r.Uint64N(1_000_000)
				s := &win.Sections[pipeline.ShardOf(id, shards)]
				*s = pipeline.AppendChange(*s, column, id, pipeline.Add(1))
			}
		}
		at = win.To
		entries = append(entries, pipeline.Entry{Sequence: uint64(i + 1), Window: pipeline.AppendWindow(nil, win)})
	}
	return entries
}

// Processor time of 500 rows that lie anywhere among a million in 64 shards.
func BenchmarkRows(b *testing.B) {
	const shards, windows, events = 64, 200, 8192
	store := openStore(b, b.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	o.DirtyRowsMax = 1 << 30
	n := newNode(b, store, o)
	defer n.Crash()
	for _, e := range likesWindows(windows, events, shards) {
		if err := n.Hand(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	if err := n.Settle(b.Context()); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	ids := make([]uint64, 500)
	var rows query.Rows
	begun := processor(b)
	for b.Loop() {
		for i := range ids {
			ids[i] = 1 + r.Uint64N(1_000_000)
		}
		if err := n.Rows(b.Context(), 0, []pipeline.Column{0}, ids, &rows, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processor(b)-begun)/float64(b.N)/1000, "cpu-µs/op")
}
