package twin

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The cases that must be right. What else than the numbers named is asked of
// everyone after every event is in story.same.

// "A follow after posts: those posts are not unread." "After an unfollow the
// posts of that author vanish from unread; after another follow only later ones
// count."
func TestFollowAndUnfollow(t *testing.T) {
	told(t, func(s *story) {
		s.do(post(ann, 10), post(ann, 11), post(cleo, 20), follow(bob, ann), follow(bob, cleo))
		s.feed(bob, 0)
		s.posted(bob, 20, 11, 10) // "every listed post of everyone followed now (those before the follow too)"
		s.do(post(ann, 12), post(cleo, 21))
		s.feed(bob, 2)
		s.do(undo(follow(bob, ann)))
		s.feed(bob, 1)
		s.posted(bob, 21, 20)
		s.do(post(ann, 13), follow(bob, ann))
		s.feed(bob, 1)
		s.posted(bob, 13, 21, 12, 20, 11)
		s.do(post(ann, 14))
		s.feed(bob, 2)
		s.column(bob, "following", 2)
		s.unread(ann, "follower", 2) // a deletion leaves it alone
	})
}

// "Deleting an unread post takes one off; deleting a read post changes nothing."
// A post that is deleted and posted again is listed once, at the later place; one
// that is posted twice stays where it was first: who has read it has read it.
func TestDeletedAndRepeatedPosts(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), post(ann, 11), read(bob, "feed"), post(ann, 12), post(ann, 13))
		s.feed(bob, 2)
		s.do(undo(post(ann, 12)))
		s.feed(bob, 1)
		s.do(post(ann, 11)) // still at its first place
		s.feed(bob, 1)
		s.posted(bob, 13, 11)
		s.do(undo(post(ann, 11)))
		s.feed(bob, 1)
		s.do(post(ann, 11))
		s.feed(bob, 2)
		s.posted(bob, 11, 13)
		s.column(ann, "post", 3) // docs/contract.md: "Rules add for every event"
		s.pack(undo(post(ann, 11)), post(ann, 11), undo(post(ann, 11)), post(ann, 11), undo(post(ann, 11)))
		s.feed(bob, 1)
		s.do(post(cleo, 13), follow(bob, cleo), undo(post(cleo, 13))) // another author's list is another
		s.posted(bob, 13)
	})
}

// docs/contract.md: "The follow graph, the list of an author's posts and channels are
// sets: following or unfollowing twice changes nothing on either side (counts included),
// a post listed twice is listed once, deleting what is not there takes nothing away from
// a list."
func TestSetsTakeEverythingTwice(t *testing.T) {
	told(t, func(s *story) {
		s.do(undo(follow(bob, ann)), undo(post(ann, 11)), undo(notice("system", 1)), undo(notice("nowhere", 1)))
		s.column(bob, "following", 0)
		s.column(ann, "follower", 0)
		s.column(ann, "post", -1) // docs/contract.md: "Rules add for every event": it is remembered, not clamped
		s.do(read(bob, "mention"))
		for range 2 {
			s.do(follow(bob, ann), post(ann, 11), notice("system", 1))
		}
		s.column(bob, "following", 1)
		s.unread(ann, "follower", 1)
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		for range 2 {
			s.do(undo(follow(bob, ann)), undo(post(ann, 11)), undo(notice("system", 1)))
		}
		s.column(ann, "follower", 0)
		s.channel(bob, "system", 0)
		s.pack(follow(bob, ann), follow(bob, ann), undo(follow(bob, ann)), undo(follow(bob, ann)), follow(bob, ann))
		s.column(bob, "following", 1)
		s.unread(ann, "follower", 3)
	})
}

