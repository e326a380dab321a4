package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// started is a node over an empty store; both are closed at the end.
func started(t *testing.T, o sinks.Options) *sinks.Node {
	t.Helper()
	store := openStore(t, t.TempDir(), o.Shards)
	n := newNode(t, store, o)
	t.Cleanup(func() {
		n.Close()
		store.Close()
	})
	return n
}

func missing(t fataler, n *sinks.Node, ids []uint64) (out []uint64) {
	t.Helper()
	ask(t, n, ids, func(_ int, _ pipeline.Column, _ int, rows *query.Rows) {
		out = nil
		for _, i := range rows.Missing {
			out = append(out, ids[i])
		}
	})
	slices.Sort(out)
	return out
}

// hangs is after how long a test says that something never comes: how fast it
// comes on a busy machine proves nothing.
const hangs = 5 * time.Minute

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
	}
}

// "anything else stops the shard with both numbers." (I3)
func TestGapStops(t *testing.T) {
	n, w := started(t, options(4)), newWorld(4)
	w.window(100, []int{0}, []change{{cell{0, 7}, pipeline.Add(1)}})
	w.window(100, []int{0}, []change{{cell{0, 7}, pipeline.Add(10)}})
	w.window(100, []int{0}, []change{{cell{0, 7}, pipeline.Add(100)}})
	follow(t, n, &slice{[]pipeline.Entry{w.entries[0], w.entries[2]}})
	await(t, "all stopped", func() bool { return len(n.Positions()) == 0 })
	err := n.Err()
	if !errors.Is(err, pipeline.ErrGap) || !strings.Contains(err.Error(), "position 100 ") || !strings.Contains(err.Error(), "(200, 300]") {
		t.Errorf("%v does not name both sides", err)
	}
	if got := missing(t, n, []uint64{7, 8}); len(got) != 2 {
		t.Errorf("missing %v", got)
	}
	if n.Applied() != 100 {
		t.Errorf("applied %d", n.Applied())
	}
	// What it lacks never mends by itself, not even by the window it lacked.
	follow(t, n, w.tail(1))
	if n.Close(); n.Err().Error() != err.Error() || n.Checkpointed() != 0 {
		t.Errorf("%v; checkpointed %d", n.Err(), n.Checkpointed())
	}
}

// A window that overlaps what was applied is a gap too.
func TestOverlapIsAGap(t *testing.T) {
	n := started(t, options(1))
	a, b := newWorld(1), newWorld(1)
	a.window(100, nil, nil)
	b.window(50, nil, nil)
	b.window(100, nil, nil)
	follow(t, n, &slice{[]pipeline.Entry{a.entries[0], b.entries[1]}})
	await(t, "a gap", func() bool { return n.Err() != nil })
	if err := n.Err(); !errors.Is(err, pipeline.ErrGap) || !strings.Contains(err.Error(), "(50, 150]") {
		t.Errorf("%v", err)
	}
}

// amidARound is a node that has written one shard of each owner, and will write
// the others before the second is over.
func amidARound(t *testing.T, store *cold.Store, shards, many, dirty int) (*sinks.Node, *world, []uint64) {
	t.Helper()
	o := options(shards)
	o.CheckpointEvery, o.DirtyRowsMax = time.Second, dirty
	n, w, ids := newNode(t, store, o), newWorld(shards), upTo(uint64(many))
	w.likes(ids...)
	follow(t, n, w.tail(0))
	await(t, "the rounds have begun", func() bool { return n.Stats.Checkpoints.Load() >= uint64(o.Owners) })
	return n, w, ids
}

// A shard that stops amid a window, while a round of checkpoints goes on that it
// is still to be part of, writes nothing of that window (I4).
func TestStopsAmidARound(t *testing.T) {
	const shards, many = 4, 6000
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	n, w, ids := amidARound(t, store, shards, many, 5000)
	defer n.Close()
	w.likes(ids...)
	win, err := pipeline.DecodeWindow(w.entries[1].Window)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range shards { // whichever is still to come
		win.Sections[shard] = append(win.Sections[shard], 3|30<<2, 7)
	}
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 2, Window: pipeline.AppendWindow(nil, win)}}})
	await(t, "the shards have stopped", func() bool { return n.Failed() == shards })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cells := make([]int64, 3)
	for _, id := range ids {
		shard := pipeline.ShardOf(id, shards)
		stack := store.Stack(shard)
		state, err := stack.State()
		if err == nil {
			view := stack.View()
			err = view.Rows(0, []uint64{id}, cells)
			view.Close()
		}
		if want := w.at(cell{0, id}, state.Applied); err != nil || cells[0] != want {
			t.Fatalf("row %d is %d on disk, want %d, as of %d: %v", id, cells[0], want, state.Applied, err)
		}
	}
}

