package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/query/wire"
)

// likers puts members into sets.
func likers(r *rand.Rand, w *querytest.World, n uint64) {
	for _, column := range w.Schema.Sets() {
		for id := uint64(1); id <= n; id++ {
			for range r.IntN(12) {
				w.Sets.Add(column, id, liker(r, w.Schema.Columns[column].Set))
			}
		}
	}
}

// liker is one of few, so that members are in several sets.
func liker(r *rand.Rand, set pipeline.SetSpec) pipeline.Member {
	m := pipeline.Member{A: 1 + r.Uint64N(6)}
	switch set.Members {
	case pipeline.MembersPairs:
		m.B = 1 + r.Uint64N(4)
	case pipeline.MembersTokens:
		m = pipeline.TokenMember(fmt.Appendf(nil, "session-%d", m.A))
	}
	return m
}

// sets asks the same of all nodes and of one that has everything.
func (q *asking) sets() {
	schema := q.c.world.Schema
	column := schema.Sets()[q.r.IntN(len(schema.Sets()))]
	m, ids := liker(q.r, schema.Columns[column].Set), q.ids(q.r.IntN(400))
	var has, wantHas query.Has
	if err := q.whole.Has(context.Background(), column, ids, m, &wantHas, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("has", func(ctx context.Context, far query.Reader) error { return far.Has(ctx, column, ids, m, &has, true) }, func() error {
		for i, id := range ids {
			switch missing := slices.Contains(has.Missing, i); {
			case missing && !q.justifiedSets(id):
				return fmt.Errorf("%d is missing", id)
			case !missing && !q.knows(id):
				return fmt.Errorf("%d is answered, and no node that knows sets holds it", id)
			case !missing && has.Has[i] != wantHas.Has[i]:
				return fmt.Errorf("%d has %v: %v", id, m, has.Has[i])
			}
		}
		return nil
	})

	id, after, limit := q.ids(1)[0], liker(q.r, schema.Columns[column].Set), 1+q.r.IntN(8)
	var page, want query.MemberPage
	if err := q.whole.Members(context.Background(), column, id, after, limit, &want, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("members", func(ctx context.Context, far query.Reader) error {
		err := far.Members(ctx, column, id, after, limit, &page, true)
		if errors.Is(err, query.ErrStopped) && !q.justifiedSets(id) {
			q.t.Errorf("members of %d: %v", id, err)
		}
		return err
	}, func() error {
		if !q.knows(id) || !slices.Equal(page.Members, want.Members) || page.More != want.More {
			return fmt.Errorf("id %d: %v %v, not %v %v", id, page.Members, page.More, want.Members, want.More)
		}
		return nil
	})
}

func (q *asking) justifiedSets(id uint64) bool { return !q.knows(id) || q.justified(id) }

// docs/queries.md: "A node of an earlier version does not know sets: what only such nodes
// hold is missing."
func TestSetsOfOlderNodes(t *testing.T) {
	w := querytest.NewWorld(querytest.SetsSchema(t), shards, now)
	like, ok := w.Schema.Find("post.like")
	if !ok {
		t.Fatal("no post.like")
	}
	theirs, ours := idIn(0, 0), idIn(1, 0)
	for _, id := range []uint64{theirs, ours} {
		w.Sets.Add(like, id, pipeline.Member{A: 7})
	}
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", even))
	c.meddle("a", "a-real", version1(nil))
	c.list("a", even)
	c.node("b", func(s pipeline.Shard) bool { return !even(s) })
	c.open()
	ctx, far := within(t, 20*time.Second), c.far(0, 0)
	var has query.Has
	if err := far.Has(ctx, like, []uint64{theirs, ours, theirs}, pipeline.Member{A: 7}, &has, true); err != nil {
		t.Fatal(err)
	}
	slices.Sort(has.Missing)
	if !slices.Equal(has.Missing, []int{0, 2}) || !has.Has[1] {
		t.Errorf("%+v", has)
	}
	var page query.MemberPage
	if err := far.Members(ctx, like, theirs, pipeline.Member{}, 10, &page, true); !errors.Is(err, query.ErrStopped) {
		t.Errorf("%v %v", page, err)
	}
	if err := far.Members(ctx, like, ours, pipeline.Member{}, 10, &page, true); err != nil || len(page.Members) != 1 {
		t.Errorf("%v %v", page, err)
	}
}

// A column that has no set, or two of them, is no question about a set.
func TestSetsRefuse(t *testing.T) {
	w := querytest.NewWorld(querytest.SetsSchema(t), shards, now)
	c := newCluster(t, w, &server.Options{})
	c.node("a", func(pipeline.Shard) bool { return true })
	nc := querytest.Connect(t, c.server)
	for words, names := range map[string]wire.Names{
		"has no set":    {Counter: "post", Columns: []string{"comment"}},
		"2 columns":     {Counter: "post", Columns: []string{"like", "comment"}},
		"has no column": {Counter: "post", Columns: []string{"smile"}},
	} {
		packed := wire.AppendNames(nil, names)
		for kind, body := range map[wire.Kind][]byte{
			wire.Has:     (&wire.HasAsk{Names: packed, Member: pipeline.Member{A: 7}, IDs: []uint64{1}}).Append(nil),
			wire.Members: (&wire.MembersAsk{Names: packed, ID: 1, Limit: 10}).Append(nil),
		} {
			ask := wire.AppendAsk(wire.BeginBatch(nil, wire.Fingerprint(w.Schema, shards), wire.Oldest), &wire.Ask{ID: 1, Kind: kind, Within: 5 * time.Second, Body: body})
			m, err := nc.Request(spread.Subject("a", 0), wire.End(ask), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			_, replies, err := wire.DecodeReplies(m.Data, nil)
			if err != nil || len(replies) != 1 || replies[0].Status != wire.Refused || !strings.Contains(string(replies[0].Body), words) {
				t.Errorf("%s of %v: %+v %v", kind, names, replies, err)
			}
		}
	}
}

// A process of several that holds all of what is asked answers by itself, one that does
// not says so at once.
func TestSetsHere(t *testing.T) {
	w := querytest.NewWorld(querytest.SetsSchema(t), shards, now)
	like, _ := w.Schema.Find("post.like")
	c := newCluster(t, w, &server.Options{})
	c.node("a", even)
	own := querytest.NewHolder(w, "own", func(s pipeline.Shard) bool { return !even(s) })
	c.own = own
	c.open()
	here, there := idIn(1, 0), idIn(0, 0)
	w.Sets.Add(like, here, pipeline.Member{A: 7})
	w.Sets.Add(like, there, pipeline.Member{A: 7})
	ctx := within(t, 20*time.Second)
	var has query.Has
	if err := c.reader.Has(ctx, like, []uint64{here}, pipeline.Member{A: 7}, &has, false); err != nil || !has.Has[0] {
		t.Errorf("%+v %v", has, err)
	}
	if err := c.reader.Has(ctx, like, []uint64{here, there}, pipeline.Member{A: 7}, &has, false); !errors.Is(err, query.ErrFar) {
		t.Errorf("%+v %v", has, err)
	}
	var page query.MemberPage
	if err := c.reader.Members(ctx, like, here, pipeline.Member{}, 10, &page, false); err != nil || len(page.Members) != 1 {
		t.Errorf("%+v %v", page, err)
	}
	if err := c.reader.Members(ctx, like, there, pipeline.Member{}, 10, &page, false); !errors.Is(err, query.ErrFar) {
		t.Errorf("%+v %v", page, err)
	}
	// Both together, and from the disk of this process.
	own.Cool(here)
	if err := c.far(0, 0).Has(ctx, like, []uint64{there, here}, pipeline.Member{A: 7}, &has, true); err != nil || !has.Has[0] || !has.Has[1] || has.Cost.Cold != 1 {
		t.Errorf("%+v %v", has, err)
	}
}
