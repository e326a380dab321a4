package twin

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The people and posts of the cases.
const (
	ann = 1 + iota
	bob
	cleo
	dan
)

// story tells a case event by event. After each, everything about everyone is
// compared with the model too.
type story struct {
	*testing.T
	w    *world
	m    *model
	how  manner
	step int64
	people
}

// told tells a case three times: as it comes, with a restart after every
// message and with a crash after every message; and each of them once more
// from an empty directory, in other shards and in one window.
func told(t *testing.T, tell func(s *story)) {
	t.Helper()
	toldWith(t, nil, tell)
}

// toldWith does so where columns answer defaults other than 0.
func toldWith(t *testing.T, defaults map[string]int64, tell func(s *story)) {
	t.Helper()
	for how := range manners {
		t.Run(how.String(), func(t *testing.T) {
			w, err := newWorld(t.TempDir(), setup{
				shards: 3, owners: 2, dirtyRowsMax: 5000, every: time.Hour,
				ages: agesOf(3, 3600, 7200), defaults: defaults,
			})
			if err != nil {
				t.Fatal(err)
			}
			s := &story{T: t, w: w, m: &model{ages: w.ages, defaults: defaults}, how: how, people: people{users: []uint64{ann, bob, cleo, dan}, posts: []uint64{11, 12, 13}}}
			tell(s)
			other, err := w.again(setup{shards: 5, owners: 1, dirtyRowsMax: 5000, every: time.Hour}, len(windowEvents)-1)
			if err != nil {
				t.Fatal(err)
			}
			if err := other.same(s.m, s.people, 2); err != nil {
				t.Errorf("replay from an empty directory: %v", err)
			}
			if other.letters != w.letters {
				t.Errorf("%d dead letters, and %d in the replay", w.letters, other.letters)
			}
			for _, world := range []*world{w, other} {
				if err := world.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// later lets log time go on before the next message.
func (s *story) later(d time.Duration) { s.step += d.Milliseconds() }

// do publishes events, each a message of its own, and returns the position of
// the last one.
func (s *story) do(events ...event) pipeline.Position {
	s.Helper()
	for _, e := range events {
		s.publish(message{step: s.step, events: []event{e}})
		s.step = 0
	}
	return pipeline.At(uint64(len(s.w.log)), 0)
}

// pack publishes events as one message, in one window.
func (s *story) pack(events ...event) {
	s.Helper()
	s.publish(message{step: s.step, events: events})
	s.step = 0
}

func (s *story) publish(m message) {
	s.Helper()
	err := s.w.publish([]message{m}, len(windowEvents)-1, s.m)
	if err == nil {
		switch s.how {
		case restarting:
			err = s.w.restart(false)
		case crashing:
			err = s.w.crash()
		}
	}
	if err == nil {
		err = s.w.same(s.m, s.people, 2)
	}
	if err != nil {
		s.Fatalf("after %v: %v", m, err)
	}
}

func (s *story) about(user uint64) answer {
	s.Helper()
	a, err := s.w.answers([]uint64{user}, 1000)
	if err != nil {
		s.Fatal(err)
	}
	return a[0]
}

func want[T comparable](s *story, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (s *story) feed(user uint64, n uint64) {
	s.Helper()
	want(s, fmt.Sprintf("feed of %d", user), s.about(user).Feed, n)
}

func (s *story) unread(user uint64, kind string, n int64) {
	s.Helper()
	want(s, fmt.Sprintf("unread.%s of %d", kind, user), s.about(user).Unread[kind], n)
}

func (s *story) column(user uint64, column string, n int64) {
	s.Helper()
	want(s, fmt.Sprintf("user.%s of %d", column, user), s.about(user).Row[slices.Index(userColumns, column)], n)
}

func (s *story) channel(user uint64, name string, n uint64) {
	s.Helper()
	got, ok := s.about(user).Channels[name]
	want(s, fmt.Sprintf("channel %s of %d", name, user), got, n)
	want(s, "channel "+name+" is named", ok, true)
}

func (s *story) dot(user uint64, name string, lit bool) {
	s.Helper()
	want(s, fmt.Sprintf("dot %s of %d", name, user), s.about(user).Dots[name], lit)
}

// posts are what the feed lists, newest first.
func (s *story) posted(user uint64, posts ...uint64) {
	s.Helper()
	var got []uint64
	for _, p := range s.about(user).Posts {
		got = append(got, p.Post)
	}
	if !slices.Equal(got, posts) {
		s.Errorf("feed of %d lists %v, want %v", user, got, posts)
	}
}

func (s *story) letters(n int) {
	s.Helper()
	want(s, "dead letters", s.w.letters, n)
}

// The events of the cases.

func post(actor, p uint64) event { return event{kind: "post", actor: actor, post: p} }

func repost(actor, p, of, author uint64) event {
	return event{kind: "post", actor: actor, post: p, repostOf: of, author: author}
}

func comment(actor, p, author uint64) event {
	return event{kind: "comment", actor: actor, post: p, author: author}
}

func like(actor, p, author uint64) event {
	return event{kind: "like", actor: actor, post: p, author: author}
}

func mention(actor, target uint64) event {
	return event{kind: "mention", actor: actor, target: target}
}

func direct(actor, target uint64) event { return event{kind: "message", actor: actor, target: target} }

func follow(actor, target uint64) event { return event{kind: "follow", actor: actor, target: target} }

func notice(channel string, id uint64) event {
	return event{kind: "notice", channel: channel, notice: id}
}

func read(actor uint64, what ...string) event {
	return event{kind: "read", actor: actor, what: what}
}

func readSeen(actor uint64, kind string, n int64) event {
	return event{kind: "read", actor: actor, what: []string{kind}, seen: map[string]int64{kind: n}}
}

// readAsOf: the user was shown an answer that reached the message so many ago;
// 0 is the one right before the read.
func readAsOf(actor, back uint64, what ...string) event {
	return event{kind: "read", actor: actor, what: what, asOf: asOf{asOfBack, back}}
}

func adjust(column string, id uint64, set int64) event {
	return event{kind: "adjust", counter: "user", column: column, id: id, set: &set}
}

func undo(e event) event {
	e.delete = true
	return e
}

func newestFirst(a, b feedPost) int { return cmp.Compare(b.Position, a.Position) }
