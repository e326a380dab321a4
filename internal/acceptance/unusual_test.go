package acceptance_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// Unusual sizes that the contract allows, on a default node: what one user or
// one channel has a great deal of must stop nothing and nobody. Answers may say that they
// are old, while there is a backlog; what they tell must be there and right.

const (
	// unusualWithin finds an apply that does not end, or whose cost grows with
	// what is there: it takes seconds.
	unusualWithin = 90 * time.Second
	// othersWithin finds answers to others that wait for such an apply.
	othersWithin = 20 * time.Second
	// stopsWithin is what a service manager waits, usually, before it kills.
	stopsWithin = 30 * time.Second
)

const (
	manyFollowees = 200_000
	manyPosts     = 100_000
	manyNotices   = 90_000

	followsMany   = 7 // a user, with followees from firstFollowee on
	firstFollowee = uint64(1_000_000_000_000_000_000)
	// otherUser follows otherAuthor, who has otherPosts.
	otherUser, otherAuthor, otherPosts = 11, 12, 30
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

// reach returns once answers have a position in.
func reach(nc *nats.Conn, at client.Position) error {
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	_, err := client.New(nc).Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{1}, MinPosition: at, Timeout: time.Minute})
	return err
}

func reached(t *testing.T, nc *nats.Conn, at client.Position) {
	t.Helper()
	if err := reach(nc, at); err != nil {
		t.Fatalf("position %d is not answered: %v", at, err)
	}
}

// followAll has one user follow many, and a few of these post.
func followAll(add func(client.Event)) {
	for i := range uint64(manyFollowees) {
		// In no order: i times something odd takes every value below 2^20 once.
		add(client.Follow(followsMany, firstFollowee+i*700_001%(1<<20)))
	}
	for i := range uint64(manyFollowees / 1000) {
		add(client.Post(firstFollowee+i*700_001%(1<<20), 1000+i))
	}
}

// followsAll compares what that user is answered.
func followsAll(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	c := client.New(nc)
	counts, _, err := c.Counts(ctx, "user", followsMany)
	if err != nil || counts["following"] != manyFollowees {
		t.Errorf("user.following is %d, want %d; %v", counts["following"], manyFollowees, err)
	}
	unread, err := c.Unread(ctx, followsMany)
	if err != nil || len(unread.Missing) > 0 || unread.Users[0].Feed != manyFollowees/1000 {
		t.Errorf("unread %+v, want a feed of %d; %v", unread, manyFollowees/1000, err)
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
	post := uint64(1000 + manyFollowees/1000)
	for p, err := range c.AllFeed(ctx, followsMany) {
		if post--; err != nil || p.Post != post {
			t.Fatalf("the feed lists %+v, want post %d; %v", p, post, err)
		}
	}
	if post != 1000 {
		t.Errorf("the feed ends before post %d", post)
	}
}

// One user follows 220,000 others. Once this took three minutes and rising, all positions
// waited for it, and that user's `unread` took 9 s and `feed` 21 s while other feeds got
// 503.
func TestManyFollowees(t *testing.T) {
	p := e2e.Run(t, "")
	nc := p.Connect()
	pack(t, nc, func(add func(client.Event)) {
		add(client.Follow(otherUser, otherAuthor))
		for i := range uint64(otherPosts) {
			add(client.Post(otherAuthor, 1+i))
		}
	})
	at := store(t, nc, followAll)
	applied := make(chan error, 1)
	go func() { applied <- reach(nc, at) }()
	stop, own := make(chan struct{}), make(chan error, 1)
	go func() { own <- askOwn(nc, stop) }()
	for asking := true; asking; others(t, nc) {
		select {
		case err := <-applied:
			if err != nil {
				t.Errorf("position %d is not answered: %v", at, err)
			}
			asking = false
		default:
		}
	}
	close(stop)
	if err := <-own; err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		followsAll(t, nc)
	}
}

// askOwn asks again and again about the user who follows many.
func askOwn(nc *nats.Conn, stop <-chan struct{}) error {
	for {
		for endpoint, body := range map[string]string{"unread": `{"users":[%d]}`, "feed": `{"user":%d}`, "following": `{"user":%d,"limit":10000}`} {
			if _, err := nc.Request("tidemark."+endpoint, fmt.Appendf(nil, body, followsMany), unusualWithin); err != nil {
				return fmt.Errorf("%s of the user who follows many: %w", endpoint, err)
			}
			select {
			case <-stop:
				return nil
			default:
			}
		}
	}
}

// others asks what has nothing to do with the user who follows many.
func others(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), othersWithin)
	defer cancel()
	c := client.New(nc)
	feed, err := c.Feed(ctx, client.FeedRequest{User: otherUser, Limit: otherPosts})
	if err != nil || len(feed.Posts) != otherPosts {
		t.Fatalf("the feed of somebody else: %d posts of %d; %v", len(feed.Posts), otherPosts, err)
	}
	unread, err := c.Unread(ctx, otherUser)
	if err != nil || len(unread.Missing) > 0 || unread.Users[0].Feed != otherPosts {
		t.Fatalf("unread of somebody else: %+v; %v", unread, err)
	}
}

