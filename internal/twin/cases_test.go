package twin

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The cases that must be right. What else than the numbers named is asked of
// everyone after every event is in story.publish.

// "A follow after posts: those posts are not unread"
func TestFollowAfterPosts(t *testing.T) {
	told(t, func(s *story) {
		s.do(post(ann, 11), post(ann, 12), follow(bob, ann))
		s.feed(bob, 0)
		s.posted(bob, 12, 11) // "every listed post of everyone followed now (those before the follow too)"
		s.do(post(ann, 13))
		s.feed(bob, 1)
	})
}

// "After an unfollow the posts of that author vanish from unread; after
// another follow only later ones count"
func TestUnfollow(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), follow(bob, cleo), post(ann, 11), post(cleo, 21))
		s.feed(bob, 2)
		s.do(undo(follow(bob, ann)))
		s.feed(bob, 1)
		s.posted(bob, 21)
		s.do(post(ann, 12), follow(bob, ann))
		s.feed(bob, 1)
		s.posted(bob, 12, 21, 11)
		s.do(post(ann, 13))
		s.feed(bob, 2)
		s.column(bob, "following", 2)
		s.unread(ann, "follower", 2) // a deletion leaves it alone
	})
}

// "Deleting an unread post takes one off; deleting a read post changes
// nothing"
func TestDeletePost(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), post(ann, 11), read(bob, "feed"), post(ann, 12), post(ann, 13))
		s.feed(bob, 2)
		s.do(undo(post(ann, 12)))
		s.feed(bob, 1)
		s.do(undo(post(ann, 11)))
		s.feed(bob, 1)
		s.posted(bob, 13)
	})
}

// "post, delete, post": the post is listed once, at the later place.
func TestPostDeletePost(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), post(ann, 11), undo(post(ann, 11)))
		s.feed(bob, 0)
		s.do(read(bob, "feed"), post(ann, 11))
		s.feed(bob, 1)
		s.posted(bob, 11)
		s.column(ann, "post", 1)
		s.pack(undo(post(ann, 11)), post(ann, 11), undo(post(ann, 11)), post(ann, 11), undo(post(ann, 11)))
		s.feed(bob, 0)
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
		s.column(ann, "follower", 1)
		s.unread(ann, "follower", 1)
		s.column(ann, "post", 1)
		s.posted(bob, 11)
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		s.do(post(ann, 11)) // still at its first place
		s.do(readAsOf(bob, 0, "feed", "channel:system"))
		s.feed(bob, 0)
		for range 2 {
			s.do(undo(follow(bob, ann)), undo(post(ann, 11)), undo(notice("system", 1)))
		}
		s.column(bob, "following", 0)
		s.column(ann, "follower", 0)
		s.pack(follow(bob, ann), follow(bob, ann), undo(follow(bob, ann)), undo(follow(bob, ann)), follow(bob, ann))
		s.column(bob, "following", 1)
		s.unread(ann, "follower", 3)
	})
}

// A post listed twice stays where it was first: who has read it has read it.
func TestPostTwiceStaysRead(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), post(ann, 11), read(bob, "feed"), post(ann, 11))
		s.feed(bob, 0)
		s.do(post(cleo, 11), follow(bob, cleo)) // another author's list is another
		s.feed(bob, 0)
		s.do(undo(post(cleo, 11)))
		s.posted(bob, 11)
	})
}

// "self-actions notify nobody"
func TestSelfActions(t *testing.T) {
	told(t, func(s *story) {
		s.do(post(ann, 11), comment(ann, 11, ann), like(ann, 11, ann), repost(ann, 12, 11, ann), mention(ann, ann))
		for _, kind := range unreadKinds {
			s.unread(ann, kind, 0)
		}
		s.column(ann, "commented", 1)
		s.column(ann, "liked", 1)
		s.column(ann, "reposted", 1)
		s.column(ann, "mentioned", 1)
		s.do(comment(bob, 11, ann), like(bob, 11, ann), repost(bob, 21, 11, ann), mention(bob, ann), direct(bob, ann))
		for _, kind := range unreadKinds {
			s.unread(ann, kind, map[bool]int64{true: 1}[kind != "follower"])
		}
		s.do(undo(comment(bob, 11, ann)), undo(like(bob, 11, ann)), undo(repost(bob, 21, 11, ann)), undo(mention(bob, ann)), undo(direct(bob, ann)))
		s.unread(ann, "like", 1) // "except on unread.*, which a deletion leaves alone"
		s.column(ann, "liked", 1)
	})
}