// "Self-actions notify nobody." "A follow of oneself is a dead letter."
func TestSelfActions(t *testing.T) {
	told(t, func(s *story) {
		s.do(post(ann, 11), comment(ann, 11, ann), like(ann, 11, ann), repost(ann, 12, 11, ann), mention(ann, ann))
		for _, kind := range unreadKinds {
			s.unread(ann, kind, 0)
		}
		for _, column := range []string{"commented", "liked", "reposted", "mentioned"} {
			s.column(ann, column, 1)
		}
		others := []event{comment(bob, 11, ann), like(bob, 11, ann), repost(bob, 21, 11, ann), mention(bob, ann), direct(bob, ann)}
		s.do(others...)
		for i := range others {
			s.do(undo(others[i]))
		}
		for _, kind := range unreadKinds { // "except on unread.*, which a deletion leaves alone"
			s.unread(ann, kind, map[bool]int64{true: 1}[kind != "follower"])
		}
		s.column(ann, "liked", 1)
		s.do(follow(ann, ann), undo(follow(ann, ann)))
		s.letters(2)
		s.pack(follow(bob, ann), follow(ann, ann), follow(cleo, ann)) // the others of the pack count
		s.letters(3)
		s.column(ann, "following", 0)
		s.column(ann, "follower", 2)
	})
}

// "A mutual follow counts as a friend in either order, until either
// side unfollows."
func TestMutualFollow(t *testing.T) {
	told(t, func(s *story) {
		friends := func(n int64) {
			s.Helper()
			s.column(ann, "friend", n)
			s.column(bob, "friend", n)
		}
		for _, leaves := range [][2]uint64{{ann, bob}, {bob, ann}} {
			s.do(follow(ann, bob))
			friends(0)
			s.do(follow(bob, ann))
			friends(1)
			s.do(undo(follow(leaves[0], leaves[1])))
			friends(0)
			s.do(undo(follow(leaves[1], leaves[0])))
			friends(0)
		}
		s.pack(follow(ann, bob), follow(bob, ann), undo(follow(ann, bob)), follow(ann, bob))
		friends(1)
	})
}

// docs/contract.md: "The newest `feed.posts_per_author` *live* posts count: deletions
// make room for older ones as far as `feed.posts_kept` (4 × that) keeps them." Beyond
// posts_kept what was dropped does not come back, and may be posted again.
func TestCapOfPosts(t *testing.T) {
	told(t, func(s *story) { // the cap is 3, and 12 are kept
		s.do(follow(bob, ann), post(ann, 11), post(ann, 12), post(ann, 13), post(ann, 14))
		s.feed(bob, 3)
		s.posted(bob, 14, 13, 12)
		s.do(undo(post(ann, 14)))
		s.feed(bob, 3)
		s.posted(bob, 13, 12, 11)
		s.do(post(ann, 11)) // it is there, at its first place
		s.posted(bob, 13, 12, 11)
		var posts, deletions []event
		for p := uint64(100); p < 120; p++ {
			posts = append(posts, post(ann, p))
		}
		for p := uint64(119); p > 109; p-- {
			deletions = append(deletions, undo(post(ann, p)))
		}
		s.pack(posts...)
		s.posted(bob, 119, 118, 117)
		s.pack(deletions...)
		s.posted(bob, 109, 108)
		s.feed(bob, 2)
		s.do(post(ann, 107)) // listed again: it was no longer kept
		s.posted(bob, 107, 109, 108)
	})
}

// docs/contract.md: "Log order (stream sequence, then line) is THE order: everything
// below is defined by it." An adjust of columns that the follow graph maintains, with
// follows around it in the same window.
func TestAdjustAmongFollows(t *testing.T) {
	told(t, func(s *story) {
		s.pack(follow(ann, bob), follow(bob, ann), adjust("following", ann, 10), follow(ann, cleo),
			adjust("friend", bob, 5), undo(follow(ann, bob)))
		s.column(ann, "following", 10) // 1, =10, 11, 10
		s.column(bob, "friend", 4)     // 1, =5, 4
		s.column(ann, "friend", 0)
		del := event{kind: "adjust", counter: "user", id: ann, del: true}
		s.pack(like(bob, 11, ann), follow(ann, dan), del, follow(cleo, ann), like(bob, 12, ann), follow(ann, bob))
		s.column(ann, "following", 12) // the graph and its columns stay
		s.column(ann, "follower", 2)
		s.column(ann, "liked", 1)
		s.column(ann, "friend", 2) // of cleo, and of bob again
		s.unread(ann, "follower", 2)
		two := int64(2)
		s.pack(event{kind: "adjust", counter: "unread", column: "follower", id: ann, add: &two}, follow(dan, ann),
			readSeen(ann, "follower", 4), undo(follow(dan, ann)), follow(dan, ann))
		s.unread(ann, "follower", 2) // 4, 5, 1, 1, 2
	})
}

