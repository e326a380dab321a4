package acceptance_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query/client"
)

// likeTwin is what likes come to, in maps.
type likeTwin struct {
	random *rand.Rand
	post   map[uint64]map[uint64]bool    // by post: users
	author map[uint64]map[[2]uint64]bool // by author: (post, user)
}

const (
	likePosts, likeUsers = 40, 60
	likeAuthors          = 5
)

func newLikes(seed uint64) *likeTwin {
	return &likeTwin{rand.New(rand.NewPCG(seed, 1)), map[uint64]map[uint64]bool{}, map[uint64]map[[2]uint64]bool{}}
}

func authorOf(post uint64) uint64 { return 1_000 + post%likeAuthors }

// event is one of a history: a like, one that is taken back whether it was there or
// not, or the deletion of a post's row.
func (l *likeTwin) event() client.Event {
	post, user := 1+l.random.Uint64N(likePosts), 1+l.random.Uint64N(likeUsers)
	author := authorOf(post)
	if l.post[post] == nil {
		l.post[post] = map[uint64]bool{}
	}
	if l.author[author] == nil {
		l.author[author] = map[[2]uint64]bool{}
	}
	like := client.Like(user, post, author)
	switch l.random.IntN(100) {
	case 0:
		clear(l.post[post])
		return client.AdjustDel("post", post)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30:
		delete(l.post[post], user)
		delete(l.author[author], [2]uint64{post, user})
		return like.Undo()
	}
	l.post[post][user] = true
	l.author[author][[2]uint64{post, user}] = true
	return like
}

// publish stores so many events in packs, each one to three times in a row.
func (l *likeTwin) publish(t *testing.T, nc *nats.Conn, events int) client.Position {
	t.Helper()
	return store(t, nc, func(add func(client.Event)) {
		for range events {
			e := l.event()
			for range 1 + l.random.IntN(3) {
				add(e)
			}
		}
	})
}

// check compares all numbers as of a position.
func (l *likeTwin) check(t *testing.T, nc *nats.Conn, at client.Position) {
	t.Helper()
	reached(t, nc, at)
	get := func(counter string, ids []uint64, column string, want func(id uint64) int64) {
		reply, err := client.New(nc).Get(t.Context(), client.GetRequest{Counter: counter, IDs: ids, Columns: []string{column}, MinPosition: at})
		if err != nil || len(reply.Missing) > 0 {
			t.Fatalf("%s: %v, missing %v", counter, err, reply.Missing)
		}
		for i, id := range ids {
			if is := reply.Rows[i].Values[0]; is != want(id) {
				t.Errorf("%s.%s of %d is %d, want %d", counter, column, id, is, want(id))
			}
		}
	}
	var posts, authors []uint64
	for post := uint64(1); post <= likePosts; post++ {
		posts, authors = append(posts, post), append(authors, authorOf(post))
	}
	slices.Sort(authors)
	l.members(t, client.New(nc))
	get("post", posts, "like", func(id uint64) int64 { return int64(len(l.post[id])) })
	get("user", slices.Compact(authors), "liked", func(id uint64) int64 { return int64(len(l.author[id])) })
}

// members compares the members of sets with the twin, in both directions.
func (l *likeTwin) members(t *testing.T, c *client.Client) {
	t.Helper()
	for post := uint64(1); post <= likePosts; post++ {
		want := slices.Sorted(maps.Keys(l.post[post]))
		var is []uint64
		for m, err := range c.AllMembers(t.Context(), "post.like", post) {
			if err != nil {
				t.Fatal(err)
			}
			is = append(is, m.A)
		}
		if !slices.Equal(is, want) {
			t.Errorf("post %d is liked by %d, want %d", post, is, want)
		}
	}
	ids := make([]uint64, likePosts)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for user := uint64(1); user <= likeUsers; user++ {
		reply, err := c.Page(t.Context(), client.PageRequest{IDs: ids, Viewer: user})
		if err != nil || len(reply.Missing) > 0 {
			t.Fatal(err, reply.Missing)
		}
		for i, post := range ids {
			if has, ok := reply.Has(i, "like"); !ok || has != l.post[post][user] {
				t.Errorf("user %d likes post %d: %v %v", user, post, has, ok)
			}
		}
	}
	for author, want := range l.author {
		n := 0
		for m, err := range c.AllMembers(t.Context(), "user.liked", author) {
			if n++; err != nil || !want[[2]uint64{m.A, m.B}] {
				t.Fatalf("user %d is liked in %d: %v", author, m, err)
			}
		}
		if n != len(want) {
			t.Errorf("user %d has %d likes, want %d", author, n, len(want))
		}
	}
}

// docs/contract.md: "what is in the set adds nothing; `delete` takes away what is there and
// nothing else." Every event is sent once to three times, likes are taken back that never were,
// rows are deleted; through kills, with little memory, after all was derived again.
func TestEachLikeCountsOnce(t *testing.T) {
	t.Parallel()
	events := 20_000
	if testing.Short() {
		events = 4_000
	}
	p := e2e.Prepare(t, e2e.Setup{Once: true, Settings: "shards: 4\ncheckpoint: {interval: 300ms}\nrebuild: {keep: 1s}\n"})
	p.Start()
	nc, l := p.Connect(), newLikes(7)
	for range 3 {
		at := l.publish(t, nc, events)
		p.Kill()
		p.Start()
		nc = p.Connect()
		l.check(t, nc, at)
	}
	p.Do("verify", "--all") // exit 1 when anything differs
	doSoon(t, p, "rebuild", "--yes")
	until(t, p, "switched", serves(2))
	l.check(t, nc, l.publish(t, nc, 100))
}

// The three tries of a newcomer: a like that is sent again counts once; like, unlike and
// like is one like; an unlike of what was never liked hides nobody else's.
func TestLikesAsANewcomerTries(t *testing.T) {
	t.Parallel()
	p := e2e.Prepare(t, e2e.Setup{Once: true})
	p.Start()
	nc := p.Connect()
	is := func(post uint64, want int64) {
		t.Helper()
		reply, err := client.New(nc).Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{post}, Columns: []string{"like"}})
		if err != nil || reply.Rows[0].Values[0] != want {
			t.Errorf("post %d has %+v likes, want %d; %v", post, reply, want, err)
		}
	}
	like := func(user, post uint64) client.Event { return client.Like(user, post, 9) }
	at := store(t, nc, func(add func(client.Event)) {
		add(like(7, 41))
		add(like(7, 41))
		add(like(7, 42))
		add(like(7, 42).Undo())
		add(like(7, 42))
		add(like(8, 43))
		add(like(7, 43).Undo())
	})
	reached(t, nc, at)
	for post, want := range map[uint64]int64{41: 1, 42: 1, 43: 1} {
		is(post, want)
	}
}
