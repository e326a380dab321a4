package tier_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

var limits = shard.Limits{PostsMax: 10, Retention: 100, Inactive: 100}

// openStore is a store of some columns, "post.like" and "user.post" if none
// are named; those of a counter are neighbours. Of those that sets names, rules say
// `once`.
func openStore(t testing.TB, full ...string) *cold.Store {
	t.Helper()
	if len(full) == 0 {
		full = []string{"post.like", "user.post"}
	}
	var counters []string
	var columns []pipeline.ColumnSpec
	for _, name := range full {
		counter, column, _ := strings.Cut(name, ".")
		if !slices.Contains(counters, counter) {
			counters = append(counters, counter)
		}
		columns = append(columns, pipeline.ColumnSpec{Counter: len(counters) - 1, Name: column, Bits: 16, Set: sets[name]})
	}
	schema, err := pipeline.NewSchema(counters, columns)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cold.Open(t.TempDir(), schema, cold.Options{Shards: 1, MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func onDisk() *tier.Disk { return &tier.Disk{May: true} }

// window is the next one of a shard, with one section.
func window(s *tier.Shard, operations ...pipeline.Operation) *pipeline.Window {
	from := s.State().Applied
	w := &pipeline.Window{Header: pipeline.Header{From: from, To: from + max(10, pipeline.Position(len(operations))+1)}, Sections: make([][]byte, 2)}
	for i := range operations {
		operations[i].Position = from + pipeline.Position(i) + 1
		operations[i].Mark = operations[i].Position
		w.Sections[0] = pipeline.AppendOperation(w.Sections[0], from, &operations[i])
	}
	return w
}

// apply applies the next window as an owner does.
func apply(t testing.TB, s *tier.Shard, w *pipeline.Window) {
	t.Helper()
	if err := errors.Join(s.Prepare(w, []pipeline.Column{0, 1}), s.Apply(s.State().Sequence+1, w, []pipeline.Column{0, 1})); err != nil {
		t.Fatal(err)
	}
}

func checkpoint(t testing.TB, store *cold.Store, s *tier.Shard) {
	t.Helper()
	c := store.Begin()
	s.HandOver()
	s.Write(c)
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Settle(true)
}

// restarted is a shard that holds nothing of what the store has.
func restarted(t testing.TB, store *cold.Store) *tier.Shard {
	t.Helper()
	state, err := store.Stack(0).State()
	if err != nil {
		t.Fatal(err)
	}
	return tier.New(shard.New(0, store.Schema(), limits, shard.NewClock(100), state), store)
}

func always() bool { return true }

// An outbox whose only posts are not on disk yet may be evicted; what is loaded
// after that is not all there is (I8).
func TestWarmAfterNewOutboxWasEvicted(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpPost, ID: 1, Other: 100}))
	checkpoint(t, store, s)

	s = restarted(t, store)
	apply(t, s, window(s, pipeline.Operation{Op: pipeline.OpPost, ID: 2, Other: 200}))
	s.Shed(1)
	if err := s.Warm(tier.WarmOptions{Bytes: tier.Everything, Entries: 64, More: always}); err != nil {
		t.Fatal(err)
	}
	var g shard.Gathering
	count, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts([]hot.Pair{{A: 1}, {A: 2}}, 0, &g, onDisk())
	if err != nil || count != 2 {
		t.Errorf("%d posts of 2, %v", count, err)
	}
}