// docs/contract.md: "A rule with `once` adds for what is not yet in the key's set", "what
// is in the set adds nothing; `delete` takes away what is there and nothing else"; what
// is kept for ten minutes counts again after them.
func TestOnce(t *testing.T) {
	ages := agesOf(3, 3600, 7200)
	ages.once = true
	toldIn(t, ages, nil, func(s *story) {
		s.do(like(bob, 11, ann), like(bob, 11, ann), like(cleo, 11, ann), like(bob, 12, ann))
		s.cell("post.like", 11, 2)
		s.column(ann, "liked", 3)
		s.unread(ann, "like", 4)
		s.do(undo(like(bob, 11, ann)), undo(like(bob, 11, ann)), undo(like(dan, 11, ann)))
		s.cell("post.like", 11, 1)
		s.column(ann, "liked", 2)
		view := func(visitor string) event { return event{kind: "view", page: 7, visitor: visitor} }
		s.do(view("x"), view("x"), view("y"), view(""), view("")) // who is nobody counts each time
		s.cell("page.view", 7, 4)
		s.later(10 * time.Minute)
		s.do(view("x"))
		s.cell("page.view", 7, 4)
		s.later(time.Second)
		s.do(view("x"), view("x"))
		s.cell("page.view", 7, 5)
	})
}

// "A read with an `as_of` older than a newer read takes no mark back"; "a read's mark is
// its own position, or `as_of` when given": what came after the answer that was shown
// stays unread, and one beyond the read itself marks nothing that came after it (I7).
func TestMarks(t *testing.T) {
	told(t, func(s *story) {
		s.do(read(bob, "feed"), follow(bob, ann), post(ann, 11), notice("system", 1), post(ann, 12), notice("system", 2))
		s.feed(bob, 2)
		s.do(read(bob, "feed", "channel:system"))
		s.feed(bob, 0)
		s.do(readAsOf(bob, 4, "feed", "channel:system")) // of the answer before post 11
		s.feed(bob, 0)
		s.channel(bob, "system", 0)
		s.do(post(ann, 13), notice("games", 1))
		shown := s.w.end // the as_of of an answer
		s.do(post(ann, 14), notice("system", 3), notice("games", 2))
		s.do(readAsOf(bob, 3, "feed", "channel:system", "channel:games"))
		if at, _ := (asOf{asOfBack, 3}).position(pipeline.At(uint64(len(s.w.log)), 0)); at != shown {
			s.Fatalf("the read says as_of %d, shown was %d", at, shown)
		}
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
		s.do(read(bob, "all"), read(bob, "all")) // twice does no harm
		s.feed(bob, 0)
		s.dot(bob, "games", false)
		future := read(bob, "all")
		future.asOf.kind = asOfFuture
		s.do(future, post(ann, 15), notice("system", 4), notice("games", 3))
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
	})
}