// SIGTERM ends the process within 30 s, while the same follows wait. What was not applied
// is, after the next start.
func TestStopsBehindABacklog(t *testing.T) {
	p := e2e.Run(t, "")
	nc := p.Connect()
	at := store(t, nc, followAll)
	p.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(stopsWithin); p.Ended() == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("SIGTERM has not ended the process within %v", stopsWithin)
		}
	}
	if state := p.Ended(); !state.Success() {
		t.Fatalf("it ended with %v", state)
	}
	p.Start()
	reached(t, nc, at)
	followsAll(t, nc)
}

// docs/contract.md: "The newest `feed.posts_per_author` *live* posts count: deletions
// make room for older ones". Their author has 100,000.
func TestManyPosts(t *testing.T) {
	const author, follower, postsPerAuthor, deleted = 21, 22, 1000, 100
	p := e2e.Run(t, "")
	nc := p.Connect()
	at := store(t, nc, func(add func(client.Event)) {
		add(client.Read(follower, "feed"))
		add(client.Follow(follower, author))
		for i := range uint64(manyPosts) {
			add(client.Post(author, 1+i))
		}
		for i := range uint64(deleted) {
			add(client.Post(author, manyPosts-2*i).Undo()) // every other one of the newest
		}
	})
	reached(t, nc, at)
	var want []uint64
	for post := uint64(manyPosts); len(want) < postsPerAuthor; post-- {
		if post%2 == 1 || post <= manyPosts-2*deleted {
			want = append(want, post)
		}
	}
	ask := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
		defer cancel()
		c := client.New(nc)
		unread, err := c.Unread(ctx, follower)
		if err != nil || len(unread.Missing) > 0 || unread.Users[0].Feed != postsPerAuthor {
			t.Errorf("%s: unread %+v, want a feed of %d; %v", when, unread, postsPerAuthor, err)
		}
		var got []uint64
		for p, err := range c.AllFeed(ctx, follower) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Post)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the feed lists %d posts, want the %d newest that are not deleted", when, len(got), len(want))
		}
		counts, _, err := c.Counts(ctx, "user", author)
		if err != nil || counts["post"] != manyPosts-deleted {
			t.Errorf("%s: user.post is %d, want %d; %v", when, counts["post"], manyPosts-deleted, err)
		}
	}
	ask("applied")
	p.Stop()
	p.Start()
	reached(t, nc, at)
	ask("after a restart")
}

// 90,000 notices with 19-digit ids in one channel, imported in packs. Once the commons
// stopped, and `unread` answered `?` for every user, also after a restart.
func TestManyNotices(t *testing.T) {
	const reader, newUser, withdrawn = 31, 32, 100
	const channel = "announcements_of_maintenance-region-europe-west-one"
	p := e2e.Run(t, "")
	nc := p.Connect()
	pack(t, nc, func(add func(client.Event)) { add(client.Read(reader, "all")) })
	path := filepath.Join(t.TempDir(), "notices.ndjson")
	writeLines(t, path, func(line func(string)) {
		for i := range uint64(manyNotices) {
			line(`{"type":"notice","channel":"` + channel + `","notice":"` + strconv.FormatUint(firstFollowee+i, 10) + `"}`)
		}
		for i := range uint64(withdrawn) {
			line(`{"type":"notice","channel":"` + channel + `","delete":true,"notice":"` + strconv.FormatUint(firstFollowee+i*7, 10) + `"}`)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), unusualWithin)
	defer cancel()
	if out, err := p.Command(ctx, "import", "--wait", path).CombinedOutput(); err != nil {
		t.Errorf("import --wait of %d notices: %v\n%s", manyNotices, err, out)
	}
	ask := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), othersWithin)
		defer cancel()
		reply, err := client.New(nc).Unread(ctx, reader, newUser)
		if err != nil || len(reply.Missing) > 0 {
			t.Fatalf("%s: unread %+v; %v", when, reply, err)
		}
		for i, want := range []uint64{manyNotices - withdrawn, 0} {
			if got := reply.Users[i].Channels[channel]; got != want {
				t.Errorf("%s: user %d has %d notices unread, want %d", when, reply.Users[i].User, got, want)
			}
		}
	}
	at := lastPosition(t, nc)
	reached(t, nc, at)
	ask("imported")
	p.Stop()
	p.Start()
	reached(t, nc, at)
	ask("after a restart")
	if log, err := os.ReadFile(p.Log()); err != nil || strings.Contains(string(log), "stopped; the others go on") {
		t.Errorf("a shard or the channels have stopped; %v", err)
	}
}

// writeLines writes a file.
func writeLines(t *testing.T, path string, write func(line func(string))) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	write(func(line string) {
		if err == nil {
			_, err = w.WriteString(line + "\n")
		}
	})
	if err := errors.Join(err, w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