// An operation of nobody stops the shard, also when what it wants is read
// ahead.
func TestOperationOfNobody(t *testing.T) {
	for _, op := range []pipeline.Op{pipeline.OpFollow, pipeline.OpFollowed, pipeline.OpPost, pipeline.OpUnpost, pipeline.OpRead} {
		store := openStore(t)
		s := restarted(t, store)
		apply(t, s, window(s))
		checkpoint(t, store, s)
		s = restarted(t, store)
		w := window(s, pipeline.Operation{Op: op, Other: 7})
		if err := s.Prepare(w, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(2, w, nil); !errors.Is(err, pipeline.ErrWindow) {
			t.Errorf("operation %d: %v", op, err)
		}
	}
}

// An id is in the rows or in the cache of read rows, never in both: reads that
// began before all was loaded leave nothing in the cache after.
func TestNothingCachedOfAWholeShard(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	w := window(s)
	w.Sections[0] = pipeline.AppendChange(nil, 0, 1, pipeline.Add(1))
	apply(t, s, w)
	checkpoint(t, store, s)

	for round := range uint64(20) {
		s = restarted(t, store)
		var reads sync.WaitGroup
		for reader := range uint64(4) {
			reads.Go(func() {
				var b tier.Batch
				for n := uint64(0); !s.Whole(); n++ {
					ids := make([]uint64, 200)
					for i := range ids {
						ids[i] = round<<60 + reader<<50 + n<<20 + uint64(i) + 2
					}
					if _, err := s.Read(0, ids, &b, onDisk(), func(int, []int64) {}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := s.Warm(tier.WarmOptions{Bytes: tier.Everything, Entries: 64, More: always}); err != nil {
			t.Fatal(err)
		}
		reads.Wait()
		if cached := s.Stats().Counters[0].Cached; cached != 0 {
			t.Fatalf("round %d: %d rows are cached", round, cached)
		}
	}
}

// A count reaches as far as the shards that go on.
func TestCountBesideAStoppedShard(t *testing.T) {
	store := openStore(t)
	s, stopped := restarted(t, store), restarted(t, store)
	apply(t, s, window(s))
	apply(t, s, window(s))
	stopped.Fail(errors.New("stopped"))
	followee := uint64(1)
	for pipeline.ShardOf(followee, 2) != 0 {
		followee++
	}
	var g shard.Gathering
	timeline := tier.NewTimeline([]*tier.Shard{s, stopped})
	if _, applied, err := timeline.CountPosts([]hot.Pair{{A: followee}}, 0, &g, &tier.Disk{}); err != nil || applied != 20 {
		t.Errorf("reaches %d, %v", applied, err)
	}
	if _, _, err := timeline.CountPosts([]hot.Pair{{A: followee}, {A: otherShard(followee)}}, 0, &g, &tier.Disk{}); err == nil {
		t.Error("answers for a stopped shard")
	}
}

func otherShard(id uint64) uint64 {
	for other := uint64(1); ; other++ {
		if pipeline.ShardOf(other, 2) != pipeline.ShardOf(id, 2) {
			return other
		}
	}
}

// Users with channels are read while a checkpoint hands over others' (by the
// race detector).
func TestUsersLoadedBesideCheckpoint(t *testing.T) {
	const users = 200
	store := openStore(t)
	s := restarted(t, store)
	for user := uint64(1); user <= users; user++ {
		apply(t, s, window(s,
			pipeline.Operation{Op: pipeline.OpRead, ID: user, Looked: pipeline.LookedFeed},
			pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: []string{fmt.Sprint("channel-", user)}}))
	}
	checkpoint(t, store, s)
	s = restarted(t, store)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for user := uint64(1); user <= users; user++ {
			var p shard.Profile
			if _, err := s.Profile(user, -1, []string{fmt.Sprint("channel-", user)}, &p, onDisk()); err != nil || p.Cursors[0] == 0 {
				t.Errorf("user %d: %v, %v", user, p.Cursors, err)
			}
		}
	}()
	for done := false; !done; {
		var operations []pipeline.Operation
		for user := uint64(1000); user < 1200; user++ {
			operations = append(operations, pipeline.Operation{Op: pipeline.OpRead, ID: user, Looked: pipeline.LookedFeed},
				pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: []string{"x"}})
		}
		w := window(s, operations...)
		w.To = operations[len(operations)-1].Position
		apply(t, s, w)
		checkpoint(t, store, s)
		select {
		case <-loaded:
			done = true
		default:
		}
	}
}

// A shard may be stopped by others while its owner applies (by the race detector).
func TestStoppedBesideApply(t *testing.T) {
	store := openStore(t)
	stopped := errors.New("stopped")
	for range 200 {
		s := restarted(t, store)
		c := shard.NewCommons(1, shard.NewClock(1), shard.State{}, nil, nil, shard.ChannelLimits{})
		var others sync.WaitGroup
		others.Go(func() { s.Fail(stopped) })
		others.Go(func() { c.Fail(stopped) })
		for s.State().Applied < 200 && s.Err() == nil {
			w := window(s)
			_, _ = s.Apply(1, w, nil), c.Apply(1, w, nil)
		}
		others.Wait()
	}
}

// Caches of read rows that hold nothing do not stand in for what is to go.
func TestShedBesideEmptyCaches(t *testing.T) {
	store := openStore(t)
	s := restarted(t, store)
	w := window(s)
	for id := uint64(1); id <= 300; id++ {
		w.Sections[0] = pipeline.AppendChange(w.Sections[0], 0, id, pipeline.Add(1))
	}
	apply(t, s, w)
	checkpoint(t, store, s)
	s.Watch()
	for range 10 {
		s.Shed(1.0 / 16)
	}
	if s.Stats().Evictions == 0 {
		t.Error("nothing was evicted")
	}
}