// "A mutual follow counts as a friend in either order, until either
// side unfollows"
func TestMutualFollow(t *testing.T) {
	for _, pair := range [][2]uint64{{ann, bob}, {bob, ann}} {
		for _, leaves := range [][2]uint64{{ann, bob}, {bob, ann}} {
			told(t, func(s *story) {
				friends := func(n int64) {
					s.Helper()
					s.column(ann, "friend", n)
					s.column(bob, "friend", n)
				}
				s.do(follow(pair[0], pair[1]))
				friends(0)
				s.do(follow(pair[1], pair[0]))
				friends(1)
				s.do(undo(follow(leaves[0], leaves[1])))
				friends(0)
				s.do(undo(follow(leaves[1], leaves[0])))
				friends(0)
				s.pack(follow(pair[0], pair[1]), follow(pair[1], pair[0]), undo(follow(leaves[0], leaves[1])), follow(leaves[0], leaves[1]))
				friends(1)
			})
		}
	}
}

// "A follow of oneself is a dead letter"
func TestSelfFollow(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(ann, ann), undo(follow(ann, ann)))
		s.letters(2)
		s.column(ann, "following", 0)
		s.column(ann, "follower", 0)
		s.pack(follow(bob, ann), follow(ann, ann), follow(cleo, ann)) // the others of the pack count
		s.letters(3)
		s.column(ann, "follower", 2)
	})
}

// A user who has never read
func TestNoReadEver(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), post(ann, 11), like(cleo, 21, bob), notice("system", 1), notice("games", 1))
		s.feed(bob, 1)
		s.unread(bob, "like", 1)
		s.later(100 * time.Hour) // never read, never dropped; the post has aged
		s.do(like(cleo, 22, bob))
		s.feed(bob, 0)
		s.unread(bob, "like", 2)
		s.dot(bob, "games", true)
		s.feed(dan, 0) // of whom nothing is known at all
		s.channel(dan, "system", 0)
		s.dot(dan, "games", true)
		s.dot(dan, "shop", false)
	})
}

// "5,000 followees"
func TestFiveThousandFollowees(t *testing.T) {
	w, err := newWorld(t.TempDir(), setup{shards: 8, owners: 2, dirtyRowsMax: 5000, every: 5 * time.Millisecond, ages: agesOf(3, 3600, 7200)})
	if err != nil {
		t.Fatal(err)
	}
	const followees, first = 5000, uint64(100)
	m := &model{ages: w.ages}
	fill := func(make func(i uint64) event) {
		t.Helper()
		var messages []message
		for i := uint64(0); i < followees; i += 500 {
			var p message
			for j := i; j < i+500; j++ {
				p.events = append(p.events, make(j))
			}
			messages = append(messages, p)
		}
		if err := w.publish(messages, 3, m); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(feed uint64, posts int) {
		t.Helper()
		if err := w.settle(); err != nil {
			t.Fatal(err)
		}
		a, err := w.answers([]uint64{ann}, 700)
		if err != nil {
			t.Fatal(err)
		}
		if a[0].Feed != feed || len(a[0].Posts) != posts || len(a[0].Following) != followees || a[0].Row[2] != followees {
			t.Fatalf("feed %d of %d, %d posts of %d, following %d", a[0].Feed, feed, len(a[0].Posts), posts, len(a[0].Following))
		}
		if !slices.IsSorted(a[0].Following) || !slices.IsSortedFunc(a[0].Posts, newestFirst) {
			t.Fatal("not in order")
		}
	}
	fill(func(i uint64) event { return post(first+i, 1) })
	fill(func(i uint64) event { return follow(ann, first+followees-1-i) })
	ask(0, followees)
	fill(func(i uint64) event { return post(first+i, 2) })
	ask(followees, 2*followees)
	err = w.publish([]message{{events: []event{read(ann, "feed"), post(first+7, 3), undo(post(first+8, 2))}}}, 3, m)
	if err != nil {
		t.Fatal(err)
	}
	ask(1, 2*followees)
	if err := errors.Join(w.restart(true), w.crash()); err != nil {
		t.Fatal(err)
	}
	ask(1, 2*followees)
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
}

// docs/contract.md: "The newest `feed.posts_per_author` *live* posts count: deletions
// make room for older ones as far as `feed.posts_kept` (4 × that) keeps them."
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
		s.do(undo(post(ann, 11)), post(ann, 11))
		s.posted(bob, 11, 13, 12)
		s.pack(post(ann, 15), post(ann, 16), post(ann, 17), post(ann, 18))
		s.posted(bob, 18, 17, 16)
		s.feed(bob, 3)
		s.column(ann, "post", 8)
	})
}

