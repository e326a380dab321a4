package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	naive "github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

// setsOf are the columns that have a set, or those that keep items.
func setsOf(schema *pipeline.Schema, items bool) (columns []pipeline.Column) {
	for _, column := range schema.Sets() {
		if schema.Columns[column].HasSet() != items {
			columns = append(columns, column)
		}
	}
	return columns
}

// likers puts members into sets, and items into lists.
func likers(r *rand.Rand, w *querytest.World, n uint64) {
	w.Items = map[uint64][]query.InboxItem{}
	for id := uint64(1); id <= n; id++ {
		for i := range r.IntN(12) {
			w.Items[id] = append(w.Items[id], query.InboxItem{
				Position: pipeline.At(uint64(1+i), 0), Column: setsOf(w.Schema, true)[0], Second: r.Int64N(1 << 32), Actor: r.Uint64(), Post: r.Uint64N(3), Read: r.IntN(2) == 0,
			})
		}
	}
	for _, column := range setsOf(w.Schema, false) {
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
	sets := setsOf(schema, false)
	column := sets[q.r.IntN(len(sets))]
	counter, ids := schema.Columns[column].Counter, q.ids(q.r.IntN(400))
	columns := schema.Visible(counter)
	var has, want query.Rows
	for range 1 + q.r.IntN(3) {
		has.Sets = append(has.Sets, pipeline.MemberOf{Column: column, Member: liker(q.r, schema.Columns[column].Set)})
	}
	want.Sets = has.Sets
	if err := q.whole.Rows(context.Background(), counter, columns, ids, &want, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("rows and members", func(ctx context.Context, far query.Reader) error {
		return far.Rows(ctx, counter, columns, ids, &has, true)
	}, func() error {
		for i, id := range ids {
			switch n, missing := len(has.Sets), slices.Contains(has.Missing, i); {
			case missing && !q.justified(id):
				return fmt.Errorf("%d is missing", id)
			case !missing && !q.answered(id):
				return fmt.Errorf("%d is answered, and no node that answers holds it", id)
			case !missing && !slices.Equal(has.Has[i*n:(i+1)*n], want.Has[i*n:(i+1)*n]):
				return fmt.Errorf("%d has of %v: %v", id, has.Sets, has.Has[i*n:(i+1)*n])
			}
		}
		return sameRows(ids, &has, &want, len(columns))
	})

	id, after, limit := q.ids(1)[0], liker(q.r, schema.Columns[column].Set), 1+q.r.IntN(8)
	var page, list query.MemberPage
	if err := q.whole.Members(context.Background(), column, id, after, limit, &list, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("members", func(ctx context.Context, far query.Reader) error {
		err := far.Members(ctx, column, id, after, limit, &page, true)
		if errors.Is(err, query.ErrStopped) && !q.justified(id) {
			q.t.Errorf("members of %d: %v", id, err)
		}
		return err
	}, func() error {
		if !q.answered(id) || !slices.Equal(page.Members, list.Members) || page.More != list.More {
			return fmt.Errorf("id %d: %v %v, not %v %v", id, page.Members, page.More, list.Members, list.More)
		}
		return nil
	})
}

// inbox asks the same of all nodes and of one that has everything.
func (q *asking) inbox() {
	user := q.ids(1)[0]
	ask := query.InboxAsk{
		User: user, Columns: setsOf(q.c.world.Schema, true), Before: pipeline.At(q.r.Uint64N(14), 0), Limit: 1 + q.r.IntN(8), Unread: q.r.IntN(2) == 0,
	}
	var page, list query.InboxPage
	if err := q.whole.Inbox(context.Background(), &ask, &list, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("inbox", func(ctx context.Context, far query.Reader) error {
		err := far.Inbox(ctx, &ask, &page, true)
		if errors.Is(err, query.ErrStopped) && !q.justified(user) {
			q.t.Errorf("inbox of %d: %v", user, err)
		}
		return err
	}, func() error {
		if !q.answered(user) || !slices.Equal(page.Items, list.Items) || page.More != list.More {
			return fmt.Errorf("user %d: %v %v, not %v %v", user, page.Items, page.More, list.Items, list.More)
		}
		return nil
	})
}

// docs/queries.md: "Of each row all is as of one moment: a like that is in the count is in
// `has`, and none else." The same over nodes of which each is somewhere else in the log.
func TestOneReadingOfNodes(t *testing.T) {
	const posts, users, windows = 60, 3, 200
	r := rand.New(rand.NewPCG(4, 9))
	w := newWindows(t, shards)
	w.schema = querytest.SetsSchema(t)
	like, _ := w.schema.Find("post.like")
	c := w.nodes(t, 3, 2)
	reader, err := spread.New(querytest.Connect(t, c.server), spread.Options{Schema: w.schema, Directory: c})
	if err != nil {
		t.Fatal(err)
	}
	for range windows {
		for at := range pipeline.Position(1 + r.IntN(100)) {
			op := []pipeline.Op{pipeline.OpAdd, pipeline.OpAdd, pipeline.OpTake}[r.IntN(3)]
			w.operate(pipeline.Operation{Op: op, Column: int(like), ID: 1 + r.Uint64N(posts), Member: pipeline.Member{A: 1 + r.Uint64N(users)}, By: 1, Position: w.at + at + 1}, w.at)
		}
		w.cut(w.at + 1024)
	}
	ctx := within(t, time.Minute)
	for _, e := range w.entries {
		var writers sync.WaitGroup
		for _, n := range w.started {
			writers.Go(func() {
				if err := n.Hand(ctx, e); err != nil {
					t.Error(err)
				}
			})
		}
		for range 5 {
			if err := naive.OneReading(ctx, reader.Far(0, time.Now()), like, r, posts, users); err != nil {
				t.Fatal(err)
			}
		}
		writers.Wait()
	}
	if err := naive.OneReading(ctx, reader.Far(w.at, time.Now().Add(time.Minute)), like, r, posts, users); err != nil {
		t.Fatal(err)
	}
}
