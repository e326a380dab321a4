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
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// hand gives nodes the windows from one on.
func (w *windows) hand(t testing.TB, from int, nodes ...*sinks.Node) {
	t.Helper()
	w.handSome(t, from, len(w.entries), nodes...)
}

// handSome gives nodes the windows from one on up to another.
func (w *windows) handSome(t testing.TB, from, to int, nodes ...*sinks.Node) {
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

// "Answers are exactly those of one process": what is remembered of
// authors is what their holders would say, while they post and delete, as nodes lag, and
// after other nodes came to answer. Nearly nobody is asked.
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

// "No event's cost grows with what is there": who has posted more than
// is remembered is counted by who holds them, and so is who has so many that an answer
// does not list them all.
func TestRecentOfManyPosts(t *testing.T) {
	w := newWindows(t, shards)
	user, p := idIn(0, 0), w.at
	var authors []uint64
	last := uint64(0)
	for i := range 40 {
		last = idIn(pipeline.Shard(1+i%(shards-1)), last)
		authors = append(authors, last)
		p++
		w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: authors[i], Position: p}, w.at)
	}
	w.cut(p)
	want := uint64(0)
	for i, author := range authors {
		for range 1 + 100*(i%5) {
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
			w.handSome(t, at[i], window, holders[i])
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
		for range 30 {
			from := len(w.entries)
			for range 3 {
				w.community(r, users, &posts)
			}
			for i := range nodes {
				to(i, len(w.entries))
			}
			w.handSome(t, from, len(w.entries), whole)
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
					w.handSome(t, len(w.entries)-1, len(w.entries), whole)
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

// Who follows nobody with many posts is not worse off for others who do.
func TestRecentBesideMany(t *testing.T) {
	w := newWindows(t, shards)
	never, p, last := idIn(0, 0), w.at, uint64(0)
	other := idIn(0, never)
	var authors []uint64
	for i := range 64 {
		last = idIn(1, last)
		authors = append(authors, last)
		for _, u := range []uint64{never, other}[:min(1+i, 2)] { // the other does not follow the first
			p++
			w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: u, Other: last, Position: p}, w.at)
		}
	}
	w.cut(p)
	post := func(author uint64) {
		p += 1 << 10
		w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: uint64(p), Position: p}, w.at)
	}
	for range 3 {
		for _, a := range authors[1:] {
			post(a)
		}
	}
	w.cut(p)
	for range 1000 {
		post(authors[0])
	}
	w.cut(p + 100<<10) // nothing changed for so long that who posted before is told apart
	c := w.nodes(t, 2, 1)
	reader := c.open()
	ask := func(user, want uint64) {
		t.Helper()
		var got query.Unreads
		if err := reader.Far(w.at, time.Now().Add(time.Second)).Unread(within(t, 20*time.Second), []uint64{user}, []string{}, &got, true); err != nil || len(got.Missing) > 0 || got.Users[0].Feed != want {
			t.Fatalf("%+v, %v, want %d", got, err, want)
		}
	}
	const polls = 20
	ask(never, 1000+3*63)
	for range polls {
		ask(other, 3*63)
	}
	if known := c.figure("tidemark_nodes_recent_total", "result=known"); known < (polls-1)*63 {
		t.Errorf("%.0f authors known in %d polls", known, polls)
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
