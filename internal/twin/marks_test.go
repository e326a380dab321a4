package twin

import (
	"errors"
	"testing"
	"time"
)

// "A read with an `as_of` older than a newer read takes no mark back"
func TestMarksNeverGoBack(t *testing.T) {
	told(t, func(s *story) {
		s.do(read(bob, "feed"), follow(bob, ann), post(ann, 11), notice("system", 1), post(ann, 12), notice("system", 2))
		s.feed(bob, 2)
		s.do(read(bob, "feed", "channel:system"))
		s.feed(bob, 0)
		s.do(readAsOf(bob, 4, "feed", "channel:system")) // of the answer before post 11
		s.feed(bob, 0)
		s.channel(bob, "system", 0)
		s.do(post(ann, 13), readAsOf(bob, 5, "all"))
		s.feed(bob, 1)
		s.do(read(bob, "all"), read(bob, "all")) // twice does no harm
		s.feed(bob, 0)
	})
}

// "A read's mark is its own position, or `as_of` when given": one beyond the
// read itself marks nothing that came after it (I7).
func TestAsOfBeyondTheRead(t *testing.T) {
	told(t, func(s *story) {
		r := read(bob, "all")
		r.asOf.kind = asOfFuture
		s.do(follow(bob, ann), r, post(ann, 11), notice("system", 1), notice("games", 1))
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
	})
}

// "Goes to 0 by `read`; with `seen: {"comment": 3}` only 3 are taken off
// (never below 0), so that what arrived after the page was drawn stays unread;
// `as_of` does not bear on these counters."
func TestSeen(t *testing.T) {
	told(t, func(s *story) {
		for range 5 {
			s.do(comment(bob, 11, ann))
		}
		s.unread(ann, "comment", 5)
		s.do(readSeen(ann, "comment", 3))
		s.unread(ann, "comment", 2)
		s.do(readSeen(ann, "comment", 9))
		s.unread(ann, "comment", 0)
		s.pack(comment(bob, 11, ann), readSeen(ann, "comment", 4), comment(bob, 11, ann), comment(bob, 11, ann), readSeen(ann, "comment", 1))
		s.unread(ann, "comment", 1)
		s.do(like(bob, 11, ann), readAsOf(ann, 9, "comment"))
		s.unread(ann, "comment", 0)
		s.unread(ann, "like", 1)
		all := read(ann, "all")
		all.seen = map[string]int64{"comment": 1}
		s.do(comment(bob, 11, ann), comment(bob, 11, ann), all)
		s.unread(ann, "comment", 1)
		s.unread(ann, "like", 0)
		other := read(ann, "like")
		other.seen = map[string]int64{"comment": 1}
		s.do(other) // seen of what is not read takes nothing
		s.unread(ann, "comment", 1)
	})
}

// "A user who has never read anything is new: 0 on a `notice` channel; on a `dot` channel
// the dot is lit if it has any live notice." docs/contract.md: "first read of anything
// (so a channel opened later reaches users who were there)"
func TestNewUserAndChannels(t *testing.T) {
	told(t, func(s *story) {
		s.do(notice("system", 1), notice("games", 1), notice("promo", 1))
		s.channel(ann, "system", 0)
		s.channel(ann, "promo", 0) // docs/contract.md: "a channel not listed is a `notice` channel"
		s.dot(ann, "games", true)
		s.dot(ann, "shop", false)
		s.do(read(ann, "comment")) // of anything
		s.channel(ann, "system", 0)
		s.dot(ann, "games", false)
		s.do(notice("system", 2), notice("later", 1), notice("shop", 1))
		s.channel(ann, "system", 1)
		s.channel(ann, "later", 1)
		s.dot(ann, "shop", true)
		s.dot(ann, "games", false)
		s.channel(bob, "later", 0)
		s.do(read(ann, "channel:later"), read(ann, "channel:shop"))
		s.channel(ann, "later", 0)
		s.channel(ann, "system", 1)
		s.dot(ann, "shop", false)
		s.do(read(ann, "all"))
		s.channel(ann, "system", 0)
	})
}