// What is left of a round may have stopped when somebody waits for the round: it
// has come to its end, and the others go on.
func TestOthersGoOnAmidARound(t *testing.T) {
	const shards, many, stops = 4, 6000, 3
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	n, w, ids := amidARound(t, store, shards, many, 3000)
	defer n.Close()
	w.likes(ids[:10]...)
	win, err := pipeline.DecodeWindow(w.entries[1].Window)
	if err != nil {
		t.Fatal(err)
	}
	win.Sections[stops] = append(win.Sections[stops], 3|30<<2, 7)
	w.likes(upBetween(many+1, many+15_000)...) // more than shard 1 may collect
	w.likes(ids[:10]...)
	follow(t, n, &slice{slices.Concat([]pipeline.Entry{{Sequence: 2, Window: pipeline.AppendWindow(nil, win)}}, w.entries[2:])})
	wait(t, n, w.last())
	if n.Failed() != 1 {
		t.Errorf("%d shards have stopped", n.Failed())
	}
}

// "A failed shard (I3) stops alone; the others go on and answers name what is
// missing."
func TestOneShardStopsAlone(t *testing.T) {
	const shards = 4
	bad := pipeline.ShardOf(7, shards)
	sections := map[string][]byte{
		"an unknown operation": {3 | 30<<2, 7},
		"cut short":            pipeline.AppendChange(nil, 0, 7, pipeline.Add(1<<40))[:3],
		"no such column":       pipeline.AppendChange(nil, 9, 7, pipeline.Add(1)),
		"id 0":                 pipeline.AppendChange(nil, 0, 0, pipeline.Add(1)),
	}
	for name, section := range sections {
		t.Run(name, func(t *testing.T) {
			o := options(shards)
			o.Owners = 3
			dir := t.TempDir()
			store := openStore(t, dir, shards)
			n, w, ids := newNode(t, store, o), newWorld(shards), upTo(30)
			r := rand.New(rand.NewPCG(3, 4))
			w.random(r, 3, 20, 30)
			follow(t, n, w.tail(0))
			wait(t, n, w.last())
			if err := n.Close(); err != nil { // checkpointed here
				t.Fatal(err)
			}
			n = newNode(t, store, o)
			before := w.last()
			win, err := pipeline.DecodeWindow(func() []byte { w.random(r, 1, 20, 30); return w.entries[3].Window }())
			if err != nil {
				t.Fatal(err)
			}
			win.Sections[bad] = slices.Concat(win.Sections[bad], section)
			w.random(r, 5, 20, 30)
			follow(t, n, &slice{slices.Concat([]pipeline.Entry{{Sequence: 4, Window: pipeline.AppendWindow(nil, win)}}, w.entries[4:])})
			wait(t, n, w.last())

			var want, rest []uint64
			for _, id := range ids {
				if pipeline.ShardOf(id, shards) == bad {
					want = append(want, id)
				} else {
					rest = append(rest, id)
				}
			}
			if got := missing(t, n, ids); !slices.Equal(got, want) {
				t.Errorf("missing %v, want %v", got, want)
			}
			if asOf := w.same(t, n, rest); asOf != w.last() {
				t.Errorf("as of %d, want %d", asOf, w.last())
			}
			if err := n.Err(); !errors.Is(err, pipeline.ErrWindow) || !strings.Contains(err.Error(), fmt.Sprintf("shard %d", bad)) {
				t.Errorf("%v", err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if kept := n.Kept(); !slices.Equal(kept, []pipeline.Position{before, w.last()}) {
				t.Errorf("kept at %v, want %v and %v: the next start is from there", kept, before, w.last())
			}
			if n.Checkpointed() != 3 {
				t.Errorf("window 4 is needed again, and all up to %d may be purged", n.Checkpointed())
			}
			// Nothing of the half-applied window is on disk (I4); with the right
			// window it goes on.
			n = newNode(t, store, o)
			if got := n.Positions(); !slices.Equal(got, []pipeline.Position{before, w.last()}) || n.Sequence() != 3 {
				t.Errorf("stands at %v, after window %d", got, n.Sequence())
			}
			w.sameByShard(t, n, ids)
			follow(t, n, w.tail(n.Sequence()))
			wait(t, n, w.last())
			w.same(t, n, ids)
			if err := errors.Join(n.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFollowRefuses(t *testing.T) {
	n := started(t, options(2))
	good := pipeline.Window{Header: pipeline.Header{To: 10}, Columns: []string{"post.like"}, Sections: make([][]byte, 3)}
	many, one := good, good
	many.Sections = make([][]byte, 5)
	one.Sections = nil
	flipped := pipeline.AppendWindow(nil, &good)
	flipped[5] ^= 1
	for part, b := range map[string][]byte{
		"has 4 shards and this node has 2": pipeline.AppendWindow(nil, &many),
		"shards and this node has 2":       pipeline.AppendWindow(nil, &one),
		"checksum":                         flipped,
	} {
		err := n.Follow(t.Context(), &slice{[]pipeline.Entry{{Sequence: 5, Window: b}}})
		if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "window 5") {
			t.Errorf("%v does not say %q and which window", err, part)
		}
	}
	// Nothing was applied, and the right window still is.
	if n.Applied() != 0 || n.Sequence() != 0 || n.Err() != nil {
		t.Errorf("applied %d, sequence %d, %v", n.Applied(), n.Sequence(), n.Err())
	}
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 5, Window: pipeline.AppendWindow(nil, &good)}}})
	wait(t, n, 10)
}

// A column that this node does not have is no matter until something counts it.
func TestUnknownColumn(t *testing.T) {
	n := started(t, options(1))
	w := pipeline.Window{
		Header: pipeline.Header{To: 10}, Columns: []string{"post.like", "post.smile"},
		Sections: [][]byte{pipeline.AppendChange(pipeline.AppendChange(nil, 0, 1, pipeline.Add(1)), 1, 1, pipeline.Set(0)), nil},
	}
	counted := w
	counted.Header = pipeline.Header{From: 10, To: 20}
	counted.Sections = [][]byte{pipeline.AppendChange(nil, 1, 1, pipeline.Add(1)), nil}
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 1, Window: pipeline.AppendWindow(nil, &w)}}})
	wait(t, n, 10)
	if n.Err() != nil {
		t.Fatal(n.Err())
	}
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 2, Window: pipeline.AppendWindow(nil, &counted)}}})
	await(t, "stopped", func() bool { return n.Failed() == 1 })
	if !strings.Contains(n.Err().Error(), "column post.smile") {
		t.Error(n.Err())
	}
}

