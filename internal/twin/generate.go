package twin

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// people are the ids that a sequence is about.
type people struct{ users, posts, pages []uint64 }

// sequence is a story by chance: messages about a few users and posts whose
// ids no other sequence has.
type sequence struct {
	people
	messages []message
}

// weights of the kinds of events in one sequence: some are all about follows,
// others about posts or reads.
type weights [kindsCount]int

const (
	kindPost = iota
	kindComment
	kindLike
	kindMention
	kindMessage
	kindFollow
	kindNotice
	kindRead
	kindAdjust
	kindView
	kindJunk
	kindsCount
)

var moods = []weights{
	{20, 5, 5, 5, 5, 20, 8, 20, 4, 4, 4},
	{40, 0, 0, 0, 0, 25, 0, 15, 0, 0, 0}, // a feed
	{4, 0, 0, 0, 0, 60, 0, 10, 10, 0, 1}, // a graph
	{5, 0, 0, 0, 0, 0, 40, 40, 0, 0, 0},  // channels
	{2, 12, 12, 12, 12, 8, 0, 20, 12, 8, 0},
}

// paces are steps of log time, ms: all of a sequence come from one list.
var paces = [][]int64{
	{0, 0, 1, 300, -200, 1_000},
	{0, 1_000, 60_000, -30_000, 600_000},
	{0, 0, 20 * 60_000, 59 * 60_000, 3600_000, 3601_000, -3600_000},
	{0, 10_000, 2 * 3600_000, 3 * 3600_000, 26 * 3600_000},
	{0, 0, 0, 86_400_000, 12 * 86_400_000, 31 * 86_400_000, -60_000},
}

type generator struct {
	*rand.Rand
	people
	weights
	pace    []int64
	deletes float64
	once    bool // there are sets
	items   bool // unread columns keep items
	last    []event
}

// newGenerator draws the users of the sequence of a number, and how they are.
func newGenerator(r *rand.Rand, number int) generator {
	base := uint64(number+1) << 12
	if number%5 == 0 {
		base += 1 << 60 // "JavaScript loses precision past 2^53"
	}
	g := generator{Rand: r, weights: moods[r.IntN(len(moods))], pace: paces[r.IntN(len(paces))], deletes: []float64{0.1, 0.3, 0.5}[r.IntN(3)]}
	for i := range uint64(3 + r.IntN(5)) {
		g.users = append(g.users, base+1+i)
	}
	for i := range uint64(3 + r.IntN(12)) {
		g.posts = append(g.posts, base+100+i)
	}
	g.pages = []uint64{base + 200, base + 201}
	return g
}

// generate makes the sequence of a number, for a world of some rules.
func generate(r *rand.Rand, number int, of rulesOfAges) sequence {
	g := newGenerator(r, number)
	g.once, g.items = of.once, of.items > 0
	return g.sequence()
}

func (g *generator) sequence() sequence {
	s := sequence{people: g.people}
	for left := 60 + g.IntN(91); left > 0; {
		m := message{step: g.pace[g.IntN(len(g.pace))]}
		lines := 1
		if g.IntN(8) == 0 {
			lines = 2 + g.IntN(25)
		}
		for range lines {
			m.events = append(m.events, g.event())
		}
		s.messages = append(s.messages, m)
		left -= lines
	}
	return s
}

// finish withdraws what everyone would see of the sequence, so that the next
// one is the same alone as after this one.
func (s *sequence) finish() (messages []message) {
	type named struct {
		channel string
		notice  uint64
	}
	done := map[named]bool{}
	for _, m := range s.messages {
		for _, e := range m.events {
			if n := (named{e.channel, e.notice}); e.kind == "notice" && !e.delete && !done[n] {
				done[n] = true
				messages = append(messages, message{events: []event{{kind: "notice", channel: e.channel, notice: e.notice, delete: true}}})
			}
		}
	}
	return messages
}

func (g *generator) kind() int {
	total := 0
	for _, w := range g.weights {
		total += w
	}
	at := g.IntN(total)
	for kind, w := range g.weights {
		if at -= w; at < 0 {
			return kind
		}
	}
	panic("no kind")
}