// "Goes to 0 by `read`; with `seen: {"comment": 3}` only 3 are taken off
// (never below 0)."
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
		s.pack(comment(bob, 11, ann), readSeen(ann, "comment", 4), comment(bob, 11, ann), comment(bob, 11, ann),
			readSeen(ann, "comment", 1))
		s.unread(ann, "comment", 1)
		s.do(like(bob, 11, ann), read(ann, "comment"))
		s.unread(ann, "comment", 0)
		s.unread(ann, "like", 1)
		all, other := read(ann, "all"), read(ann, "like")
		all.seen = map[string]int64{"comment": 1}
		other.seen = all.seen
		s.do(comment(bob, 11, ann), comment(bob, 11, ann), all)
		s.unread(ann, "comment", 1)
		s.unread(ann, "like", 0)
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
		s.do(read(ann, "channel:later"), read(ann, "channel:shop"), read(ann, "channel:beta")) // beta has had no notice yet
		s.channel(ann, "later", 0)
		s.channel(ann, "system", 1)
		s.dot(ann, "shop", false)
		s.do(notice("beta", 1), notice("beta", 2), readAsOf(ann, 1, "channel:beta"))
		s.channel(ann, "beta", 1)
		s.do(read(ann, "all"))
		s.channel(ann, "system", 0)
		s.channel(ann, "beta", 0)
		s.do(undo(notice("system", 2)), notice("system", 2)) // withdrawn, and out again: a new one
		s.channel(ann, "system", 1)
		s.do(undo(notice("games", 1)), undo(notice("promo", 1)))
		s.dot(bob, "games", false)
		if _, named := s.about(ann).Channels["promo"]; named {
			s.Error("a channel that is not configured and has no notice is still named")
		}
	})
}

// "`limits.channels`, `limits.notices` (of one channel) bound what is kept."
func TestBoundsOfNotices(t *testing.T) {
	ages := agesOf(3, 3600, 7200)
	ages.channels, ages.notices = 4, 3 // three are configured
	toldIn(t, ages, nil, func(s *story) {
		s.do(read(ann, "all"), notice("promo", 10), notice("promo", 11), read(bob, "all"), notice("promo", 12), notice("promo", 13))
		s.channel(ann, "promo", 3) // the oldest is gone
		s.channel(bob, "promo", 2)
		s.do(notice("promo", 13), notice("promo", 10)) // listed twice; listed again, at the new place
		s.channel(ann, "promo", 3)
		s.channel(bob, "promo", 3)
		s.do(notice("beta", 1)) // one channel too many
		if _, named := s.about(ann).Channels["beta"]; named {
			s.Error("a channel is open beyond the last that may be")
		}
		s.do(undo(notice("promo", 10)), undo(notice("promo", 12)), undo(notice("promo", 13)), notice("beta", 1), notice("system", 1))
		s.channel(ann, "beta", 1) // there is room now
		s.channel(ann, "system", 1)
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
		s.later(time.Hour)
		s.do(read(cleo, "feed"))
		s.feed(bob, 0)
		s.posted(bob)
		s.do(post(ann, 12)) // listed anew: it was no longer listed
		s.feed(bob, 1)
		s.do(post(ann, 11), post(ann, 13))
		s.later(-2 * time.Hour) // a timestamp from the past: log time stays
		s.do(post(ann, 14))
		s.feed(bob, 3)
		s.posted(bob, 14, 13, 11)
	})
}

// "A user whose last read is older than `inactive_after` … is dropped: every unread
// answers 0 until the next read." One who has never read is never dropped.
func TestInactiveUser(t *testing.T) {
	told(t, func(s *story) { // two hours
		s.do(follow(bob, ann), read(bob, "message"), like(ann, 21, bob), like(ann, 22, cleo), notice("system", 1), notice("games", 1))
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
		s.unread(cleo, "like", 1)
		s.dot(cleo, "games", true)
		s.do(read(bob, "message")) // back: what was not read is unread again
		s.feed(bob, 2)
		s.unread(bob, "like", 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
	})
}

// docs/contract.md: "`default` (default 0) is answered for a row that does not exist":
// one that the graph or a read has written does, whatever it sums up to.
func TestDefaults(t *testing.T) {
	defaults := map[string]int64{"user.liked": 9, "unread.like": 4}
	toldIn(t, agesOf(3, 3600, 7200), defaults, func(s *story) {
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
		s.pack(follow(ann, bob), adjust("liked", ann, 5), del)
		s.column(ann, "liked", 0) // a user's row stays a row: the graph keeps its columns
		s.column(ann, "following", 1)
		s.do(event{kind: "adjust", counter: "user", id: dan, del: true})
		s.column(dan, "liked", 9) // there was none, and there is none
		s.pack(del, undo(follow(ann, bob)))
		s.column(ann, "liked", 0)
		s.column(ann, "following", 0)
	})
}