// A tailer's own error comes back as it is, and Follow may be called again.
func TestFollowReturnsTailersError(t *testing.T) {
	n := started(t, options(2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Follow(ctx, blocked{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if err := n.Follow(t.Context(), newWorld(2).tail(0)); err != io.EOF {
		t.Fatalf("%v", err)
	}
}

type blocked struct{}

func (blocked) Next(ctx context.Context) ([]pipeline.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (blocked) Close() error { return nil }

// Shards and owners in every proportion, readers all the while.
func TestReadersDuringWrites(t *testing.T) {
	for _, shards := range []int{1, 3, 64} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			o := options(shards)
			o.Owners, o.CheckpointEvery, o.DirtyRowsMax = 2, time.Millisecond, 50
			n, w, ids := started(t, o), newWorld(shards), upTo(300)
			w.random(rand.New(rand.NewPCG(5, 6)), 150, 60, 300)
			ctx, stop := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					last := pipeline.Position(0)
					for ctx.Err() == nil {
						w.sameByShard(report{t}, n, ids[:60])
						if p := n.Applied(); p < last {
							t.Errorf("Applied went back from %d to %d", last, p)
						} else {
							last = p
						}
						n.ShardStats()
						n.Err()
						n.Time()
						n.Checkpointed()
					}
				})
			}
			readers.Go(func() {
				for _, p := range w.ends {
					wait(report{t}, n, p)
					if p > n.Applied() {
						t.Errorf("woken for %d at %d", p, n.Applied())
					}
				}
			})
			follow(t, n, w.tail(0))
			wait(t, n, w.last())
			stop()
			readers.Wait()
			w.same(t, n, ids)
			if n.Time() != 150 {
				t.Errorf("time %d", n.Time())
			}
			// The same ids twice, and none at all.
			w.same(t, n, []uint64{5, 1 << 60, 5, 6, 5})
			if asOf := w.same(t, n, nil); asOf != w.last() {
				t.Errorf("as of %d of no ids", asOf)
			}
		})
	}
}