// A channel may be read before it has ever had a notice.
func TestReadOfAnUnopenedChannel(t *testing.T) {
	told(t, func(s *story) {
		s.do(read(ann, "channel:promo"), notice("promo", 1))
		s.channel(ann, "promo", 1)
		s.do(notice("promo", 2), readAsOf(ann, 1, "channel:promo"), notice("promo", 3))
		s.channel(ann, "promo", 2)
	})
}

// A notice is withdrawn before and after it is read
func TestWithdrawnNotice(t *testing.T) {
	told(t, func(s *story) {
		s.do(read(ann, "feed"), notice("system", 1), notice("system", 2), notice("games", 1), notice("promo", 1))
		s.channel(ann, "system", 2)
		s.do(undo(notice("system", 1)), undo(notice("games", 1)))
		s.channel(ann, "system", 1)
		s.dot(ann, "games", false)
		s.dot(bob, "games", false)
		s.do(read(ann, "channel:system"), undo(notice("system", 2)))
		s.channel(ann, "system", 0)
		s.do(undo(notice("games", 2)), undo(notice("system", 1))) // not there
		s.do(notice("system", 2))                                 // withdrawn, and out again: a new one
		s.channel(ann, "system", 1)
		s.do(undo(notice("promo", 1)))
		if _, named := s.about(ann).Channels["promo"]; named {
			s.Error("a channel that is not configured and has no notice is still named")
		}
	})
}

// docs/contract.md: "retention (30 d) back": an author's aged posts.
func TestAgedPosts(t *testing.T) {
	told(t, func(s *story) { // an hour
		s.do(follow(bob, ann), post(ann, 11))
		s.later(30 * time.Minute)
		s.do(post(ann, 12))
		s.later(30 * time.Minute)
		s.do(like(cleo, 99, dan)) // log time is anyone's; 11 is an hour old, not older
		s.feed(bob, 2)
		s.later(time.Second)
		s.do(like(cleo, 99, dan))
		s.feed(bob, 1)
		s.posted(bob, 12)
		s.do(undo(post(ann, 11)))
		s.feed(bob, 1)
		s.later(time.Hour)
		s.do(read(cleo, "feed"))
		s.feed(bob, 0)
		s.posted(bob)
		s.do(post(ann, 12)) // listed anew: it was no longer listed
		s.feed(bob, 1)
		s.do(undo(post(ann, 12)))
		s.feed(bob, 0)
		s.do(post(ann, 11), post(ann, 12), post(ann, 13))
		s.later(-2 * time.Hour) // a timestamp from the past: log time stays
		s.do(post(ann, 14))
		s.feed(bob, 3)
		s.posted(bob, 14, 13, 12)
	})
}

