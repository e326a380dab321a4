package twin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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
	step int64
	people
}

// told tells a case, and ends it with a crash and a restart.
func told(t *testing.T, tell func(s *story)) {
	t.Helper()
	toldIn(t, agesOf(3, 3600, 7200), nil, tell)
}

// toldIn does so by other ages, or where columns answer defaults other than 0.
func toldIn(t *testing.T, ages rulesOfAges, defaults map[string]int64, tell func(s *story)) {
	t.Helper()
	w, err := newWorld(t.TempDir(), setup{shards: 3, owners: 2, dirtyRowsMax: 5000, every: time.Hour, ages: ages, defaults: defaults})
	if err != nil {
		t.Fatal(err)
	}
	about := people{users: []uint64{ann, bob, cleo, dan}, posts: []uint64{11, 12, 13}, pages: []uint64{7}}
	s := &story{T: t, w: w, m: &model{ages: ages, defaults: defaults}, people: about}
	tell(s)
	s.end()
}

// end has the node apply all of it once more, and read it from the disk.
func (s *story) end() {
	s.Helper()
	s.must(s.w.crash())
	s.same("after a crash")
	s.must(s.w.restart(true))
	s.same("after a restart")
	s.must(s.w.close())
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// same compares everything about everyone with the model.
func (s *story) same(when any) {
	s.Helper()
	if err := s.w.same(s.m, s.people, 2); err != nil {
		s.Fatalf("%v: %v", when, err)
	}
}

// later lets log time go on before the next message.
func (s *story) later(d time.Duration) { s.step += d.Milliseconds() }

// do publishes events, each a message of its own.
func (s *story) do(events ...event) {
	s.Helper()
	for _, e := range events {
		s.pack(e)
	}
}

// pack publishes events as one message, in one window.
func (s *story) pack(events ...event) {
	s.Helper()
	m := message{step: s.step, events: events}
	s.step = 0
	s.must(s.w.publish([]message{m}, len(windowEvents)-1, s.m))
	s.same(m)
}

func (s *story) about(user uint64) answer {
	s.Helper()
	a, err := s.w.answers([]uint64{user}, 1000)
	s.must(err)
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

// cell is a number of any counter, like post.like.
func (s *story) cell(name string, id uint64, n int64) {
	s.Helper()
	counter, column, _ := strings.Cut(name, ".")
	rows, err := s.w.rows(counter, []string{column}, []uint64{id})
	s.must(err)
	want(s, fmt.Sprintf("%s of %d", name, id), rows[0][0], n)
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

// posted says what the feed lists, newest first.
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

var (
	post   = Posted
	follow = Follow
	notice = Notice
	read   = ReadOf
	undo   = Event.Undone
)

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
