package tier_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// boundsAuthors are more than a new table of bounds has cells for.
const boundsAuthors = 4 * hot.NewestMin

func postsOf(authors ...uint64) (operations []pipeline.Operation) {
	for _, id := range authors {
		operations = append(operations, pipeline.Operation{Op: pipeline.OpPost, ID: id, Other: id + 1<<20})
	}
	return operations
}

func authorsFrom(first uint64) (ids []uint64) {
	for id := first; id < first+boundsAuthors; id++ {
		ids = append(ids, id)
	}
	return ids
}

// wantPosts: each of the authors has one post, for who lists them and for who
// counts them, where the disk may be read. Where it may not, all are there or
// ErrCold is.
func wantPosts(t *testing.T, when string, s *tier.Shard, authors []uint64) {
	t.Helper()
	var g shard.Gathering
	followees := make([]hot.Pair, len(authors))
	for i, id := range authors {
		followees[i].A = id
	}
	for _, disk := range []bool{true, false} {
		var listed []uint64
		_, err := s.Posts(followees, 1, math.MaxUint64, &g, &tier.Disk{May: disk}, func(author uint64, p hot.Pair) bool {
			if p.B != author+1<<20 {
				t.Errorf("%s: post %d of %d", when, p.B, author)
			}
			listed = append(listed, author)
			return true
		})
		slices.Sort(listed)
		if whole := err == nil || disk; whole && (err != nil || !slices.Equal(listed, authors)) {
			t.Errorf("%s: posts of %d authors of %d are listed, %v", when, len(listed), len(authors), err)
		}
		n, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts(followees, 0, &g, &tier.Disk{May: disk})
		if whole := err == nil || disk; whole && (err != nil || n != uint64(len(authors))) {
			t.Errorf("%s: %d posts of %d are counted, %v", when, n, len(authors), err)
		}
	}
}

// A bound of an author's newest post is never too low, wherever the outbox is: who is
// evicted keeps theirs when the table grows, and who was never in memory has one of
// what the disk says, or is looked for there.
func TestBoundsOfWhoIsNotInMemory(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	old, young := authorsFrom(1), slices.Concat(authorsFrom(1<<30), authorsFrom(1<<30+boundsAuthors))
	all := slices.Concat(old, young)
	apply(t, s, window(s, postsOf(old...)...))
	checkpoint(t, store, s)
	s.Shed(1)
	wantPosts(t, "evicted", s, old)
	for some := range slices.Chunk(young, 16) { // the table grows with them
		apply(t, s, window(s, postsOf(some...)...))
	}
	wantPosts(t, "evicted before the table grew", s, all)
	checkpoint(t, store, s)

	for _, room := range []int{0, 64, 1 << 20} { // for some authors, and for all
		s = restarted(t, store)
		parts := 0
		if err := s.Warm(tier.WarmOptions{Bytes: 1, Bounds: room, Entries: 64, More: func() bool { parts++; return parts < 5 }}); err != nil {
			t.Fatal(err)
		}
		wantPosts(t, "begun to look at bounds", s, all)
		if err := s.Warm(tier.WarmOptions{Bytes: 1, Bounds: room, Entries: 64, More: always}); err != nil {
			t.Fatal(err)
		}
		wantPosts(t, "all have a bound", s, all)
		more := authorsFrom(1 << 31)
		for some := range slices.Chunk(more, 16) {
			apply(t, s, window(s, postsOf(some...)...))
		}
		wantPosts(t, "all have a bound, and the table grew", s, slices.Concat(all, more))
		s.Shed(1)
		wantPosts(t, "all have a bound, and memory was given up", s, slices.Concat(all, more))
	}
}

// What bounds an author who is on the disk is the newest post there, not the first.
func TestBoundsAreOfTheNewestPost(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	const author, apart = 7, 1 << 20 // cells of the table are 1 << 16
	apply(t, s, window(s, postsOf(author)...))
	late := window(s, pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: 5})
	late.Header.To += apart
	apply(t, s, late)
	from := s.State().Applied
	apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: 6}))
	checkpoint(t, store, s)
	s = restarted(t, store)
	if err := s.Warm(tier.WarmOptions{Bytes: 1, Bounds: 1 << 20, Entries: 64, More: always}); err != nil {
		t.Fatal(err)
	}
	s.Shed(1)
	var g shard.Gathering
	var listed []uint64
	_, err := s.Posts([]hot.Pair{{A: author}}, from, math.MaxUint64, &g, onDisk(), func(_ uint64, p hot.Pair) bool {
		listed = append(listed, p.B)
		return true
	})
	if err != nil || !slices.Equal(listed, []uint64{6}) {
		t.Errorf("posts %v from %d on, %v; want 6", listed, from, err)
	}
	n, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts([]hot.Pair{{A: author}}, from-1, &g, onDisk())
	if err != nil || n != 1 {
		t.Errorf("%d posts after %d, %v", n, from-1, err)
	}
}
