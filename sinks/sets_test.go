package sinks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// setOf is the only column of those tests with a set, of ids.
const setOf = pipeline.Column(0)

var likeColumn = []pipeline.Column{setOf}

// likedBy asks for rows, and which of them a user likes.
func likedBy(user uint64) query.Rows {
	return query.Rows{Sets: []pipeline.MemberOf{{Column: setOf, Member: pipeline.Member{A: user}}}}
}

// likesStore has posts with likes.
func likesStore(t *testing.T, shards int) *cold.Store {
	t.Helper()
	schema, err := pipeline.NewSchema([]string{"post"}, []pipeline.ColumnSpec{
		{Name: "like", Bits: 16, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := cold.Open(t.TempDir(), schema, cold.Options{Shards: shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// likesOf is a node of which users like posts, in one window; some of it is on disk alone.
func likesOf(t *testing.T, likes map[uint64][]uint64, change ...func(*sinks.Options)) (*sinks.Node, pipeline.Position) {
	t.Helper()
	const shards = 4
	store := likesStore(t, shards)
	w := &pipeline.Window{Header: pipeline.Header{To: 1024, Time: 1}, Columns: []string{"post.like"}, Sections: make([][]byte, shards+1)}
	for post, users := range likes {
		s := &w.Sections[pipeline.ShardOf(post, shards)]
		for _, user := range users {
			*s = pipeline.AppendOperation(*s, w.From, &pipeline.Operation{Op: pipeline.OpAdd, ID: post, Member: pipeline.Member{A: user}, By: 1, Position: 1})
		}
	}
	o := options(shards)
	n := newNode(t, store, o)
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 1, Window: pipeline.AppendWindow(nil, w)}}})
	wait(t, n, w.To)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = 1 // nothing is loaded
	for _, c := range change {
		c(&o)
	}
	n = newNode(t, store, o)
	t.Cleanup(func() { _ = n.Close() })
	return n, w.To
}

// "what is only on disk is `missing`": a row that is answered is right, one that would need the disk
// is missing, never zero. docs/degradation.md: "an id is `missing` also where no node has in memory
// whether the member is in its set".
func TestMemoryOnlyRows(t *testing.T) {
	likes := map[uint64][]uint64{}
	for post := uint64(1); post <= 40; post++ {
		likes[post] = []uint64{7}
	}
	n, at := likesOf(t, likes)
	ctx, ids, left := t.Context(), upTo(60), 0
	has := likedBy(7)
	if err := n.Rows(ctx, 0, likeColumn, []uint64{3, 17, 18, 31}, &has, true); err != nil {
		t.Fatal(err)
	}
	for _, sets := range []bool{false, true} {
		if has = likedBy(7); !sets {
			has = query.Rows{}
		}
		var known []uint64
		for _, id := range ids {
			if n.Rows(ctx, 0, likeColumn, []uint64{id}, &has, false) == nil {
				known = append(known, id)
			}
		}
		if len(known) == 0 || len(known) == len(ids) {
			t.Fatalf("%d are in memory: this test shows nothing", len(known))
		}
		n.MemoryOnly(true)
		for _, disk := range []bool{false, true} {
			if err := n.Rows(ctx, 0, likeColumn, ids, &has, disk); err != nil || has.Cost.Cold > 0 || has.AsOf != at {
				t.Fatal(err, has.Cost, has.AsOf)
			}
			var got []uint64
			for i, id := range ids {
				if slices.Contains(has.Missing, i) {
					continue
				}
				if got = append(got, id); has.Values[i] != int64(len(likes[id])) || sets && has.Has[i] != (len(likes[id]) > 0) {
					t.Errorf("%d has %d likes; sets: %v", id, has.Values[i], sets)
				}
			}
			if !slices.Equal(got, known) {
				t.Errorf("%v are answered, and %v are in memory", got, known)
			}
			left += len(ids) - len(known)
		}
		n.MemoryOnly(false)
	}
	if n.Stats.Left.Load() != uint64(left) {
		t.Errorf("%d were left, want %d", n.Stats.Left.Load(), left)
	}
	n.MemoryOnly(true)
	var page query.MemberPage
	if err := n.Members(ctx, setOf, 3, pipeline.Member{}, 10, &page, true); !errors.Is(err, query.ErrStopped) {
		t.Error(page, err)
	}
	n.MemoryOnly(false)
	if err := n.Rows(ctx, 0, likeColumn, ids, &has, true); err != nil || len(has.Missing) > 0 {
		t.Errorf("afterwards: %v, %v", has.Missing, err)
	}
}

// toggles are windows in which users like posts and take it back, many times over.
func toggles(r *rand.Rand, shards, windows int, posts, users uint64) (entries []pipeline.Entry) {
	ops := []pipeline.Op{pipeline.OpAdd, pipeline.OpAdd, pipeline.OpTake}
	for i := range windows {
		from := pipeline.Position(i) * 1024
		w := &pipeline.Window{
			Header: pipeline.Header{From: from, To: from + 1024, Time: int64(i + 1)}, Columns: []string{"post.like"}, Sections: make([][]byte, shards+1),
		}
		for at := range pipeline.Position(1 + r.IntN(100)) {
			o := pipeline.Operation{
				Op: ops[r.IntN(len(ops))], ID: 1 + r.Uint64N(posts), Member: pipeline.Member{A: 1 + r.Uint64N(users)}, By: 1, Position: from + at + 1,
			}
			s := &w.Sections[pipeline.ShardOf(o.ID, shards)]
			*s = pipeline.AppendOperation(*s, from, &o)
		}
		entries = append(entries, pipeline.Entry{Sequence: uint64(i + 1), Window: pipeline.AppendWindow(nil, w)})
	}
	return entries
}

// docs/queries.md: "Of each row all is as of one moment: a like that is in the count is in
// `has`, and none else." Users like and take it back while others ask which of them do: of posts
// that nobody else likes, the count is the number of members found.
func TestOneReading(t *testing.T) {
	const shards, posts, users, toggled = 4, 60, 3, 150
	for what, change := range map[string]func(*sinks.Options){
		"in memory": func(*sinks.Options) {},
		"on disk":   func(o *sinks.Options) { o.MemoryBytes, o.CheckpointEvery, o.DirtyRowsMax = 1, time.Millisecond, 10 },
	} {
		t.Run(what, func(t *testing.T) {
			o := options(shards)
			change(&o)
			store := likesStore(t, shards)
			n := newNode(t, store, o)
			t.Cleanup(func() { _ = n.Close() })
			ctx, stop := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			for i := range uint64(2) {
				readers.Go(func() {
					r := rand.New(rand.NewPCG(i, 9))
					for ctx.Err() == nil {
						if err := twin.OneReading(context.Background(), n, setOf, r, posts, users); err != nil {
							t.Error(err)
						}
					}
				})
			}
			follow(t, n, &slice{toggles(rand.New(rand.NewPCG(2, 9)), shards, toggled, posts, users)})
			wait(t, n, toggled*1024)
			stop()
			readers.Wait()
			if err := twin.OneReading(t.Context(), n, setOf, rand.New(rand.NewPCG(3, 9)), posts, users); err != nil {
				t.Error(err)
			}
		})
	}
}