// Beyond posts_kept it stops being exact: what it has dropped does not come
// back, and may be posted again.
func TestKeptPosts(t *testing.T) {
	told(t, func(s *story) { // 12 are kept
		var posts, deletions []event
		for p := uint64(100); p < 120; p++ {
			posts = append(posts, post(ann, p))
		}
		for p := uint64(119); p > 109; p-- {
			deletions = append(deletions, undo(post(ann, p)))
		}
		s.do(follow(bob, ann))
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
		s.pack(follow(ann, bob), follow(bob, ann), adjust("following", ann, 10), follow(ann, cleo), adjust("friend", bob, 5), undo(follow(ann, bob)))
		s.column(ann, "following", 10) // 1, =10, 11, 10
		s.column(bob, "friend", 4)     // 1, =5, 4
		s.column(ann, "friend", 0)
		del := event{kind: "adjust", counter: "user", id: ann, del: true}
		s.pack(like(bob, 11, ann), follow(ann, dan), del, follow(cleo, ann), like(bob, 12, ann), follow(ann, bob))
		s.column(ann, "following", 1)
		s.column(ann, "follower", 1)
		s.column(ann, "liked", 1)
		s.column(ann, "friend", 2) // of cleo, and of bob again: the sets were not deleted
		s.unread(ann, "follower", 2)
		two := int64(2)
		s.pack(event{kind: "adjust", counter: "unread", column: "follower", id: ann, add: &two}, follow(dan, ann),
			readSeen(ann, "follower", 4), undo(follow(dan, ann)), follow(dan, ann))
		s.unread(ann, "follower", 2) // 4, 5, 1, 1, 2
	})
}

// docs/contract.md: "`tidemark.following`, `tidemark.followers` … by id". Follows in any
// order, some undone.
func TestFollowersArePaged(t *testing.T) {
	told(t, func(s *story) {
		var packed []event
		for i := uint64(50); i > 20; i-- {
			packed = append(packed, follow(i, ann))
		}
		s.pack(packed...)
		s.pack(undo(follow(30, ann)), follow(bob, ann), undo(follow(21, ann)), follow(21, ann))
		s.column(ann, "follower", 30)
		a := s.about(ann)
		if len(a.Followers) != 30 || a.Followers[0] != bob || !slices.IsSorted(a.Followers) || slices.Contains(a.Followers, 30) {
			s.Errorf("followers %v", a.Followers)
		}
	})
}

// The answers name the position they reach, and every event at or before it
// is in them (I6); story.publish holds that of each. Here: an answer is shown,
// more comes, and the read with its as_of leaves that unread (I7).
func TestNothingAfterTheShownAnswerIsRead(t *testing.T) {
	told(t, func(s *story) {
		s.do(follow(bob, ann), read(bob, "all"), post(ann, 11), notice("system", 1), notice("games", 1))
		shown := s.w.end // the as_of of the answer
		s.feed(bob, 1)
		s.do(post(ann, 12), notice("system", 2), notice("games", 2))
		s.do(readAsOf(bob, 3, "feed", "channel:system", "channel:games"))
		if at, _ := (asOf{asOfBack, 3}).position(pipeline.At(uint64(len(s.w.log)), 0)); at != shown {
			s.Fatalf("the read says as_of %d, shown was %d", at, shown)
		}
		s.feed(bob, 1)
		s.channel(bob, "system", 1)
		s.dot(bob, "games", true)
		s.do(post(ann, 13), readAsOf(bob, 1, "all"))
		s.feed(bob, 1)
		s.channel(bob, "system", 0)
		s.dot(bob, "games", false)
	})
}

// What is listed by id is complete at any moment, also while it is on its way
// to the disk.
func TestFollowersDuringCheckpoints(t *testing.T) {
	w, err := newWorld(t.TempDir(), setup{shards: 1, owners: 1, dirtyRowsMax: 5000, every: time.Millisecond, ages: agesOf(3, 3600, 7200)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	m := &model{ages: w.ages}
	for i := range uint64(200) {
		if err := w.publish([]message{{events: []event{follow(100+i, ann)}}}, 0, m); err != nil {
			t.Fatal(err)
		}
		if err := w.settle(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if users, err := w.list(w.node.Followers, ann, 1000); err != nil || uint64(len(users)) != i+1 {
				t.Fatalf("%d of %d followers, %v", len(users), i+1, err)
			}
		}
	}
}
