package sinks_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
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
		for range 5 {
			if _, err := post(n, false, hotIDs...); err == nil {
				return true
			}
			time.Sleep(4 * time.Millisecond)
		}
		return false
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
	for round := 0; (round < 40 || read.Load() < old) && !t.Failed(); round++ {
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

// openFilling opens a store on a disk that is full when full says so.
func openFilling(t *testing.T, shards int) (store *cold.Store, full *atomic.Bool) {
	t.Helper()
	full = new(atomic.Bool)
	store, err := cold.Open(t.TempDir(), schema(), cold.Options{
		Shards: shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet,
		Free: func() (uint64, bool) {
			if full.Load() {
				return 1 << 20, true
			}
			return 1 << 40, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, full
}

// "When the disk is full during a checkpoint, writes stop and queries
// go on; when there is room again, nothing is lost".
func TestDiskFull(t *testing.T) {
	const shards = 2
	store, full := openFilling(t, shards)
	defer store.Close()
	o := options(shards)
	o.CheckpointEvery, o.DirtyRowsMax = 2*time.Millisecond, 100
	n := newNode(t, store, o)
	defer n.Close()
	w := newWorld(shards)
	w.likes(upTo(50)...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	await(t, "checkpointed", func() bool { return n.Checkpointed() == 1 })

	full.Store(true)
	for from := uint64(100); from < 10_000; from += 100 {
		w.likes(upBetween(from, from+100)...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan error, 1)
	go func() { followed <- n.Follow(ctx, w.tail(n.Sequence())) }()
	await(t, "told", func() bool { return errors.Is(n.CheckpointErr(), cold.ErrDiskFull) })
	await(t, "applying stops", func() bool {
		before := n.Applied()
		time.Sleep(20 * time.Millisecond)
		return n.Applied() == before
	})
	if n.Applied() == w.last() {
		t.Error("everything was applied with nowhere to put it")
	}
	if values, err := post(n, true, 1, 100); err != nil || !slices.Equal(values, []int64{1, 1}) {
		t.Errorf("queries: %v, %v", values, err)
	}

	full.Store(false)
	wait(t, n, w.last())
	if err := <-followed; err == nil || n.Err() != nil {
		t.Errorf("%v, %v", err, n.Err())
	}
	cancel()
	await(t, "good again", func() bool { return n.CheckpointErr() == nil && n.Checkpointed() == uint64(len(w.entries)) })
	w.same(t, n, upBetween(1, 10_000))
}

// A damaged file of runs is named, its shards stop, the others serve.
func TestDamagedFile(t *testing.T) {
	const shards, ids = 8, 200_000
	dir := t.TempDir()
	store := openStore(t, dir, shards)
	o := options(shards)
	o.DirtyRowsMax, o.CheckpointEvery = 5000, time.Millisecond
	n := newNode(t, store, o)
	w := newWorld(shards)
	for from := uint64(1); from < ids; from += 4000 {
		w.likes(upBetween(from, from+4000)...)
	}
	follow(t, n, w.tail(0))
	if err := errors.Join(n.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, %v", files, err)
	}
	damaged := files[len(files)/2]
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 0xff
	if err := os.WriteFile(damaged, b, 0o644); err != nil {
		t.Fatal(err)
	}

	var log e2e.Lines
	store = openStore(t, dir, shards)
	defer store.Close()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n = newNode(t, store, o)
	defer n.Close()
	await(t, "found", func() bool { return n.Failed() > 0 })
	name := filepath.Base(damaged)
	if err := n.Err(); !errors.Is(err, cold.ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(log.String(), name) {
		t.Errorf("%s is not named: %v; the log has %s", name, err, log.String())
	}
	if n.Failed() >= shards {
		t.Fatalf("%d of %d shards have stopped", n.Failed(), shards)
	}
	served := 0
	var rows query.Rows
	if err := n.Rows(context.Background(), 0, []pipeline.Column{0}, upTo(1000), &rows, true); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if !slices.Contains(rows.Missing, i) {
			served++
			if rows.Values[i] != 1 {
				t.Errorf("post %d: %d", i+1, rows.Values[i])
			}
		}
	}
	if served == 0 || served == 1000 {
		t.Errorf("%d of 1000 rows are served", served)
	}
}

// All of an answer is as of one window's end, also where a row was in memory when
// the answer began, and was changed and evicted before it ended (I6, I8).
func TestEvictedWhileRead(t *testing.T) {
	store := openStore(t, t.TempDir(), 1)
	defer store.Close()
	o := options(1)
	o.CheckpointEvery, o.MemoryBytes = 100*time.Microsecond, 1
	n := newNode(t, store, o)
	defer n.Close()
	w := newWorld(1)
	w.likes(upBetween(1, 2000)...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	const hot = 1 << 40
	for range 2000 {
		w.likes(hot)
	}
	var stop atomic.Bool
	applied := make(chan struct{})
	defer func() { stop.Store(true); <-applied }()
	go func() {
		defer close(applied)
		for _, e := range w.entries[1:] {
			if stop.Load() {
				return
			}
			follow(t, n, &slice{[]pipeline.Entry{e}})
			time.Sleep(200 * time.Microsecond)
		}
	}()
	r := rand.New(rand.NewPCG(1, 2))
	for done := false; !done; {
		ids := []uint64{hot}
		for range 200 {
			ids = append(ids, 1+r.Uint64N(1999))
		}
		w.same(t, n, ids)
		select {
		case <-applied:
			done = true
		default:
		}
	}
}

// A full disk is not asked for a checkpoint again and again because memory is
// over its budget too.
func TestDiskFullOverBudget(t *testing.T) {
	store, full := openFilling(t, 1)
	defer store.Close()
	o := options(1)
	o.MemoryBytes = 1
	n := newNode(t, store, o)
	defer n.Close()
	full.Store(true)
	w := newWorld(1)
	for range 100 {
		w.likes(1)
		follow(t, n, w.tail(n.Sequence()))
		time.Sleep(6 * time.Millisecond)
	}
	wait(t, n, w.last())
	if failed := n.Stats.CheckpointErrors.Load(); failed == 0 || failed > 3 {
		t.Errorf("%d checkpoints failed within a second", failed)
	}
	full.Store(false)
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
