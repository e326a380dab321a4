package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// windows are a log: what every node applies.
type windows struct {
	schema   *pipeline.Schema
	shards   int
	at       pipeline.Position
	sections [][]byte
	authors  []uint64 // nil: windows do not say who posted or deleted a post
	entries  []pipeline.Entry
	started  []*sinks.Node
}

func newWindows(t testing.TB, shards int) *windows {
	return &windows{schema: querytest.Schema(t), shards: shards, sections: make([][]byte, shards+1), authors: []uint64{}}
}

func (w *windows) section(id uint64) *[]byte {
	return &w.sections[pipeline.ShardOf(id, w.shards)]
}

func (w *windows) operate(o pipeline.Operation, base pipeline.Position) {
	s := w.section(o.ID)
	*s = pipeline.AppendOperation(*s, base, &o)
	if (o.Op == pipeline.OpPost || o.Op == pipeline.OpUnpost) && w.authors != nil {
		w.authors = append(w.authors, o.ID)
	}
}

// cut ends a window.
func (w *windows) cut(to pipeline.Position) {
	win := &pipeline.Window{Header: pipeline.Header{From: w.at, To: to, Time: int64(len(w.entries)+1) * 1000}, Authors: w.authors, Sections: w.sections}
	win.Marks = []pipeline.TimeMark{{Second: int64(1000 + len(w.entries)), Position: w.at + 1}}
	for i := range w.schema.Columns {
		win.Columns = append(win.Columns, w.schema.FullName(pipeline.Column(i)))
	}
	w.entries = append(w.entries, pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: pipeline.AppendWindow(nil, win)})
	w.at, w.sections, w.authors = to, make([][]byte, w.shards+1), w.authors[:0]
}

// random appends a window of changes by users 1 to n.
func (w *windows) random(r *rand.Rand, n uint64, operations int) {
	p := w.at
	seen := map[[2]uint64]bool{}
	var follows, posts []pipeline.Operation
	for range operations { // merged cells first
		id, column := 1+r.Uint64N(n), r.IntN(3)
		if key := [2]uint64{id, uint64(column)}; !seen[key] {
			seen[key] = true
			s := w.section(id)
			*s = pipeline.AppendChange(*s, column, id, pipeline.Add(1+r.Int64N(5)))
		}
	}
	for range operations {
		p++
		switch id := 1 + r.Uint64N(n); r.IntN(4) {
		case 0, 1:
			follows = append(follows, pipeline.Operation{Op: pipeline.OpFollow, ID: id, Other: 1 + r.Uint64N(n), Position: p})
		case 2:
			posts = append(posts, pipeline.Operation{Op: pipeline.OpPost, ID: id, Other: uint64(p), Position: p})
		case 3:
			posts = append(posts, pipeline.Operation{Op: pipeline.OpRead, ID: id, Position: p, Mark: p, Looked: pipeline.LookedFeed})
		}
	}
	all := append(follows, posts...)
	slices.SortFunc(all, func(a, b pipeline.Operation) int { return int(int64(a.Position) - int64(b.Position)) })
	for _, o := range all {
		if o.Op == pipeline.OpFollow && o.ID == o.Other {
			continue
		}
		w.operate(o, w.at)
		if o.Op == pipeline.OpFollow {
			w.operate(pipeline.Operation{Op: pipeline.OpFollowed, ID: o.Other, Other: o.ID, Position: o.Position}, w.at)
		}
	}
	w.cut(p)
}

// node starts a node that holds some shards, nil: all.
func (w *windows) node(t testing.TB, held []pipeline.Shard) *sinks.Node {
	t.Helper()
	return w.nodeWith(t, held, shard.Limits{PostsMax: 1000, Retention: 30 * 86400, Inactive: 30 * 86400})
}