// report lets other goroutines than the test's report.
type report struct{ *testing.T }

func (r report) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

// More owners than shards, and checkpoints after Close alone.
func TestCloseCheckpointsEverything(t *testing.T) {
	o := options(3)
	o.Owners = 5
	dir, w := t.TempDir(), newWorld(3)
	w.random(rand.New(rand.NewPCG(7, 8)), 20, 30, 50)
	store := openStore(t, dir, 3)
	n := newNode(t, store, o)
	follow(t, n, w.tail(0))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Close(), store.Close()); err != nil { // Close twice is no harm
		t.Fatal(err)
	}
	store = openStore(t, dir, 3)
	defer store.Close()
	n = newNode(t, store, o)
	if n.Sequence() != 20 || n.Applied() != w.last() || n.Checkpointed() != 20 || n.Time() != 20 {
		t.Errorf("sequence %d, applied %d, checkpointed %d, time %d", n.Sequence(), n.Applied(), n.Checkpointed(), n.Time())
	}
	w.same(t, n, upTo(50))
	follow(t, n, w.tail(0)) // all again: dropped (I3)
	if err := n.Close(); err != nil || n.Stats.CheckpointRows.Load() != 0 {
		t.Errorf("%v; %d rows were checkpointed again", err, n.Stats.CheckpointRows.Load())
	}
	w.same(t, n, upTo(50))
}

// A checkpoint that fails keeps its rows dirty, is counted, and neither
// answers nor Close suffer.
func TestCheckpointFails(t *testing.T) {
	o := options(2)
	o.CheckpointEvery, o.DirtyRowsMax = 5*time.Millisecond, 10
	dir, w, ids := t.TempDir(), newWorld(2), upTo(200)
	store := openStore(t, dir, 2)
	n := newNode(t, store, o)
	r := rand.New(rand.NewPCG(9, 10))
	w.random(r, 10, 10, 200)
	follow(t, n, w.tail(0))
	await(t, "checkpointed", func() bool { return n.Checkpointed() == 10 })
	durable := w.last()

	store.Close() // from here on every commit fails
	w.random(r, 100, 20, 200)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := n.Follow(ctx, w.tail(10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("rather than take more the node waits; Follow: %v", err)
	}
	await(t, "counted", func() bool { return n.Stats.CheckpointErrors.Load() > 0 })
	dirty := 0
	for _, s := range n.ShardStats() {
		dirty += s.Dirty
	}
	if dirty == 0 {
		t.Error("no row is dirty")
	}
	w.sameByShard(t, n, ids)
	begun := time.Now()
	if err := n.Close(); err == nil || !strings.Contains(err.Error(), "checkpoint") {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	if n.Checkpointed() != 10 {
		t.Errorf("checkpointed %d", n.Checkpointed())
	}

	store = openStore(t, dir, 2)
	defer store.Close()
	n = newNode(t, store, o)
	defer n.Close()
	if n.Applied() != durable {
		t.Errorf("stands at %d, want %d", n.Applied(), durable)
	}
	w.same(t, n, ids)
	follow(t, n, w.tail(n.Sequence()))
	wait(t, n, w.last())
	w.same(t, n, ids)
}

// However large windows are, what a shard holds is handed over (I4), and a shard
// with too many changed rows takes no window more before.
func TestLargeWindows(t *testing.T) {
	o := options(1)
	o.Owners, o.DirtyRowsMax = 1, 9*largeUnit
	store := openStore(t, t.TempDir(), 1)
	defer store.Close()
	n, w := newNode(t, store, o), newWorld(1)
	id := uint64(0)
	for _, rows := range []int{8 * largeUnit, 40 * largeUnit, 9*largeUnit - 1, 6 * largeUnit, 9 * largeUnit, 9 * largeUnit, 40 * largeUnit} {
		var list []change
		for range rows {
			id++
			list = append(list, change{cell{0, id}, pipeline.Add(int64(id))})
		}
		w.window(10, []int{0}, list)
	}
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	if n.Stats.CheckpointErrors.Load() != 0 || n.Err() != nil || n.Stats.CheckpointsForced.Load() == 0 {
		t.Fatalf("%d checkpoints failed, %d were forced; %v", n.Stats.CheckpointErrors.Load(), n.Stats.CheckpointsForced.Load(), n.Err())
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = newNode(t, store, o)
	defer n.Close()
	w.same(t, n, upTo(id))
}

// After a crash shards stand at different windows; one that is too far behind
// for what comes stops, and the others go on (I3).
func TestShardsAtDifferentWindows(t *testing.T) {
	const shards = 3
	w := newWorld(shards)
	w.random(rand.New(rand.NewPCG(11, 12)), 4, 40, 30)
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	n := newNode(t, store, options(shards))
	follow(t, n, &slice{w.entries[:1]})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	// Shard 1 stands one window further.
	win, err := pipeline.DecodeWindow(w.entries[1].Window)
	if err != nil {
		t.Fatal(err)
	}
	ahead := *win
	ahead.Sections = make([][]byte, shards+1)
	ahead.Sections[1] = win.Sections[1]
	n = newNode(t, store, options(shards))
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 2, Window: pipeline.AppendWindow(nil, &ahead)}}})
	state := w.ends[1]
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []pipeline.Shard{0, 2} { // take the others back to window 1: they saw an empty section
		c := store.Begin()
		st, err := store.Stack(s).State()
		if err != nil {
			t.Fatal(err)
		}
		st.Applied, st.Sequence = state, 1
		c.Shard(s).State(st)
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		store.Stack(s).Publish()
	}
	n = newNode(t, store, options(shards))
	if got := n.Positions(); !slices.Equal(got, w.ends[1:3]) || n.Sequence() != 1 || n.Applied() != w.ends[1] || n.Checkpointed() != 1 {
		t.Errorf("stands at %v after window %d, applied %d", got, n.Sequence(), n.Applied())
	}
	w.sameByShard(t, n, upTo(30))
	follow(t, n, w.tail(2)) // from too far on
	wait(t, n, w.last())
	var want []uint64
	for _, id := range upTo(30) {
		if pipeline.ShardOf(id, shards) != 1 {
			want = append(want, id)
		}
	}
	if got := missing(t, n, upTo(30)); !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	n.Close()
	n = newNode(t, store, options(shards))
	follow(t, n, w.tail(n.Sequence())) // from where it says
	wait(t, n, w.last())
	w.same(t, n, upTo(30))
	n.Close()
}

