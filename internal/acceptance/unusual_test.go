package acceptance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	// unusualWithin finds an apply that does not end, or whose cost grows with
	// what is there: it takes seconds. It finds answers to others that wait for it, too.
	unusualWithin = 3 * time.Minute

	manyFollowees, followeesPosted = 200_000, 200
	manyPosts, postsPerAuthor      = 100_000, 1000
	manyNotices, withdrawn         = 90_000, 100
	bigID                          = uint64(1_000_000_000_000_000_000)
	noticesOf                      = "announcements_of_maintenance-region-europe-west-one"

	// Users: one who follows bigID and more, one with many posts and one who follows that one, one
	// who reads notices, and one who follows an author with a few posts.
	followsMany, postsMany, readsPostsMany, readsAll, followsOther, otherAuthor, otherPosts = 7, 21, 22, 31, 11, 12, 30
)

// store publishes events in full packs and does not wait for answers.
func store(t *testing.T, nc *nats.Conn, write func(add func(client.Event))) client.Position {
	t.Helper()
	p, err := client.New(nc).NewPacker(client.PackOptions{LinesMax: pipeline.PackMax, Delay: -1})
	if err != nil {
		t.Fatal(err)
	}
	write(func(e client.Event) {
		if err == nil {
			err = p.Add(e)
		}
	})
	if err := errors.Join(err, p.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	return p.Position()
}

// reached returns once answers have a position in.
func reached(t *testing.T, nc *nats.Conn, at client.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	if _, err := client.New(nc).Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{1}, MinPosition: at, Timeout: time.Minute}); err != nil {
		t.Fatalf("position %d is not answered: %v", at, err)
	}
}

// unusual is what a default node must take: a user who follows 200,000, an author with 100,000
// posts, of which 100 are deleted, and 90,000 notices with 19-digit ids in one channel, of
// which 100 are withdrawn.
func unusual(add func(client.Event)) {
	for i := range uint64(manyFollowees) {
		// In no order: i times something odd takes every value below 2^20 once.
		add(client.Follow(followsMany, bigID+i*700_001%(1<<20)))
	}
	for i := range uint64(followeesPosted) {
		add(client.Post(bigID+i*700_001%(1<<20), 2_000_000+i))
	}
	add(client.Read(readsPostsMany, "feed"))
	add(client.Follow(readsPostsMany, postsMany))
	for i := range uint64(manyPosts) {
		add(client.Post(postsMany, 1_000_001+i))
	}
	for i := range uint64(withdrawn) {
		add(client.Post(postsMany, 1_000_000+manyPosts-2*i).Undo()) // every other one of the newest
	}
	for i := range uint64(manyNotices) {
		add(client.Notice(noticesOf, bigID+i))
	}
	for i := range uint64(withdrawn) {
		add(client.Notice(noticesOf, bigID+i*7).Undo())
	}
}

// Unusual sizes that the contract allows, on a default node: what one user or one channel has a
// great deal of stops nothing and nobody. Others are answered meanwhile; SIGTERM ends the
// process amid it in order; and after a start all of it is there and right. Each of these once
// took minutes, or stopped a shard.
func TestUnusualSizes(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	p := e2e.Run(t, "")
	nc := p.Connect()
	reached(t, nc, store(t, nc, func(add func(client.Event)) {
		add(client.Read(readsAll, "all"))
		add(client.Follow(followsOther, otherAuthor))
		for i := range uint64(otherPosts) {
			add(client.Post(otherAuthor, 1+i))
		}
	}))
	at := store(t, nc, unusual)
	for range 3 {
		others(t, nc)
	}
	p.Signal(syscall.SIGTERM)
	e2e.Until(t, "SIGTERM ends the process", func() bool { return p.Ended() != nil })
	if state := p.Ended(); !state.Success() {
		t.Fatalf("it ended with %v", state)
	}
	p.Start()
	reached(t, nc, at)
	others(t, nc)
	answers(t, nc)
	p.Kill()
	p.Start()
	reached(t, nc, at)
	answers(t, nc)
	if strings.Contains(logOf(t, p), "stopped; the others go on") {
		t.Error("a shard or the channels have stopped")
	}
}

// others asks what has nothing to do with unusual sizes.
func others(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	c := client.New(nc)
	feed, err := c.Feed(ctx, client.FeedRequest{User: followsOther, Limit: otherPosts})
	if err != nil || len(feed.Posts) != otherPosts {
		t.Fatalf("the feed of somebody else: %d posts of %d; %v", len(feed.Posts), otherPosts, err)
	}
	unread, err := c.Unread(ctx, followsOther)
	if err != nil || len(unread.Missing) > 0 || unread.Users[0].Feed != otherPosts {
		t.Fatalf("unread of somebody else: %+v; %v", unread, err)
	}
}

// answers compares what is answered of unusual sizes.
func answers(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	c := client.New(nc)
	counts, _, err := c.Counts(ctx, "user", followsMany)
	if err != nil || counts["following"] != manyFollowees {
		t.Errorf("user.following is %d, want %d; %v", counts["following"], manyFollowees, err)
	}
	if counts, _, err = c.Counts(ctx, "user", postsMany); err != nil || counts["post"] != manyPosts-withdrawn {
		t.Errorf("user.post is %d, want %d; %v", counts["post"], manyPosts-withdrawn, err)
	}
	unread, err := c.Unread(ctx, followsMany, readsPostsMany, readsAll)
	if err != nil || len(unread.Missing) > 0 {
		t.Fatalf("unread %+v, %v", unread, err)
	}
	u := unread.Users
	if u[0].Feed != followeesPosted || u[1].Feed != postsPerAuthor || u[2].Channels[noticesOf] != manyNotices-withdrawn {
		t.Errorf("unread %+v, want feeds of %d and %d, and %d notices", u, followeesPosted, postsPerAuthor, manyNotices-withdrawn)
	}
	listed, last := 0, uint64(0)
	for user, err := range c.AllFollowing(ctx, followsMany) {
		if err != nil || user <= last {
			t.Fatalf("following lists %d after %d; %v", user, last, err)
		}
		listed, last = listed+1, user
	}
	if listed != manyFollowees {
		t.Errorf("following lists %d, want %d", listed, manyFollowees)
	}
	// docs/contract.md: "The newest `feed.posts_per_author` *live* posts count: deletions
	// make room for older ones".
	var want, got []uint64
	for post := uint64(1_000_000 + manyPosts); len(want) < postsPerAuthor; post-- {
		if post%2 == 1 || post <= 1_000_000+manyPosts-2*withdrawn {
			want = append(want, post)
		}
	}
	for p, err := range c.AllFeed(ctx, readsPostsMany) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Post)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the feed lists %d posts, want the %d newest that are not deleted", len(got), len(want))
	}
}
