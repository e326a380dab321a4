package tier_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// docs/contract.md: "The newest `feed.posts_per_author` *live* posts count: deletions make
// room for older ones as far as `feed.posts_kept` … keeps them."
func TestDeletionsMakeRoomForOlderPosts(t *testing.T) {
	store := openStore(t)
	open := func(state shard.State) *tier.Shard {
		limits := shard.Limits{PostsMax: 1000, PostsKept: 1200, Retention: 1000, Inactive: 1000}
		return tier.New(shard.New(0, store.Schema(), limits, shard.NewClock(1000), state), store)
	}
	s := open(shard.State{})
	const author = 9
	unread := func(after pipeline.Position) uint64 {
		t.Helper()
		var g shard.Gathering
		n, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts([]hot.Pair{{A: author}}, after, &g, onDisk())
		if err != nil {
			t.Fatal(err)
		}
		listed, newest := uint64(0), uint64(1<<62)
		_, err = s.Posts([]hot.Pair{{A: author}}, after+1, 1<<62, &g, onDisk(), func(_ uint64, p hot.Pair) bool {
			if p.A >= newest {
				t.Fatalf("position %d behind %d", p.A, newest)
			}
			newest = p.A
			listed++
			return true
		})
		if err != nil || listed != n {
			t.Fatalf("%d posts listed, %d counted, %v", listed, n, err)
		}
		return n
	}
	op := func(op pipeline.Op, posts ...uint64) {
		for _, post := range posts {
			apply(t, s, window(s, pipeline.Operation{Op: op, ID: author, Other: post}))
		}
	}
	for post := range uint64(1005) {
		op(pipeline.OpPost, post+1)
	}
	for _, where := range []string{"in memory", "on disk"} {
		if got := unread(0); got != 1000 {
			t.Fatalf("%s: %d of 1,005 posts count", where, got)
		}
		if where == "in memory" {
			op(pipeline.OpUnpost, 1005, 1004, 1003)
		}
		if got := unread(0); got != 1000 {
			t.Errorf("%s: %d posts count after three of 1,005 were deleted", where, got)
		}
		if where == "in memory" {
			checkpoint(t, store, s)
			s = open(s.State())
		}
	}
	op(pipeline.OpUnpost, 1, 2, 3)
	if got := unread(0); got != 999 {
		t.Errorf("%d posts count after six of 1,005 were deleted", got)
	}
	for post := range uint64(500) { // 1,499 were listed, the newest 1,200 stay
		op(pipeline.OpPost, 5001+post)
	}
	for post := range uint64(300) {
		op(pipeline.OpUnpost, 5500-post)
	}
	if got := unread(0); got != 900 {
		t.Errorf("%d posts count after 300 of the 1,200 kept were deleted", got)
	}
	op(pipeline.OpPost, 5200, 5200) // listed already
	if got := unread(0); got != 900 {
		t.Errorf("%d posts count after one was listed twice", got)
	}
}
