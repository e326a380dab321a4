package sinks_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// "what is only on disk is `missing`": a row that is answered is right, one that would
// need the disk is missing, never zero; and it is undone.
func TestMemoryOnlyRows(t *testing.T) {
	const shards, many = 4, 2000
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	n, w := newNode(t, store, o), newWorld(shards)
	w.likes(upBetween(1, many)...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = 1 // nothing is loaded
	n = newNode(t, store, o)
	defer n.Close()
	r := rand.New(rand.NewPCG(1, 2))
	left := uint64(0)
	for range 50 {
		// Some are in memory: they were read, or written since. The naive way is to
		// ask for each by itself.
		warm := make([]uint64, 20)
		for i := range warm {
			warm[i] = 1 + r.Uint64N(2*many)
		}
		if _, err := post(n, true, warm...); err != nil {
			t.Fatal(err)
		}
		ids := append(slices.Clone(warm), 0, 0, 0, 0)
		for i := 20; i < len(ids); i++ {
			ids[i] = 1 + r.Uint64N(2*many)
		}
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		var cold []int
		for i, id := range ids {
			if _, err := post(n, false, id); errors.Is(err, query.ErrCold) {
				cold = append(cold, i)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		n.MemoryOnly(true)
		for _, disk := range []bool{false, true} {
			var rows query.Rows
			if err := n.Rows(t.Context(), 0, []pipeline.Column{0}, ids, &rows, disk); err != nil {
				t.Fatal(err)
			}
			slices.Sort(rows.Missing)
			if !slices.Equal(rows.Missing, cold) {
				t.Fatalf("missing are %v of %v, on disk are %v", rows.Missing, ids, cold)
			}
			if rows.AsOf != w.last() || rows.Cost.Cold != 0 {
				t.Fatalf("as of %d, %d read from disk", rows.AsOf, rows.Cost.Cold)
			}
			for i, id := range ids {
				want := int64(0)
				if id < many {
					want = 1
				}
				if !slices.Contains(cold, i) && rows.Values[i] != want {
					t.Fatalf("post %d has %d likes, not %d", id, rows.Values[i], want)
				}
			}
			left += uint64(len(cold))
		}
		n.MemoryOnly(false)
	}
	if left == 0 || n.Stats.Left.Load() != left {
		t.Errorf("%d rows were left, %d are counted", left, n.Stats.Left.Load())
	}
	values, err := post(n, true, upBetween(1, many)...)
	if err != nil || slices.Contains(values, 0) {
		t.Errorf("afterwards: %v", err)
	}
}

// The same for users and lists: a user is missing, a list has no answer here.
func TestMemoryOnlyUsers(t *testing.T) {
	const shards = 2
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	n, w := newNode(t, store, o), newWorld(shards)
	w.likes(7)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = 1
	n = newNode(t, store, o)
	defer n.Close()
	n.MemoryOnly(true)
	ctx := t.Context()
	var (
		users    query.Unreads
		profiles query.Profiles
		counts   query.Counts
		page     query.UserPage
		feed     query.FeedPage
	)
	whole := []int{0, 1}
	if err := n.Unread(ctx, []uint64{7, 8}, nil, &users, true); err != nil || !slices.Equal(users.Missing, whole) {
		t.Errorf("unread: missing %v, %v", users.Missing, err)
	}
	if err := n.Profiles(ctx, []uint64{7, 8}, nil, &profiles, true); err != nil || !slices.Equal(profiles.Missing, whole) {
		t.Errorf("profiles: missing %v, %v", profiles.Missing, err)
	}
	asks := []query.CountAsk{{Followees: []query.Followee{{User: 7}}}, {Followees: []query.Followee{{User: 8}}}}
	if err := n.CountPosts(ctx, asks, &counts, true); err != nil || !slices.Equal(counts.Missing, whole) {
		t.Errorf("counts: missing %v, %v", counts.Missing, err)
	}
	if err := n.Posts(ctx, []uint64{7, 8}, 0, 0, 10, &feed, true); err != nil || !feed.Missing || len(feed.Posts) > 0 {
		t.Errorf("posts: %+v, %v", feed, err)
	}
	_, followees := n.Followees(ctx, 7, 0, 10, &page, true)
	for name, err := range map[string]error{
		"feed":      n.Feed(ctx, 7, 0, 10, &feed, true),
		"following": n.Following(ctx, 7, 0, 10, &page, true),
		"followers": n.Followers(ctx, 7, 0, 10, &page, true),
		"followees": followees,
	} {
		if !errors.Is(err, query.ErrStopped) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.MemoryOnly(false)
	if err := n.Unread(ctx, []uint64{7, 8}, nil, &users, true); err != nil || len(users.Missing) > 0 {
		t.Errorf("afterwards: missing %v, %v", users.Missing, err)
	}
	if err := n.Unread(ctx, []uint64{17}, nil, &users, false); !errors.Is(err, query.ErrCold) {
		t.Errorf("afterwards, without the disk: %v", err)
	}
}
