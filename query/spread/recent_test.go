package spread_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// hand gives nodes the windows from one on up to another.
func (w *windows) hand(t testing.TB, from, to int, nodes ...*sinks.Node) {
	t.Helper()
	for _, n := range nodes {
		for _, e := range w.entries[from:max(from, to)] {
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

// "Answers are exactly those of one process" with replicas, each at
// another window: an answer has all that was posted up to its as_of, and nothing that was
// posted after the newest window. Posts come in bursts that no page has room for, and few
// or many are listed of an author.
func TestRecentOfNodesApart(t *testing.T) {
	const users, nodes = 60, 4
	for seed, limits := range []shard.Limits{
		{PostsMax: 1000, PostsKept: 4000, Retention: 30 * 86400, Inactive: 30 * 86400},
		{PostsMax: 6, PostsKept: 12, Retention: 40, Inactive: 30 * 86400}, // here nobody is apart: posts go by themselves
	} {
		r := rand.New(rand.NewPCG(uint64(seed), 77))
		w := newWindows(t, shards)
		var posts [][2]uint64
		for range 20 {
			w.community(r, users, &posts)
		}
		whole := w.nodeWith(t, nil, limits)
		c := w.nodes(t, 0, 0)
		var holders []*sinks.Node
		var at []int // windows handed
		for i := range nodes {
			holds := func(s pipeline.Shard) bool { return int(s)%nodes == i || int(s+1)%nodes == i }
			var held []pipeline.Shard
			for s := range pipeline.Shard(w.shards) {
				if holds(s) {
					held = append(held, s)
				}
			}
			n := w.nodeWith(t, held, limits)
			name := string(rune('a' + i))
			c.serve(name, n)
			c.list(name, holds)
			holders, at = append(holders, n), append(at, len(w.entries))
		}
		to := func(i, window int) {
			w.hand(t, at[i], window, holders[i])
			at[i] = max(at[i], window)
		}
		reader := c.open()
		ids := make([]uint64, users)
		for i := range ids {
			ids[i] = uint64(i) + 1
		}
		ask := func(of query.Reader) *query.Unreads {
			out := new(query.Unreads)
			if err := of.Unread(within(t, 20*time.Second), ids, []string{}, out, true); err != nil || len(out.Missing) > 0 {
				t.Fatal(err, out.Missing)
			}
			return out
		}
		some, unread := func() *query.Unreads { return ask(reader.Far(0, time.Now())) }, uint64(0)
		for round := range 30 {
			if round%10 == 9 { // others answer: what is remembered is not theirs
				v := *c.View()
				v.Epoch++
				c.view.Store(&v)
			}
			from := len(w.entries)
			for range 3 {
				w.community(r, users, &posts)
			}
			for i := range nodes {
				to(i, len(w.entries))
			}
			w.hand(t, from, len(w.entries), whole)
			if limits.PostsMax == 1000 {
				of := map[pipeline.Position]*query.Unreads{w.at: ask(whole)}
				for range 6 {
					p := w.at
					for range 5 + r.IntN(40) {
						p += pipeline.Position(1 + r.Uint64N(1<<14))
						author := 1 + min(r.Uint64N(users), r.Uint64N(users))
						w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: uint64(p), Position: p}, w.at)
						posts = append(posts, [2]uint64{author, uint64(p)})
					}
					w.cut(p)
					w.hand(t, len(w.entries)-1, len(w.entries), whole)
					of[w.at] = ask(whole)
				}
				for range 12 {
					i := r.IntN(nodes)
					to(i, at[i]+r.IntN(len(w.entries)-at[i]+1))
					for range 2 {
						got := some()
						least, most := of[got.AsOf], of[w.at]
						if least == nil {
							t.Fatalf("as of %d: no window ends there", got.AsOf)
						}
						for u := range ids {
							if n := got.Users[u].Feed; n < least.Users[u].Feed || n > most.Users[u].Feed {
								t.Fatalf("user %d: %d posts as of %d; one process has %d there, %d at the end", ids[u], n, got.AsOf, least.Users[u].Feed, most.Users[u].Feed)
							}
						}
					}
				}
				for i := range nodes {
					to(i, len(w.entries))
				}
			}
			got, want := ask(reader.Far(w.at, time.Now().Add(time.Second))), ask(whole)
			for u := range ids {
				unread += want.Users[u].Feed
				if got.Users[u].Feed != want.Users[u].Feed || got.AsOf != w.at {
					t.Fatalf("user %d: %d posts as of %d, want %d as of %d", ids[u], got.Users[u].Feed, got.AsOf, want.Users[u].Feed, w.at)
				}
			}
		}
		if known := c.figure("tidemark_nodes_recent_total", "result=known"); known < 500 || unread < 10_000 {
			t.Errorf("%d unread, %.0f authors known", unread, known)
		}
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
