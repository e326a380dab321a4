package tier_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
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
		to := c.Shard(0)
		to.Marks(first, [4]uint64{1, 0, 1, 1})
		for range 4096 {
			to.Cursor(first, fmt.Sprint("c", n), 2)
			n++
		}
		to.State(shard.State{Applied: 10, Sequence: 1})
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		store.Stack(0).Publish()
		if _, err := store.MergeOnce(nil); err != nil {
			t.Fatal(err)
		}
	}
	cursors := func(s *tier.Shard, user uint64, channels ...string) []pipeline.Position {
		var p shard.Profile
		if _, err := s.Profile(user, -1, channels, &p, onDisk()); err != nil {
			t.Fatal(err)
		}
		return p.Cursors
	}
	all, nothing := restarted(t, store), restarted(t, store)
	if err := all.Warm(tier.WarmOptions{Bytes: tier.Everything, Entries: 64, More: always}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*tier.Shard{"all": all, "nothing": nothing} {
		read := func(user uint64, channels ...string) {
			apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: channels}))
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

// "A page costs the same at any depth": of a list that is only on disk it reads
// what it has. One who wants all of it, page by page, has it read once, and one
// page that has all of it puts the user into memory too.
func TestPagesOfALongList(t *testing.T) {
	const user, many = 1, 5000
	store := openStore(t)
	s := restarted(t, store)
	var ops []pipeline.Operation
	for id := uint64(1); id <= many; id++ {
		ops = append(ops, pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: 10 + id})
	}
	apply(t, s, window(s, ops...))
	checkpoint(t, store, s)

	type list func(after uint64, limit int, users []uint64, d *tier.Disk) ([]uint64, bool, shard.State, error)
	pages := func(list list, limit, most int) (reads int) {
		after, more, seen := uint64(0), true, 0
		for n := 0; more && n < most; n++ {
			d := onDisk()
			var users []uint64
			var err error
			if users, more, _, err = list(after, limit, nil, d); err != nil || len(users) != min(limit, many-seen) || users[0] != 11+uint64(seen) {
				t.Fatalf("above %d: %v, %v", after, users, err)
			}
			seen += len(users)
			after = users[len(users)-1]
			reads += d.Reads
		}
		return reads
	}
	inMemory := func(s *tier.Shard) bool {
		_, _, _, err := s.Following(user, 0, 1, nil, &tier.Disk{})
		return err == nil
	}

	s = restarted(t, store)
	following := func(after uint64, limit int, users []uint64, d *tier.Disk) ([]uint64, bool, shard.State, error) {
		return s.Following(user, after, limit, users, d)
	}
	if reads := pages(following, 100, many); reads != many/100 || inMemory(s) {
		t.Errorf("%d reads for %d pages", reads, many/100)
	}
	if pages(following, many, 1); !inMemory(s) {
		t.Error("a page that has all of the list leaves the user on disk")
	}
	s = restarted(t, store)
	followees := func(after uint64, limit int, users []uint64, d *tier.Disk) ([]uint64, bool, shard.State, error) {
		return s.Followees(user, after, limit, users, d)
	}
	if reads := pages(followees, 100, many); reads != 1 || !inMemory(s) {
		t.Errorf("%d reads for all pages", reads)
	}
}

// No cost of an event may grow with what is there. A read of a
// user whose followees are on disk does not load them, and is in the next answer.
func TestReadDoesNotLoadFollowees(t *testing.T) {
	const user, followees = 1, 100_000
	store := openStore(t)
	c := store.Begin()
	to := c.Shard(0)
	for i := range uint64(followees) {
		to.Following(user, i+2, 5)
	}
	to.Marks(user, [4]uint64{1, 0, 1, 1})
	to.State(shard.State{Applied: 10, Sequence: 1})
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	store.Stack(0).Publish()
	s := restarted(t, store)
	before := s.Bytes()
	apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpRead, ID: user, Looked: pipeline.LookedFeed}))
	if grown := s.Bytes() - before; grown > followees {
		t.Errorf("a read loads %d bytes: the followees", grown)
	}
	apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpUnfollow, ID: user, Other: 3}))
	if grown := s.Bytes() - before; grown > followees {
		t.Errorf("an unfollow loads %d bytes: the followees", grown)
	}
	var p shard.Profile
	if _, err := s.Profile(user, -1, nil, &p, onDisk()); err != nil {
		t.Fatal(err)
	}
	if len(p.Following) != followees-1 || p.Marks.Feed <= 1 {
		t.Errorf("%d followees, the feed is read up to %d", len(p.Following), p.Marks.Feed)
	}
}