func (w *windows) nodeWith(t testing.TB, held []pipeline.Shard, users shard.Limits) *sinks.Node {
	t.Helper()
	store, err := cold.Open(t.TempDir(), w.schema, cold.Options{Shards: w.shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	n, err := sinks.NewNode(store, sinks.Options{
		Shards: w.shards, Held: held, Owners: 1, CheckpointEvery: time.Hour, DirtyRowsMax: 1 << 20, SequenceMax: 1 << 40, Logger: quiet,
		Users: users,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.started = append(w.started, n)
	t.Cleanup(func() {
		if err := errors.Join(n.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, e := range w.entries {
		if err := n.Hand(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	return n
}

// nodes starts n of them: node i has the shards with i in their replicas.
func (w *windows) nodes(t testing.TB, n, replicas int) *cluster {
	t.Helper()
	c := &cluster{t: t, server: querytest.Server(t, &server.Options{}), servers: map[string]*spread.Server{}, metrics: prometheus.NewRegistry()}
	c.world = querytest.NewWorld(w.schema, w.shards, w.at)
	c.view.Store(&spread.View{Holders: make([][]string, w.shards)})
	for i := range n {
		holds := func(s pipeline.Shard) bool {
			for r := range replicas {
				if (int(s)+r)%n == i {
					return true
				}
			}
			return false
		}
		held := []pipeline.Shard{}
		for s := range pipeline.Shard(w.shards) {
			if holds(s) {
				held = append(held, s)
			}
		}
		name := fmt.Sprint("n", i)
		c.serve(name, w.node(t, held))
		c.list(name, holds)
	}
	return c
}

// Real nodes that hold some of the shards each, asked together, say what one says
// that holds all of them.
func TestNodes(t *testing.T) {
	const users = 200
	r := rand.New(rand.NewPCG(8, 8))
	w := newWindows(t, shards)
	for range 20 {
		w.random(r, users, 300)
	}
	whole := w.node(t, nil)
	for n := 1; n <= 4; n++ {
		c := w.nodes(t, n, min(n, 2))
		if n == 3 {
			c.own = w.node(t, []pipeline.Shard{2, 5, 7})
		}
		reader, err := spread.New(querytest.Connect(t, c.server), spread.Options{Schema: w.schema, Directory: c})
		if err != nil {
			t.Fatal(err)
		}
		ctx, far := within(t, 20*time.Second), reader.Far(w.at, time.Now().Add(time.Second))
		var ids []uint64
		for range 500 {
			ids = append(ids, 1+r.Uint64N(users))
		}
		var rows, wantRows query.Rows
		if err := errors.Join(far.Rows(ctx, 0, likeColumns, ids, &rows, true), whole.Rows(ctx, 0, likeColumns, ids, &wantRows, true)); err != nil || len(rows.Missing) > 0 || rows.AsOf != w.at {
			t.Fatal(err, rows.Missing, rows.AsOf)
		}
		if err := sameRows(ids, &rows, &wantRows, len(likeColumns)); err != nil {
			t.Error(err)
		}
		var unread, wantUnread query.Unreads
		if err := errors.Join(far.Unread(ctx, ids, nil, &unread, true), whole.Unread(ctx, ids, nil, &wantUnread, true)); err != nil || len(unread.Missing) > 0 || unread.AsOf != w.at {
			t.Fatal(err, unread.Missing, unread.AsOf)
		}
		if err := sameUnreads(&unread, &wantUnread); err != nil {
			t.Error(err)
		}
		some := uint64(0)
		for _, u := range unread.Users {
			some += u.Feed
		}
		for user := uint64(1); user <= 30; user++ {
			var feed, wantFeed query.FeedPage
			if err := errors.Join(far.Feed(ctx, user, 0, 7, &feed, true), whole.Feed(ctx, user, 0, 7, &wantFeed, true)); err != nil || !slices.Equal(feed.Posts, wantFeed.Posts) || feed.More != wantFeed.More || feed.Missing {
				t.Errorf("user %d: %v\n%v\n%v", user, err, feed, wantFeed)
			}
			var page, wantPage query.UserPage
			if err := errors.Join(far.Followers(ctx, user, 20, 5, &page, true), whole.Followers(ctx, user, 20, 5, &wantPage, true)); err != nil || !slices.Equal(page.Users, wantPage.Users) || page.More != wantPage.More {
				t.Errorf("user %d: %v\n%v\n%v", user, err, page, wantPage)
			}
			some += uint64(len(feed.Posts) + len(page.Users))
		}
		if some < 1000 {
			t.Errorf("the nodes hold too little to tell: %d", some)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}
	elsewhere, quiet := uint64(0), uint64(0)
	for _, n := range w.started {
		elsewhere, quiet = elsewhere+n.Stats.Elsewhere.Load(), quiet+n.Stats.Quiet.Load()
	}
	if quiet == 0 || quiet == elsewhere {
		t.Errorf("of %d followees elsewhere %d were not asked for", elsewhere, quiet)
	}
}

// Processor time of a get of 500 ids and an unread of 500 followees: one node in
// place, and 1, 2 and 4 nodes asked by one that holds nothing; 16 callers at once.
// All of it is in this process, the NATS server included.
func BenchmarkNodes(b *testing.B) {
	const users, authors, followees, shards = 500, 20_000, 500, 64
	r := rand.New(rand.NewPCG(1, 2))
	w := newWindows(b, shards)
	for id := uint64(1); id <= authors; id++ {
		s := w.section(id)
		*s = pipeline.AppendChange(*s, 2, id, pipeline.Add(int64(id%300)))
	}
	base := w.at
	p := base
	for id := uint64(1); id <= authors; id++ {
		p++
		w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: id, Other: id, Position: p}, base)
	}
	w.cut(p)
	for u := range uint64(users) {
		p := w.at
		for range followees {
			p++
			w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: 1<<40 + u, Other: 1 + r.Uint64N(authors), Position: p}, w.at)
		}
		p++
		w.operate(pipeline.Operation{Op: pipeline.OpRead, ID: 1<<40 + u, Position: p, Mark: p, Looked: pipeline.LookedFeed}, w.at)
		w.cut(p)
	}
	w.random(r, authors, 2000)
	whole := w.node(b, nil)
	measure(b, "local", func() query.Reader { return whole }, users, authors)
	for _, n := range []int{1, 2, 4} {
		c := w.nodes(b, n, 1)
		reader, err := spread.New(querytest.Connect(b, c.server), spread.Options{Schema: w.schema, Directory: c})
		if err != nil {
			b.Fatal(err)
		}
		measure(b, fmt.Sprint(n, " nodes"), func() query.Reader { return reader.Far(0, time.Now()) }, users, authors)
		if err := reader.Close(); err != nil {
			b.Error(err)
		}
	}
}

func measure(b *testing.B, name string, reader func() query.Reader, users, authors uint64) {
	ctx := context.Background()
	run := func(what string, ask func(query.Reader, *rand.Rand) error) {
		b.Run(what+"/"+name, func(b *testing.B) {
			b.SetParallelism(8)
			var seed atomic.Uint64
			before := processor()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(seed.Add(1), 5))
				for pb.Next() {
					if err := ask(reader(), r); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((processor()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
	run("get500", func(far query.Reader, r *rand.Rand) error {
		ids := make([]uint64, 500)
		for i := range ids {
			ids[i] = 1 + r.Uint64N(authors)
		}
		var rows query.Rows
		err := far.Rows(ctx, 0, likeColumns, ids, &rows, true)
		if err == nil && len(rows.Missing) > 0 {
			err = errors.New("missing")
		}
		return err
	})
	run("unread500", func(far query.Reader, r *rand.Rand) error {
		var out query.Unreads
		err := far.Unread(ctx, []uint64{1<<40 + r.Uint64N(users)}, nil, &out, true)
		if err == nil && len(out.Missing) > 0 {
			err = errors.New("missing")
		}
		return err
	})
}

// processor is the processor time of this process.
func processor() time.Duration {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
