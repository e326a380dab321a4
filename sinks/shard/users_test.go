package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// What is kept of a read is a function of the log alone: a node that has met
// very many names of channels keeps what one keeps that has just started. Only
// a user's own cursors bound that user's.
func TestCursorsDoNotDependOnWhatIsLoaded(t *testing.T) {
	const most = 65_536
	const first, other = 1, 2
	store := openStore(t)
	for n := 0; n < most; {
		c := store.Begin()
		errs := []error{c.State(0, cold.State{Applied: 10, Sequence: 1}), c.PutMarks(0, first, 1, 0, 1, 1)}
		for range 4096 {
			errs = append(errs, c.PutCursor(0, first, fmt.Sprint("c", n), 2))
			n++
		}
		if err := errors.Join(append(errs, c.Commit())...); err != nil {
			t.Fatal(err)
		}
		c.Settle()
	}
	cursors := func(s *shard.Shard, user uint64, channels ...string) []pipeline.Position {
		var p shard.Profile
		if _, err := s.Profile(user, -1, channels, &p, &shard.Disk{Store: store}); err != nil {
			t.Fatal(err)
		}
		return p.Cursors
	}
	all, nothing := restarted(t, store), restarted(t, store)
	if err := all.Warm(store, 0, always); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*shard.Shard{"all": all, "nothing": nothing} {
		read := func(user uint64, channels ...string) {
			apply(t, store, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: channels}))
		}
		read(other)
		read(other, "news")
		if got := cursors(s, other, "news"); got[0] != 21 {
			t.Errorf("%s loaded: the cursor is at %d", name, got[0])
		}
		read(first, "news", "c5")
		if got := cursors(s, first, "news", "c4", "c5"); got[0] != 0 || got[1] != 2 || got[2] != 31 {
			t.Errorf("%s loaded: the cursors of who has %d are at %d", name, most, got)
		}
	}
}

// Cursors of a commit that failed are handed over again, each with its name.
func TestCursorsOfAFailedCommit(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	read := func(channels ...string) {
		apply(t, store, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: 1, Channels: channels}))
	}
	read()
	read("a", "b")
	c := store.Begin()
	s.HandOver(c.Version())
	if err := s.Write(store, c); err != nil {
		t.Fatal(err)
	}
	read("c", "a")
	c.Discard()
	s.Settle(false)
	c.Settle()
	read("d")
	checkpoint(t, store, s)
	s = restarted(t, store)
	var p shard.Profile
	if _, err := s.Profile(1, -1, []string{"a", "b", "c", "d"}, &p, &shard.Disk{Store: store}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(p.Cursors) != "[21 11 21 31]" {
		t.Errorf("cursors %v", p.Cursors)
	}
}

// Users come and go, with cursors that are moved, evicted, loaded and handed
// over in commits that fail: each cursor stays with its channel.
func TestCursorsTwin(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	random := rand.New(rand.NewPCG(3, 9))
	want := map[uint64]map[string]pipeline.Position{}
	for step := range 1500 {
		user, name := 1+random.Uint64N(20), fmt.Sprint("c", random.IntN(300))
		at := s.State().Applied + 1
		if want[user] == nil { // the first read of anything is a cursor in all channels
			apply(t, store, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: user}))
			want[user], at = map[string]pipeline.Position{}, s.State().Applied+1
		}
		apply(t, store, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: []string{name}}))
		want[user][name] = at
		switch {
		case step%50 == 20:
			checkpoint(t, store, s)
			s.Shed(0.9)
		case step%50 == 40:
			c := store.Begin()
			s.HandOver(c.Version())
			if err := s.Write(store, c); err != nil {
				t.Fatal(err)
			}
			c.Discard()
			s.Settle(false)
			c.Settle()
			s.Shed(0.9)
		case step%400 == 399:
			checkpoint(t, store, s)
			s = restarted(t, store)
		}
		user = 1 + random.Uint64N(20)
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprint("c", i))
		}
		var p shard.Profile
		if _, err := s.Profile(user, -1, names, &p, &shard.Disk{Store: store}); err != nil {
			t.Fatal(err)
		}
		for i, got := range p.Cursors {
			if got != want[user][names[i]] {
				t.Fatalf("step %d: the cursor of user %d in %s is at %d, want %d", step, user, names[i], got, want[user][names[i]])
			}
		}
	}
}
