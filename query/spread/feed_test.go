package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// feedLog is windows with posts, and those that are listed, oldest first.
type feedLog struct {
	*windows
	listed []query.FeedPost
	posted uint64
}

func author(i int) uint64 { return 1 + uint64(i)*977 }

func (w *feedLog) post(author uint64, p pipeline.Position) {
	w.posted++
	w.listed = append(w.listed, query.FeedPost{Post: w.posted, Author: author, Position: p})
	w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: w.posted, Position: p}, w.at)
}

// unpost deletes one of those that are listed.
func (w *feedLog) unpost(i int, p pipeline.Position) {
	w.operate(pipeline.Operation{Op: pipeline.OpUnpost, ID: w.listed[i].Author, Other: w.listed[i].Post, Position: p}, w.at)
	w.listed = slices.Delete(w.listed, i, i+1)
}

// newFeedLog is a log of so many posts of authors, in no order, and of users who
// follow the first so many of them.
func newFeedLog(t testing.TB, shards, authors, posts int, follows map[uint64]int) *feedLog {
	w := &feedLog{windows: newWindows(t, shards)}
	p, n := w.at, 0
	next := func() pipeline.Position {
		if n++; n%4096 == 0 {
			w.cut(p)
		}
		p += 1 << 10 // one event a message
		return p
	}
	for user, many := range follows {
		for i := range many {
			w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: author(i), Position: next()}, w.at)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range posts {
		at := next()
		w.post(author(r.IntN(authors)), at)
	}
	w.cut(p)
	return w
}