// "A user whose last read is older than `inactive_after` … is dropped: every unread
// answers 0 until the next read."
func TestInactiveUser(t *testing.T) {
	told(t, func(s *story) { // two hours
		s.do(follow(bob, ann), read(bob, "message"), like(ann, 21, bob), notice("system", 1), notice("games", 1))
		s.later(2 * time.Hour)
		s.do(post(ann, 11))
		s.feed(bob, 1)
		s.unread(bob, "like", 1)
		s.later(time.Second)
		s.do(post(ann, 12))
		s.feed(bob, 0)
		for _, kind := range unreadKinds {
			s.unread(bob, kind, 0)
		}
		s.channel(bob, "system", 0)
		s.dot(bob, "games", false)
		s.posted(bob, 12, 11) // the feed itself can be read
		s.column(bob, "liked", 1)
		s.do(readAsOf(bob, 0, "message")) // back: what was not read is unread again
		s.feed(bob, 2)
		s.unread(bob, "like", 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
	})
}

// "Ages are measured in log time": after a crash, windows are applied again by
// the log time of their own positions, whatever has been seen since. A post is
// listed, listed again while it still is (which changes nothing), and ages:
// its first place counts, also when all that is told again at once.
func TestCrashAfterAges(t *testing.T) {
	const day = 24 * time.Hour
	w, err := newWorld(t.TempDir(), setup{shards: 8, owners: 2, dirtyRowsMax: 5000, every: time.Hour, ages: agesOf(3, 30*86_400, 30*86_400)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	m, about := &model{ages: w.ages}, people{users: []uint64{ann}}
	at := func(step time.Duration, make func(author uint64) event) {
		t.Helper()
		var messages []message
		for author := uint64(20); author < 40; author++ {
			messages = append(messages, message{step: step.Milliseconds(), events: []event{make(author)}})
			step = 0
		}
		if err := w.publish(messages, 3, m); err != nil {
			t.Fatal(err)
		}
	}
	at(0, func(author uint64) event { return follow(ann, author) })
	at(0, func(author uint64) event { return post(author, author) })
	at(20*day, func(author uint64) event { return post(author, author) })
	at(12*day, func(author uint64) event { return direct(author, ann) })
	for range 20 {
		if err := errors.Join(w.same(m, about, 7), w.crash()); err != nil {
			t.Fatal(err)
		}
	}
}

// A log that is silent for long after a busy time forgets many moments, more
// than one checkpoint takes: little by little, in windows that came after.
func TestSilenceAfterBusyTime(t *testing.T) {
	w, err := newWorld(t.TempDir(), setup{shards: 2, owners: 2, dirtyRowsMax: 300, every: 2 * time.Millisecond, ages: agesOf(3, 3600, 7200)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	m := &model{ages: w.ages}
	about := people{users: []uint64{ann, bob}}
	busy := func(seconds int, step time.Duration) {
		t.Helper()
		var messages []message
		for range seconds {
			messages = append(messages, message{step: step.Milliseconds(), events: []event{direct(ann, bob)}})
		}
		if err := w.publish(messages, len(windowEvents)-1, m); err != nil {
			t.Fatal(err)
		}
		if err := w.same(m, about, 2); err != nil {
			t.Fatal(err)
		}
	}
	busy(1, 0)
	if err := w.publish([]message{{events: []event{follow(bob, ann), post(ann, 11)}}}, 0, m); err != nil {
		t.Fatal(err)
	}
	busy(20_000, time.Second)
	busy(3, 30*24*time.Hour)
	if err := errors.Join(w.crash(), w.same(m, about, 2)); err != nil {
		t.Fatal(err)
	}
	busy(500, 0)
	if err := errors.Join(w.restart(true), w.same(m, about, 2)); err != nil {
		t.Fatal(err)
	}
	if w.node.Stats.CheckpointErrors.Load() > 0 {
		t.Error("checkpoints failed")
	}
}

// docs/contract.md: "`default` (default 0) is answered for a row that does not exist":
// one that the graph or a read has written does, whatever it sums up to.
func TestDefaults(t *testing.T) {
	defaults := map[string]int64{"user.liked": 9, "unread.like": 4}
	toldWith(t, defaults, func(s *story) {
		s.column(ann, "liked", 9)
		s.unread(ann, "like", 4)
		s.do(follow(ann, bob), undo(follow(ann, bob)))
		s.column(ann, "liked", 0)
		s.column(bob, "liked", 0)
		s.unread(bob, "like", 0)
		s.unread(ann, "like", 4)
		s.do(read(ann, "feed")) // touches no counter
		s.unread(ann, "like", 4)
		s.do(read(ann, "like"))
		s.unread(ann, "like", 0)
		del := event{kind: "adjust", counter: "user", id: ann, del: true}
		s.pack(follow(ann, bob), del)
		s.column(ann, "liked", 9)
		s.pack(del, undo(follow(ann, bob)))
		s.column(ann, "liked", 0)
		s.column(ann, "following", -1)
	})
}
