package twin

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
)

// storyItems is how many items the lists of a story have, so few that some leave them; they are
// kept for ever, in seconds.
const (
	storyItems = 3
	ever       = 1 << 30
)

// Configuration is the built-in one with one counter more, page.view, to which
// events of a type of its own add.
func Configuration() *config.Config {
	c := config.Default()
	c.Counters = append(c.Counters, config.Counter{Name: "page", Columns: []config.Column{{Name: "view", Bits: 16, Max: 63}}})
	c.EventRules = append(c.EventRules, config.EventRules{Type: "view", Rules: []config.Rule{{Add: "page.view", Key: "page"}}})
	withSets(c, false)
	withItems(c, storyItems, ever)
	return c
}

// Story is what a few people do, by chance.
type Story struct {
	Users, Posts, Pages []uint64
	Channels            []string
	Messages            []Message
}

// Generate makes a story. number keeps the ids of stories apart.
func Generate(r *rand.Rand, number int) *Story {
	s := generate(r, number, rulesOfAges{items: storyItems})
	story := &Story{Users: s.users, Posts: s.posts, Pages: s.pages, Channels: channelNames}
	for _, m := range s.messages {
		story.Messages = append(story.Messages, Message{m})
	}
	return story
}

// Message is an event, or a pack of them, as its producer means it.
type Message struct{ m message }

// Stored is the message as it is stored at a place in the log: where a read
// says what its user was shown, it now says a position, and keeps to it
// wherever the message is moved to.
func (m Message) Stored(sequence uint64) Message {
	stored := message{step: m.m.step, events: slices.Clone(m.m.events)}
	for line := range stored.events {
		e := &stored.events[line]
		if p, ok := e.asOf.position(pipeline.At(sequence, line)); ok {
			e.asOf = asOf{asOfAt, uint64(p)}
		}
	}
	return Message{stored}
}

// Encode is the message's subject and body at a place in the log.
func (m Message) Encode(sequence uint64) (subject string, data []byte) { return m.m.encode(sequence) }

// Lines is how many events it has.
func (m Message) Lines() int { return len(m.m.events) }

// Refused says whether a line is one for DEADLETTER.
func (m Message) Refused(line int) bool {
	e := &m.m.events[line]
	return e.junk != "" || e.kind == "follow" && e.actor == e.target
}

func (m Message) String() string { return m.m.String() }

// Model is the naive model without ages: nothing in it ever gets too old, and no list but
// those of unread items too long.
type Model struct{ m model }

// NewModel makes an empty one.
func NewModel() *Model {
	return &Model{model{ages: rulesOfAges{math.MaxInt, math.MaxInt, 1 << 50, 1 << 50, math.MaxInt, math.MaxInt, false, storyItems, ever}}}
}

// Tell adds the events of a message at a place in the log, those of the lines
// after `from` and up to `to`. Messages come in log order.
func (m *Model) Tell(message Message, sequence uint64, from, to pipeline.Position) {
	for line, e := range message.m.events {
		at := pipeline.At(sequence, line)
		if at <= from || at > to || message.Refused(line) {
			continue
		}
		m.m.log = append(m.m.log, logged{event: e, position: at})
		if e.kind == "notice" {
			m.m.notices = append(m.m.notices, noticed{e.channel, e.notice, e.delete, at})
		}
	}
}

// Fact names a number that follows from the events: a cell ("post.like" of
// ID), since when ID follows Other ("follows") or is followed ("followed": 1),
// where author ID's post Other is listed ("post"), how far user ID has read
// ("mark feed", "mark channel:system"; "first read" is the first one's mark), or
// that a channel has a notice since position Other ("notice system": 1, ID 0).
type Fact struct {
	What      string
	ID, Other uint64
}

// Facts are those about a story's people that are not 0.
func (m *Model) Facts(of *Story) map[Fact]int64 {
	facts := map[Fact]int64{}
	note := func(what string, id, other uint64, n int64) {
		if n != 0 {
			facts[Fact{what, id, other}] = n
		}
	}
	for cell, n := range m.m.count().values {
		note(cell.column, cell.id, 0, n)
	}
	for _, user := range of.Users {
		for _, other := range m.m.following(user) {
			since, _ := m.m.follow(user, other, len(m.m.log))
			note("follows", user, other, int64(since))
		}
		for _, other := range m.m.followers(user) {
			note("followed", user, other, 1)
		}
		for _, p := range m.m.listed(user) {
			note("post", user, p.Post, int64(p.Position))
		}
		note("mark feed", user, 0, int64(m.m.mark(user, "feed")))
		for _, channel := range of.Channels {
			note("mark channel:"+channel, user, 0, int64(m.m.mark(user, "channel:"+channel)))
		}
		if reads := m.m.reads(user); len(reads) > 0 {
			note("first read", user, 0, int64(max(markOf(&reads[0]), 1))) // there was one, if from before every event
		}
	}
	live := m.m.live()
	for _, channel := range of.Channels {
		for _, at := range live[channel] {
			note("notice "+channel, 0, uint64(at), 1)
		}
	}
	return facts
}