func one[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

func (g *generator) user() uint64 { return one(g, g.users) }

// event is one by chance. Where there are lists it is now and then one of the last few once
// more, or undone.
func (g *generator) event() event {
	if !g.items {
		return g.fresh()
	}
	e, n := g.fresh(), len(g.last)
	switch {
	case n > 0 && g.last[n-1].seen != nil && g.IntN(2) == 0:
		e = g.last[n-1]
	case n > 0 && g.IntN(6) == 0:
		e = g.last[max(0, n-1-g.IntN(8))]
		e.delete = e.kind != "read" && e.kind != "adjust" && e.junk == "" && g.Float64() < g.deletes
	}
	g.last = append(g.last, e)
	return e
}

func (g *generator) fresh() event {
	e := event{actor: g.user(), delete: g.Float64() < g.deletes}
	switch kind := g.kind(); kind {
	case kindPost:
		e.kind, e.post = "post", one(g, g.posts)
		if g.IntN(3) == 0 {
			e.repostOf, e.author = one(g, g.posts), g.user()
		}
	case kindComment, kindLike:
		e.kind, e.post, e.author = map[int]string{kindComment: "comment", kindLike: "like"}[kind], one(g, g.posts), g.user()
		g.withIdentity(&e)
	case kindMention:
		e.kind, e.target = "mention", g.user()
		if g.IntN(2) == 0 {
			e.post = one(g, g.posts)
		}
	case kindMessage:
		e.kind, e.target = "message", g.user()
		g.withIdentity(&e)
	case kindFollow:
		e.kind, e.target = "follow", g.user() // also of oneself
	case kindNotice:
		e.kind, e.channel, e.notice = "notice", one(g, channelNames), g.posts[0]+uint64(g.IntN(5))
	case kindRead:
		return g.read()
	case kindAdjust:
		return g.adjust()
	case kindView:
		e.kind, e.page, e.by = "view", one(g, g.pages), int64(g.IntN(5))
		g.visit(&e)
	case kindJunk:
		e.junk = one(g, []string{
			"{", "7", `{"type":"like"}`, `{"type":"nonsense","actor":1}`, `{"actor":1}`,
			fmt.Sprintf(`{"type":"like","actor":%d,"post":0,"author":%d}`, g.user(), g.user()),
			fmt.Sprintf(`{"type":"read","actor":%d,"what":["nothing"]}`, g.user()),
			fmt.Sprintf(`{"type":"read","actor":%d,"what":["all"],"delete":true}`, g.user()),
			fmt.Sprintf(`{"type":"follow","actor":%d}`, g.user()),
		})
	}
	return e
}

var channelNames = []string{"system", "games", "shop", "promo", "beta-2"}

func (g *generator) read() event {
	e := event{kind: "read", actor: g.user()}
	for len(e.what) == 0 || g.IntN(3) == 0 {
		switch g.IntN(5) {
		case 0:
			e.what = append(e.what, "all")
		case 1:
			e.what = append(e.what, "feed")
		case 2:
			e.what = append(e.what, "channel:"+one(g, channelNames))
		default:
			e.what = append(e.what, one(g, unreadKinds))
		}
	}
	marks := g.items || slices.ContainsFunc(e.what, func(what string) bool { return !slices.Contains(unreadKinds, what) })
	if g.IntN(3) == 0 {
		e.seen = map[string]int64{}
		for range 1 + g.IntN(3) {
			e.seen[one(g, unreadKinds)] = int64(g.IntN(4)) // also of what is not read
		}
	}
	if !marks { // an as_of would be refused
		return e
	}
	switch g.IntN(8) {
	case 0, 1, 2:
		e.asOf = asOf{asOfBack, uint64(g.IntN(20))}
	case 3:
		e.asOf.kind = asOfFuture
	case 4:
		if g.IntN(4) == 0 {
			e.asOf.kind = asOfZero
		}
	}
	g.readSome(&e)
	return e
}

func (g *generator) adjust() event {
	e := event{kind: "adjust"}
	switch g.IntN(4) {
	case 3:
		if e.counter, e.column, e.id = "user", one(g, userColumns), g.user(); g.once { // its set goes with a row
			e.counter, e.column, e.id = "page", "view", one(g, g.pages)
		}
	case 0:
		e.counter, e.column, e.id = "post", one(g, postColumns), one(g, g.posts)
	case 1:
		e.counter, e.column, e.id = "unread", one(g, unreadKinds), g.user()
	default:
		e.counter, e.column, e.id = "user", one(g, userColumns), g.user()
	}
	switch n := int64(g.IntN(9) - 4); g.IntN(4) {
	case 0:
		e.del, e.column = true, ""
	case 1:
		e.set = &n
	default:
		e.add = &n
	}
	return e
}
