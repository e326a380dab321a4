package spread_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

// hand gives nodes the windows from one on.
func (w *windows) hand(t testing.TB, from int, nodes ...*sinks.Node) {
	t.Helper()
	for _, n := range nodes {
		for _, e := range w.entries[from:] {
			if err := n.Hand(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// community appends a window of posts, deletions, reads and follows: a few authors post
// much, some of it is deleted, and some users look at their feed.
func (w *windows) community(r *rand.Rand, users uint64, posts *[][2]uint64) {
	p := w.at
	for range 1 + r.IntN(40) {
		p += pipeline.Position(1 + r.Uint64N(1<<16)) // messages come one by one, and many at once
		author := 1 + min(r.Uint64N(users), r.Uint64N(users), r.Uint64N(users))
		switch user := 1 + r.Uint64N(users); r.IntN(8) {
		case 0, 1, 2:
			w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: uint64(p), Position: p}, w.at)
			*posts = append(*posts, [2]uint64{author, uint64(p)})
		case 3:
			if n := len(*posts); n > 0 {
				post := (*posts)[n-1-r.IntN(min(n, 20))]
				w.operate(pipeline.Operation{Op: pipeline.OpUnpost, ID: post[0], Other: post[1], Position: p}, w.at)
			}
		case 4, 5:
			w.operate(pipeline.Operation{Op: pipeline.OpRead, ID: user, Position: p, Mark: p, Looked: pipeline.LookedFeed}, w.at)
		default:
			if user != author {
				w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: author, Position: p}, w.at)
			}
		}
	}
	w.cut(p)
}

// "Exactly as with one process": what is remembered of authors is what their holders
// would say, while they post and delete, as nodes lag, and after other nodes came to
// answer. Nearly nobody is asked.
func TestRecentIsExact(t *testing.T) {
	const users = 60
	r := rand.New(rand.NewPCG(4, 4))
	w := newWindows(t, shards)
	var posts [][2]uint64
	for range 20 {
		w.community(r, users, &posts)
	}
	whole := w.node(t, nil)
	c := w.nodes(t, 3, 1)
	holders := w.started[1:]
	reader := c.open()
	ids := make([]uint64, users)
	for i := range ids {
		ids[i] = uint64(i) + 1
	}
	unread, none := uint64(0), 0
	for round := range 150 {
		from := len(w.entries)
		for range 1 + r.IntN(3) {
			w.community(r, users, &posts)
		}
		if round%3 == 0 { // one node lags: what it says is of an earlier moment
			slow := r.IntN(len(holders))
			w.hand(t, from, slices.Delete(slices.Clone(holders), slow, slow+1)...)
			var some query.Unreads
			if err := reader.Far(0, time.Now()).Unread(within(t, 20*time.Second), ids, []string{}, &some, true); err != nil || len(some.Missing) > 0 {
				t.Fatal(err, some.Missing)
			}
			w.hand(t, from, holders[slow], whole)
		} else {
			w.hand(t, from, slices.Concat(holders, []*sinks.Node{whole})...)
		}
		if round%40 == 39 {
			v := *c.View()
			v.Epoch++
			c.view.Store(&v)
		}
		for range 2 {
			var got, want query.Unreads
			some := ids[:1+r.IntN(users)]
			if err := errors.Join(reader.Far(w.at, time.Now().Add(time.Second)).Unread(within(t, 20*time.Second), some, []string{}, &got, true),
				whole.Unread(t.Context(), some, []string{}, &want, true)); err != nil || len(got.Missing) > 0 || got.AsOf != w.at {
				t.Fatal(err, got.Missing, got.AsOf, w.at)
			}
			for i := range some {
				if unread += want.Users[i].Feed; want.Users[i].Feed == 0 {
					none++
				}
				if got.Users[i].Feed != want.Users[i].Feed {
					t.Fatalf("round %d, user %d: %d posts, %d at one process", round, some[i], got.Users[i].Feed, want.Users[i].Feed)
				}
			}
		}
	}
	known, asked := c.figure("tidemark_nodes_recent_total", "result=known"), c.figure("tidemark_nodes_recent_total", "result=asked")
	if unread < 10_000 || none < 100 || known < 10_000 || asked > known/2 || c.figure("tidemark_nodes_recent_bytes") == 0 {
		t.Errorf("%d unread, %d users without; of %.0f authors %.0f were asked for", unread, none, known+asked, asked)
	}
}

// "No event's cost may grow with what is there": who has posted more than is remembered
// is counted by who holds them, and so is who has so many that an answer does not list
// them all.
func TestRecentOfManyPosts(t *testing.T) {
	w := newWindows(t, shards)
	user, p := idIn(0, 0), w.at
	var authors []uint64
	for i := range 40 {
		authors = append(authors, idIn(pipeline.Shard(1+i%(shards-1)), uint64(i)))
		p++
		w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: authors[i], Position: p}, w.at)
	}
	w.cut(p)
	want := uint64(0)
	for i, author := range authors {
		for range 1 + 20*(i%5) {
			p++
			want++
			w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: uint64(p), Position: p}, w.at)
		}
	}
	w.cut(p)
	c := w.nodes(t, 4, 1)
	reader := c.open()
	for range 3 {
		var got query.Unreads
		if err := reader.Far(w.at, time.Now().Add(time.Second)).Unread(within(t, 20*time.Second), []uint64{user}, []string{}, &got, true); err != nil || len(got.Missing) > 0 || got.Users[0].Feed != want {
			t.Fatalf("%+v, %v, want %d", got, err, want)
		}
	}
	if known := c.figure("tidemark_nodes_recent_total", "result=known"); known == 0 {
		t.Error("nothing is remembered")
	}
}

// A node of an earlier version does not say when followees changed, and one that is not
// there any more answers for nobody: what is remembered of others is as good then.
func TestRecentWithoutTheOthers(t *testing.T) {
	w := newWindows(t, shards)
	user, author, p := idIn(0, 0), idIn(1, 0), w.at
	p++
	w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: author, Position: p}, w.at)
	w.cut(p)
	p++
	w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: 9, Position: p}, w.at)
	w.cut(p)
	c := w.nodes(t, 2, 1)
	reader := c.open()
	feed := func() string {
		var got query.Unreads
		if err := reader.Far(0, time.Now()).Unread(within(t, time.Second), []uint64{user}, []string{}, &got, true); err != nil {
			return err.Error()
		}
		return fmt.Sprint(got.Users[0].Feed, got.Missing)
	}
	if got := feed(); got != "1 []" {
		t.Fatal(got)
	}
	c.stop("n1")
	if got := feed(); got != "1 []" {
		t.Errorf("the author's holder is gone: %s", got)
	}
	v := *c.View()
	v.Epoch++
	c.view.Store(&v)
	if got := feed(); got != "0 [0]" {
		t.Errorf("others answer: %s", got)
	}
}
