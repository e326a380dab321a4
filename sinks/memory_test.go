package sinks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

// post is the likes of a post, read as disk says: it fails with query.ErrCold
// where it would have to read the disk and may not.
func post(n *sinks.Node, disk bool, ids ...uint64) ([]int64, error) {
	var rows query.Rows
	err := n.Rows(context.Background(), 0, []pipeline.Column{0}, ids, &rows, disk)
	if err == nil && len(rows.Missing) > 0 {
		err = errors.New("missing")
	}
	return slices.Clone(rows.Values), err
}

// likes makes one window that likes each of ids once.
func (w *world) likes(ids ...uint64) {
	var list []change
	for _, id := range ids {
		list = append(list, change{cell{0, id}, pipeline.Add(1)})
	}
	w.window(uint64(len(ids)), []int{0}, list)
}

func upBetween(from, to uint64) (ids []uint64) {
	for id := from; id < to; id++ {
		ids = append(ids, id)
	}
	return ids
}

// "A flood of reads of old posts neither blocks increments nor evicts
// the hot set": while every old row is read again and again, rows that are written now
// stay in memory.
func TestFloodOfOldReads(t *testing.T) {
	const shards, old, hot = 4, floodRows, 500
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	o.CheckpointEvery, o.MemoryBytes, o.DirtyRowsMax = 10*time.Millisecond, 1<<20, 5000
	n := newNode(t, store, o)
	defer n.Close()
	w := newWorld(shards)
	for from := uint64(1); from < old; from += 2000 {
		w.likes(upBetween(from, from+2000)...)
	}
	hotIDs := upBetween(1<<40, 1<<40+hot)
	w.likes(hotIDs...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	await(t, "memory is within its budget", func() bool { return n.Resident() <= o.MemoryBytes })

	liked := 1
	like := func() {
		w.likes(hotIDs...)
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
		liked++
	}
	// Some went before it was noted what is used, and some may go while memory
	// settles: these come back when they are read, and stay when they are
	// written then.
	await(t, "the hot rows are in memory", func() bool {
		if _, err := post(n, true, hotIDs...); err != nil {
			t.Fatal(err)
		}
		like()
		_, err := post(n, false, hotIDs...)
		return err == nil
	})

	var stop atomic.Bool
	var floods sync.WaitGroup
	var read atomic.Int64
	for i := range 2 {
		floods.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for !stop.Load() {
				ids := upTo(20)
				for j := range ids {
					ids[j] = 1 + r.Uint64N(old)
				}
				values, err := post(n, true, ids...)
				if err != nil || slices.ContainsFunc(values, func(v int64) bool { return v != 1 }) {
					t.Errorf("%v: %v", values, err)
					return
				}
				read.Add(int64(len(ids)))
			}
		})
	}
	cold, asked := 0, 0
	for round := 0; (round < 20 || read.Load() < old) && !t.Failed(); round++ {
		like()
		for _, id := range hotIDs {
			values, err := post(n, false, id)
			asked++
			if errors.Is(err, query.ErrCold) {
				cold++
			} else if err != nil || values[0] != int64(liked) {
				t.Fatalf("round %d: %v, %v", round, values, err)
			}
		}
	}
	stop.Store(true)
	floods.Wait()
	t.Logf("%d old rows read, %d of %d reads of hot rows were cold, %d bytes of %d", read.Load(), cold, asked, n.Resident(), o.MemoryBytes)
	if read.Load() < old {
		t.Errorf("that was no flood: %d rows", read.Load())
	}
	if cold > asked/100 {
		t.Errorf("%d of %d reads of hot rows were cold", cold, asked)
	}
}

// "Queries are answered at once after a restart; the hot set is loaded
// in the background."
func TestWarmStart(t *testing.T) {
	const shards, ids = 4, 30_000
	dir := t.TempDir()
	store := openStore(t, dir, shards)
	o := options(shards)
	n := newNode(t, store, o)
	w := newWorld(shards)
	for from := uint64(1); from < ids; from += 2000 {
		w.likes(upBetween(from, from+2000)...)
	}
	follow(t, n, w.tail(0))
	if err := errors.Join(n.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}

	store = openStore(t, dir, shards)
	defer store.Close()
	n = newNode(t, store, o)
	defer n.Close()
	if values, err := post(n, true, 1, 2, 77_777_777); err != nil || !slices.Equal(values, []int64{1, 1, 0}) {
		t.Fatalf("at once: %v, %v", values, err)
	}
	await(t, "all is loaded", func() bool { loaded, all := n.Warmth(); return loaded == all })
	for _, s := range n.ShardStats() {
		if !s.Whole {
			t.Error("a shard is not whole, and there is no budget")
		}
	}
	if _, err := post(n, false, upTo(ids)...); err != nil {
		t.Errorf("after that, without the disk: %v", err)
	}

	// With a budget: what was written last.
	w.likes(upBetween(1<<40, 1<<40+2000)...)
	follow(t, n, w.tail(n.Sequence()))
	if err := errors.Join(n.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, dir, shards)
	defer store.Close()
	o.MemoryBytes = 300 << 10
	n = newNode(t, store, o)
	defer n.Close()
	await(t, "loaded what fits", func() bool { loaded, all := n.Warmth(); return loaded == all })
	if n.Resident() > o.MemoryBytes {
		t.Errorf("%d bytes of %d", n.Resident(), o.MemoryBytes)
	}
	newest := 0
	for _, id := range upBetween(1<<40, 1<<40+2000) {
		if _, err := post(n, false, id); err == nil {
			newest++
		}
	}
	if newest < 1500 {
		t.Errorf("of the newest 2000 rows %d are in memory", newest)
	}
}

// "Notices count in `memory.budget`": they count in it, and what they
// take the shards give up.
func TestNoticesCountInTheBudget(t *testing.T) {
	const shards, notices = 4, 60_000
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	o.CheckpointEvery, o.MemoryBytes, o.DirtyRowsMax = 10*time.Millisecond, 3<<20, 5000
	n := newNode(t, store, o)
	defer n.Close()
	w := newWorld(shards)
	for from := uint64(1); from < 150_000; from += 2000 {
		w.likes(upBetween(from, from+2000)...)
	}
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	for from := uint64(1); from < notices; from += 1000 {
		at := w.last()
		w.window(1000, []int{0}, nil)
		e := &w.entries[len(w.entries)-1]
		win, err := pipeline.DecodeWindow(e.Window)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(1000) {
			notice := pipeline.Operation{Op: pipeline.OpNotice, ID: pipeline.Mix(from+i) | 1, Position: at + pipeline.Position(i) + 1, Channels: []string{"system"}}
			win.Sections[shards] = pipeline.AppendOperation(win.Sections[shards], at, &notice)
		}
		e.Window = pipeline.AppendWindow(nil, win)
	}
	follow(t, n, w.tail(n.Sequence()))
	wait(t, n, w.last())
	if _, live := n.Channels(); live != notices {
		t.Fatalf("%d notices", live)
	}
	if per := n.ChannelBytes() / notices; per < 8 || per > 60 {
		t.Errorf("%d bytes a notice", per)
	}
	await(t, "memory is within its budget", func() bool {
		w.likes(1) // an owner looks when something comes
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
		return n.Resident() <= o.MemoryBytes
	})
}
