package demo

import (
	"math/rand/v2"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	seed = 1729

	// evergreens are the posts that stay popular: 1 to this, by the users of
	// the same numbers, and as many users as there are.
	evergreens = 20
	// followsEach is how many everybody follows at first.
	followsEach = 3
	// memory is how many of the newest posts are still talked about.
	memory = 4096
	// undoable is how many likes and follows may still be taken back.
	undoable = 256

	channelNotices = "system"
	channelDot     = "games"
)

// firstFree is a post number that no earlier demo on the same log has used:
// messages up to the last one hold no more than linesMax posts each. That
// holds from start to start, as each begins behind the one before by as much.
func firstFree(last uint64) uint64 { return evergreens + 1 + linesMax*last }

// town is the community as a plain value: it knows what may happen next, and
// no clock and no network.
type town struct {
	rng    *rand.Rand
	users  int
	fame   *rand.Zipf // of users, from 0
	hits   *rand.Zipf // of the evergreen posts, from 0
	news   *rand.Zipf // of recent posts, the newest first, from 0
	new    bool       // nobody has been here before
	free   uint64     // the next post's or notice's number
	posts  ring[post]
	likes  ring[like]
	follow ring[edge]
	dot    uint64 // the notice that lights the dot, 0 for none
}

type (
	post struct{ id, author uint64 }
	like struct {
		actor uint64
		post  post
	}
	edge struct{ actor, target uint64 }
)

func newTown(users int, free uint64, isNew bool) *town {
	rng := rand.New(rand.NewPCG(seed, free))
	return &town{
		rng: rng, users: users, new: isNew, free: free,
		fame:   rand.NewZipf(rng, 1.2, 8, uint64(users-1)),
		hits:   rand.NewZipf(rng, 1.3, 2, evergreens-1),
		news:   rand.NewZipf(rng, 1.1, 16, memory-1),
		posts:  ring[post]{max: memory},
		likes:  ring[like]{max: undoable},
		follow: ring[edge]{max: undoable},
	}
}

// opening is what comes at once: the posts that stay popular and a follow
// graph, where there are none yet, and a notice on each channel.
func (t *town) opening() (events []client.Event) {
	if t.new {
		for i := range uint64(evergreens) {
			p := t.evergreen(i)
			events = append(events, client.Post(p.author, p.id))
		}
		for u := range uint64(t.users) {
			for range followsEach {
				events = append(events, t.newFollow(u+1))
			}
		}
	}
	return append(events, t.notice(), t.toggleDot())
}

// next is what happens next.
func (t *town) next() client.Event {
	actor := t.anybody()
	switch n := t.rng.IntN(2000); { // out of 2,000, ten seconds at the default rate
	case n < 1:
		return t.notice()
	case n < 2:
		return t.toggleDot()
	case n < 200:
		return t.newPost(actor)
	case n < 330:
		p := t.somePost()
		return client.Repost(actor, t.number(), p.id, p.author)
	case n < 570:
		p := t.somePost()
		return client.Comment(actor, p.id, p.author)
	case n < 690:
		return client.Mention(actor, t.somebody(actor))
	case n < 790:
		return client.Message(actor, t.somebody(actor))
	case n < 910:
		return t.read()
	case n < 980:
		return t.newFollow(actor)
	case n < 1000:
		if e, ok := t.follow.take(t.rng); ok {
			return client.Follow(e.actor, e.target).Undo()
		}
	case n < 1040:
		if l, ok := t.likes.take(t.rng); ok {
			return client.Like(l.actor, l.post.id, l.post.author).Undo()
		}
	}
	l := like{actor, t.somePost()}
	t.likes.add(l)
	return client.Like(l.actor, l.post.id, l.post.author)
}

func (t *town) anybody() uint64 { return 1 + t.rng.Uint64N(uint64(t.users)) }

// somebody is a known user, other than actor.
func (t *town) somebody(actor uint64) uint64 {
	if u := 1 + t.fame.Uint64(); u != actor {
		return u
	}
	return actor%uint64(t.users) + 1
}

func (t *town) number() uint64 {
	t.free++
	return t.free - 1
}

func (t *town) evergreen(i uint64) post { return post{1 + i, 1 + i%uint64(t.users)} }

// somePost is as often one that stays popular as a recent one.
func (t *town) somePost() post {
	if p, ok := t.posts.newest(t.news.Uint64()); ok && t.rng.IntN(2) == 0 {
		return p
	}
	return t.evergreen(t.hits.Uint64())
}

func (t *town) newPost(author uint64) client.Event {
	if t.rng.IntN(2) == 0 {
		author = 1 + t.fame.Uint64() // authors with readers write more
	}
	p := post{t.number(), author}
	t.posts.add(p)
	return client.Post(p.author, p.id)
}

func (t *town) newFollow(actor uint64) client.Event {
	e := edge{actor, t.somebody(actor)}
	t.follow.add(e)
	return client.Follow(e.actor, e.target)
}

func (t *town) notice() client.Event { return client.Notice(channelNotices, t.number()) }

// toggleDot lights the dot, or withdraws what lit it.
func (t *town) toggleDot() client.Event {
	if t.dot != 0 {
		e := client.Notice(channelDot, t.dot).Undo()
		t.dot = 0
		return e
	}
	t.dot = t.number()
	return client.Notice(channelDot, t.dot)
}

var pages = [][]string{
	{"feed"},
	{"feed"},
	{"comment"},
	{"like"},
	{"mention", "repost"},
	{"message"},
	{"follower"},
	{"channel:" + channelNotices},
	{"channel:" + channelDot},
	{"all"},
}

func (t *town) read() client.Event {
	return client.Read(t.anybody(), pages[t.rng.IntN(len(pages))]...)
}

// ring keeps the newest max of what is added.
type ring[T any] struct {
	max   int
	items []T
	next  int // where the next one goes, once it is full
}

func (r *ring[T]) add(item T) {
	if len(r.items) < r.max {
		r.items = append(r.items, item)
		return
	}
	r.items[r.next] = item
	r.next = (r.next + 1) % r.max
}

// newest is the i-th from the newest, from 0.
func (r *ring[T]) newest(i uint64) (item T, ok bool) {
	n := len(r.items)
	if i >= uint64(n) {
		return item, false
	}
	return r.items[(r.next+2*n-1-int(i))%n], true
}

// take removes one at random.
func (r *ring[T]) take(rng *rand.Rand) (item T, ok bool) {
	n := len(r.items)
	if n == 0 {
		return item, false
	}
	i := rng.IntN(n)
	item = r.items[i]
	r.items[i] = r.items[n-1]
	r.items, r.next = r.items[:n-1], 0
	return item, true
}
