package sinks_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
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

	// A window that overlaps what was applied is a gap too.
	n, w = started(t, options(1)), newWorld(1)
	other := newWorld(1)
	w.window(100, nil, nil)
	other.window(50, nil, nil)
	other.window(100, nil, nil)
	follow(t, n, &slice{[]pipeline.Entry{w.entries[0], other.entries[1]}})
	await(t, "a gap", func() bool { return n.Err() != nil })
	if err := n.Err(); !errors.Is(err, pipeline.ErrGap) || !strings.Contains(err.Error(), "(50, 150]") {
		t.Errorf("%v", err)
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
