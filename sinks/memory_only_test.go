package sinks_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/query"
)

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
