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
	_, err := s.Prepare(w, []pipeline.Column{0, 1})
	if err = errors.Join(err, s.Apply(s.State().Sequence+1, w, []pipeline.Column{0, 1})); err != nil {
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