// started is a node that holds some shards, over a store in a directory, with so
// much memory (0: no bound).
func (w *feedLog) started(t testing.TB, dir string, held []pipeline.Shard, memory int) (n *sinks.Node, stop func()) {
	t.Helper()
	store, err := cold.Open(dir, w.schema, cold.Options{Shards: w.shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 8 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	n, err = sinks.NewNode(store, sinks.Options{
		Shards: w.shards, Held: held, Owners: 1, CheckpointEvery: time.Second, DirtyRowsMax: 1 << 20, SequenceMax: 1 << 40, Logger: quiet, MemoryBytes: memory,
		Users: shard.Limits{PostsMax: 1000, Retention: 30 * 86400, Inactive: 30 * 86400},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.hand(t, n)
	for loaded, all := n.Warmth(); loaded < all; loaded, all = n.Warmth() {
		time.Sleep(time.Millisecond)
	}
	return n, func() {
		if err := errors.Join(n.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

// apart starts a node for each directory, and shares the shards out.
func (w *feedLog) apart(t testing.TB, dirs []string, memory int) (c *cluster, nodes []*sinks.Node, stop func()) {
	c = w.nodes(t, 0, 1)
	c.metrics = prometheus.NewRegistry()
	var stops []func()
	for i, dir := range dirs {
		var held []pipeline.Shard
		for s := i; s < w.shards; s += len(dirs) {
			held = append(held, pipeline.Shard(s))
		}
		n, stop := w.started(t, dir, held, memory)
		nodes, stops = append(nodes, n), append(stops, stop)
		name := fmt.Sprint("n", i)
		c.serve(name, n)
		c.list(name, n.Holds)
	}
	return c, nodes, func() {
		for name := range c.servers {
			c.stop(name)
		}
		for _, stop := range stops {
			stop()
		}
	}
}

// hand has nodes apply what they have not.
func (w *feedLog) hand(t testing.TB, nodes ...*sinks.Node) {
	t.Helper()
	for _, n := range nodes {
		for _, e := range w.entries[n.Sequence():] {
			if err := n.Hand(context.Background(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// "Answers are exactly those of one process, whatever the number of
// nodes": page by page to its end, the feed of one who follows more than a node is asked
// for at a time is what the log says, with all in memory and with nearly nothing there,
// while posts come and go. Who has nothing as new as a page is not looked for on the
// disk.
func TestFeedOfMany(t *testing.T) {
	const shards, authors, followees, user = 16, 40_000, 36_000, 1 << 40
	r := rand.New(rand.NewPCG(3, 4))
	w := newFeedLog(t, shards, authors, 8000, map[uint64]int{user: followees})
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for _, memory := range []int{0, 128 << 10} {
		c, nodes, stop := w.apart(t, dirs, memory)
		reader := c.open()
		for round := range 3 {
			for n := range min(round, 1) * 40 { // at first the pages are of what was there at the start
				p := w.at + pipeline.Position(n+1)<<10
				w.post(author(r.IntN(authors)), p)
				if n%4 == 0 { // one of the newest goes
					w.unpost(len(w.listed)-1-r.IntN(200), p+1)
				}
			}
			w.cut(w.at + 41<<10)
			w.hand(t, nodes...)
			var want []query.FeedPost
			for _, p := range slices.Backward(w.listed) {
				if p.Author <= author(followees-1) {
					want = append(want, p)
				}
			}
			before := pipeline.Position(0)
			for limit := 10; len(want) > 0; limit = 1000 {
				var page query.FeedPage
				n := min(limit, len(want))
				err := reader.Far(w.at, time.Now().Add(time.Second)).Feed(within(t, 60*time.Second), user, before, limit, &page, true)
				if err != nil || page.Missing || page.AsOf != w.at {
					t.Fatalf("%v, missing %v, as of %d of %d", err, page.Missing, page.AsOf, w.at)
				}
				if !slices.Equal(page.Posts, want[:n]) || page.More != (len(want) > n) {
					t.Fatalf("before %d: more %v\n%v, not\n%v", before, page.More, page.Posts, want[:n])
				}
				if limit == 10 && page.Cost.Cold > followees/10 {
					t.Errorf("%d of %d followees were read from the disk for a page of %d", page.Cost.Cold, followees, limit)
				}
				before, want = want[n-1].Position, want[n:]
			}
		}
		stop()
	}
}

// Pages of a feed of one who follows many: one process, and four that hold a
// quarter each, asked by one that holds nothing; all in memory, and with a part
// of it there.
func BenchmarkFeedOfMany(b *testing.B) {
	const shards, authors = 64, 1_000_000
	users := map[uint64]int{1 << 40: 1000, 1<<40 + 1: 100_000, 1<<40 + 2: authors}
	w := newFeedLog(b, shards, authors, 2*authors, users)
	alone, dirs := b.TempDir(), []string{b.TempDir(), b.TempDir(), b.TempDir(), b.TempDir()}
	for _, memory := range []int{0, 4 << 20} {
		kind := "warm"
		if memory > 0 {
			kind = "cold"
		}
		whole, stop := w.started(b, alone, nil, memory*len(dirs))
		w.pages(b, kind+"/one", users, func() query.Reader { return whole }, whole)
		stop()
		c, nodes, stop := w.apart(b, dirs, memory)
		reader := c.open()
		w.pages(b, kind+"/four", users, func() query.Reader { return reader.Far(0, time.Now()) }, nodes...)
		stop()
	}
}

func (w *feedLog) pages(b *testing.B, kind string, users map[uint64]int, reader func() query.Reader, nodes ...*sinks.Node) {
	middle := w.listed[len(w.listed)/2].Position
	for user, follows := range users {
		for _, depth := range []string{"first", "second", "middle"} {
			b.Run(fmt.Sprintf("%s/%d/%s", kind, follows, depth), func(b *testing.B) {
				var page query.FeedPage
				var used, disk time.Duration
				before, cold := pipeline.Position(0), 0
				if depth == "middle" {
					before = middle
				}
				for range b.N {
					b.StopTimer()
					w.post(1<<50, w.at+1) // what is over the memory goes
					w.cut(w.at + 1)
					w.hand(b, nodes...)
					b.StartTimer()
					begun := processor()
					if err := reader().Feed(context.Background(), user, before, 20, &page, true); err != nil || page.Missing {
						b.Fatal(err, page.Missing)
					}
					used += processor() - begun
					cold += page.Cost.Cold
					disk += page.Cost.Disk
					if depth == "second" && before == 0 {
						before = page.Posts[19].Position
					}
				}
				b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(cold)/float64(b.N), "cold/op")
				b.ReportMetric(disk.Seconds()*1000/float64(b.N), "disk-ms/op")
			})
		}
	}
}
