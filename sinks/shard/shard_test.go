package shard_test

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore is a store of some columns, "post.like" and "user.post" if none
// are named; those of a counter are neighbours.
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
		columns = append(columns, pipeline.ColumnSpec{Counter: len(counters) - 1, Name: column, Bits: 16})
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

type cell struct {
	counter int
	id      uint64
}

// Commits fail and succeed, with changes in between: after each that succeeds
// the disk is as of the shard's state when it was handed over (I4), and rows
// of those that failed are not forgotten (I8).
func TestRedoTwin(t *testing.T) {
	store := openStore(t)
	rapid.Check(t, func(t *rapid.T) {
		clean(t, store)
		s := shard.New(0, store.Schema(), shard.Limits{PostsMax: 10, Retention: 100, Inactive: 100}, shard.NewClock(100), cold.State{})
		now, handed := map[cell]int64{}, map[cell]int64{}
		var state cold.State
		var batch *cold.Checkpoint
		rows := 0
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				w := &pipeline.Window{Header: pipeline.Header{From: s.State().Applied, To: s.State().Applied + 5}, Sections: make([][]byte, 2)}
				changes := rapid.IntRange(0, 6).Draw(t, "changes")
				for range changes {
					c := cell{rapid.IntRange(0, 1).Draw(t, "counter"), rapid.Uint64Range(1, 12).Draw(t, "id")}
					d := rapid.SampledFrom([]pipeline.Delta{pipeline.Add(1), pipeline.Set(0), pipeline.Add(-3), pipeline.Take(2)}).Draw(t, "delta")
					w.Sections[0] = pipeline.AppendChange(w.Sections[0], c.counter, c.id, d)
					now[c] = d.Apply(now[c])
				}
				if pending := s.Pending(); !s.Fits(w, pending+changes) || changes > 0 && s.Fits(w, pending+changes-1) {
					t.Fatalf("%d changes on top of %d rows", changes, pending)
				}
				if err := s.Apply(s.State().Sequence+1, w, []pipeline.Column{0, 1}); err != nil {
					t.Fatal(err)
				}
				if err := s.Apply(math.MaxUint64, w, nil); err != nil || s.State().Sequence == math.MaxUint64 { // again: dropped (I3)
					t.Fatalf("%v, %+v", err, s.State())
				}
			},
			"handOver": func(t *rapid.T) {
				if batch != nil || !s.Moved() {
					t.Skip("nothing to hand over")
				}
				before := s.Dirty()
				batch = store.Begin()
				s.HandOver(batch.Version())
				rows = s.Pending() - s.Dirty()
				if s.Moved() || s.Dirty() != 0 || rows != before || s.Pending() != before {
					t.Fatalf("of %d dirty rows %d were handed over, %d are left", before, rows, s.Dirty())
				}
				clear(handed)
				for c, v := range now {
					handed[c] = v
				}
				state = s.State()
			},
			"commit": func(t *rapid.T) {
				if batch == nil {
					t.Skip("nothing is under way")
				}
				if err := errors.Join(s.Write(store, batch), batch.Commit()); err != nil {
					t.Fatal(err)
				}
				s.Settle(true)
				batch.Settle()
				batch = nil
				onDisk(t, store, state, handed)
				if s.Durable() != state.Sequence || s.Pending() != s.Dirty() {
					t.Fatalf("durable %d, pending %d", s.Durable(), s.Pending())
				}
			},
			"fail": func(t *rapid.T) {
				if batch == nil {
					t.Skip("nothing is under way")
				}
				batch.Discard()
				s.Settle(false)
				batch.Settle()
				batch = nil
				if !s.Moved() || s.Dirty() < rows || s.Pending() != s.Dirty() {
					t.Fatalf("moved %v, dirty %d of %d", s.Moved(), s.Dirty(), rows)
				}
			},
		})
		if batch != nil {
			batch.Discard()
			batch.Settle()
		}
	})
}

// clean takes rows and state of earlier runs off the disk.
func clean(t *rapid.T, store *cold.Store) {
	c := store.Begin()
	defer c.Settle()
	for counter := range 2 {
		for id := range uint64(13) {
			if err := c.Row(0, counter, id, []int64{0}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(c.State(0, cold.State{}), c.Commit()); err != nil {
		t.Fatal(err)
	}
}

func onDisk(t *rapid.T, store *cold.Store, state cold.State, want map[cell]int64) {
	if got, err := store.State(0); err != nil || got != state {
		t.Fatalf("state %+v, %v; want %+v", got, err, state)
	}
	got := map[cell]int64{}
	if err := store.View(cold.Newest, func(v *cold.View) error {
		return v.Rows(0, &cold.Part{Most: math.MaxInt}, func(counter int, id uint64, cells []int64) error {
			got[cell{counter, id}] = cells[0]
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	for c, v := range want {
		if stored, ok := got[c]; stored != v || ok != (v != 0) {
			t.Fatalf("%+v is %d on disk (%v), want %d", c, stored, ok, v)
		}
		delete(got, c)
	}
	if len(got) > 0 {
		t.Fatalf("more on disk than there is: %v", got)
	}
}

func TestSaturationIsCounted(t *testing.T) {
	s := shard.New(0, openStore(t).Schema(), shard.Limits{PostsMax: 10}, shard.NewClock(1), cold.State{})
	w := &pipeline.Window{Header: pipeline.Header{To: 1}, Sections: [][]byte{pipeline.AppendChange(nil, 0, 1, pipeline.Set(math.MaxInt64)), nil}}
	if err := s.Apply(1, w, []pipeline.Column{0}); err != nil {
		t.Fatal(err)
	}
	if stats := s.Stats(); stats.Columns[0].Saturated != 1 || stats.Counters[0].Rows != 1 || stats.Counters[1].Rows != 0 || stats.Dirty != 1 || stats.Bytes <= 0 {
		t.Errorf("%+v", stats)
	}
}