// A state that names windows which DELTAS has lost does not ask for them (I10).
func TestSequenceMax(t *testing.T) {
	o, w := options(2), newWorld(2)
	w.random(rand.New(rand.NewPCG(13, 14)), 5, 10, 9)
	store := openStore(t, t.TempDir(), 2)
	defer store.Close()
	n := newNode(t, store, o)
	follow(t, n, w.tail(0))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.SequenceMax = 3
	n = newNode(t, store, o)
	defer n.Close()
	if n.Sequence() != 3 || n.Applied() != w.last() {
		t.Errorf("after window %d, at %d", n.Sequence(), n.Applied())
	}
	w.same(t, n, upTo(9))
}

// Nothing is applied or committed but in a turn.
func TestTurns(t *testing.T) {
	const shards = 8
	turns := pipeline.NewTurns(1)
	o := options(shards)
	o.Owners, o.Turn = 4, turns.Do
	n, w := started(t, o), newWorld(shards)
	w.likes(upTo(500)...)
	w.likes(upTo(500)...)
	end := w.ends[len(w.ends)-1]
	const moment = 100 * time.Millisecond

	turns.Take()
	follow(t, n, w.tail(0))
	if time.Sleep(moment); n.Applied() != 0 {
		t.Errorf("it is applied up to %d without a turn", n.Applied())
	}
	turns.Give()
	await(t, "all is applied", func() bool { return n.Applied() == end })

	turns.Take()
	closed := make(chan error)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		t.Errorf("it is closed: %v", err)
	case <-time.After(moment):
	}
	if n.Stats.Checkpoints.Load() != 0 {
		t.Error("it is checkpointed without a turn")
	}
	turns.Give()
	if err := <-closed; err != nil || n.Checkpointed() != uint64(len(w.entries)) {
		t.Errorf("%v; checkpointed up to window %d", err, n.Checkpointed())
	}
}
