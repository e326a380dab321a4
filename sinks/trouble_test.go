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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/sim"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// filling is a disk in memory, for a bubble of testing/synctest, that is full when it is told.
type filling struct {
	cold.Engine
	full atomic.Bool
}

// Room implements [cold.Engine].
func (f *filling) Room(bytes int64) error {
	if f.full.Load() {
		return cold.ErrDiskFull
	}
	return f.Engine.Room(bytes)
}

func openFilling(t fataler, shards int) (*cold.Store, *filling) {
	t.Helper()
	f := &filling{Engine: sim.NewServer().NewClient(0, nil).Mount(context.Background(), new(sim.Disk))}
	store, err := cold.OpenOn(f, schema(), shards, "n")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return store, f
}

// "When the disk is full during a checkpoint, writes stop and queries go on; when there is room
// again, nothing is lost". Nor is it asked again and again meanwhile, also where memory is over
// its budget; and Hold, Release and Close wait for no longer than they may.
func TestDiskFull(t *testing.T) {
	for _, memory := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			const shards, windows = 3, 60
			store, disk := openFilling(t, shards)
			o := options(shards)
			o.CheckpointEvery, o.DirtyRowsMax, o.MemoryBytes, o.Held = 20*time.Millisecond, 100, memory, []pipeline.Shard{0, 1}
			n, w := newNode(t, store, o), newWorld(shards)
			w.likes(upTo(50)...)
			follow(t, n, w.tail(0))
			await(t, "checkpointed", func() bool { return n.Checkpointed() == 1 })

			disk.full.Store(true)
			for i := range uint64(windows) {
				w.likes(upBetween(100+100*i, 200+100*i)...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := n.Follow(ctx, w.tail(1)); !errors.Is(err, context.DeadlineExceeded) || n.Applied() == w.last() {
				t.Errorf("everything was applied with nowhere to put it: %v", err)
			}
			if !errors.Is(n.CheckpointErr(), cold.ErrDiskFull) {
				t.Errorf("it says %v", n.CheckpointErr())
			}
			// Each owner tries again once a second.
			if failed := n.Stats.CheckpointErrors.Load(); failed == 0 || failed > 2*60*uint64(o.Owners) {
				t.Errorf("%d checkpoints failed within a minute", failed)
			}
			w.sameHeld(t, n, upTo(150), o.Held, true)
			for what, change := range map[string]func(context.Context) error{
				"hold shards [2]":    func(ctx context.Context) error { return n.Hold(ctx, 2) },
				"release shards [0]": func(ctx context.Context) error { return n.Release(ctx, 0) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := change(ctx)
				if cancel(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), what) {
					t.Errorf("%s: %v", what, err)
				}
				if _, all := n.Warmth(); all != 2 || !n.Holds(0) || n.Holds(2) {
					t.Errorf("after %v it holds %v", err, n.Standings())
				}
			}
			if err := n.Close(); !errors.Is(err, cold.ErrDiskFull) {
				t.Errorf("Close: %v", err)
			}

			n = newNode(t, store, o)
			if n.Sequence() != 1 {
				t.Errorf("it goes on after window %d", n.Sequence())
			}
			disk.full.Store(false)
			follow(t, n, w.tail(n.Sequence()))
			wait(t, n, w.last())
			w.sameHeld(t, n, upBetween(1, 100*windows), o.Held, true)
			if err := errors.Join(n.Close(), n.CheckpointErr(), store.Close()); err != nil || n.Checkpointed() != uint64(len(w.entries)) {
				t.Errorf("at the end: checkpointed %d, %v", n.Checkpointed(), err)
			}
		})
	}
}

// unknown is an operation that no shard knows.
var unknown = []byte{3 | 30<<2, 7}

// "A failed shard (I3) stops alone; the others go on and answers name what is missing." Nothing
// of a window that was half applied is on disk (I4), also where a round of checkpoints was under
// way that the shard was still to be part of; with the right window it goes on. FuzzApply has
// other windows that make no sense.
func TestOneShardStopsAlone(t *testing.T) {
	const shards, many = 4, 400
	bad := pipeline.ShardOf(7, shards)
	for what, every := range map[string]time.Duration{"between rounds": time.Hour, "amid a round": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			o := options(shards)
			o.Owners, o.CheckpointEvery, o.CommitRows = 1, every, 1
			store, _ := openFilling(t, shards)
			n, w, ids := newNode(t, store, o), newWorld(shards), upTo(many)
			r := rand.New(rand.NewPCG(3, 4))
			w.likes(ids...)
			follow(t, n, w.tail(0))
			if what == "amid a round" {
				await(t, "the round has begun", func() bool { return n.Stats.Checkpoints.Load() > 0 })
			} else if err := n.Close(); err != nil { // checkpointed here
				t.Fatal(err)
			} else {
				n = newNode(t, store, o)
			}
			before := w.last()
			w.random(r, 1, 200, many)
			win, err := pipeline.DecodeWindow(w.entries[1].Window)
			if err != nil {
				t.Fatal(err)
			}
			win.Sections[bad] = slices.Concat(win.Sections[bad], unknown)
			w.random(r, 5, 20, many)
			follow(t, n, &slice{slices.Concat([]pipeline.Entry{{Sequence: 2, Window: pipeline.AppendWindow(nil, win)}}, w.entries[2:])})
			wait(t, n, w.last())

			others := []pipeline.Shard{0, 1, 2, 3}
			others = slices.Delete(others, int(bad), int(bad)+1)
			w.sameHeld(t, n, ids, others, true)
			if err := n.Err(); !errors.Is(err, pipeline.ErrWindow) || !strings.Contains(err.Error(), "shard ") || n.Failed() != 1 {
				t.Errorf("%s: %v", what, err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if n.Checkpointed() > 1 {
				t.Errorf("%s: window 2 is needed again, and all up to %d may be purged", what, n.Checkpointed())
			}
			n = newNode(t, store, o)
			if at := n.Positions(); at[0] > before || at[len(at)-1] != w.last() || n.Sequence() > 1 {
				t.Errorf("%s: it stands at %v, after window %d", what, at, n.Sequence())
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

// Nothing is applied or committed but in a turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 8
		turns := pipeline.NewTurns(1)
		o := options(shards)
		o.Owners, o.Turn = 4, turns.Do
		store, _ := openFilling(t, shards)
		n, w := newNode(t, store, o), newWorld(shards)
		w.likes(upTo(500)...)
		w.likes(upTo(500)...)

		turns.Take()
		follow(t, n, w.tail(0))
		if synctest.Wait(); n.Applied() != 0 {
			t.Errorf("it is applied up to %d without a turn", n.Applied())
		}
		turns.Give()
		wait(t, n, w.last())

		turns.Take()
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		if synctest.Wait(); len(closed) > 0 || n.Stats.Checkpoints.Load() != 0 {
			t.Errorf("without a turn %d checkpoints were made; it is closed: %v", n.Stats.Checkpoints.Load(), len(closed) > 0)
		}
		turns.Give()
		if err := errors.Join(<-closed, store.Close()); err != nil || n.Checkpointed() != uint64(len(w.entries)) {
			t.Errorf("%v; checkpointed up to window %d", err, n.Checkpointed())
		}
	})
}

// runsOf are the files of runs of a store.
func runsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}
	return files
}

// A shard whose run turns out damaged in a merge is named and stops alone: those whose changes
// are written in one commit with its own are checkpointed as before.
func TestDamageFoundByAMerge(t *testing.T) {
	const shards = 2
	dir := t.TempDir()
	store := openStore(t, dir, shards)
	defer store.Close()
	var log e2e.Lines
	o := options(shards)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Owners, o.CheckpointEvery, o.CommitRows = 1, 2*time.Millisecond, 1<<20
	n, w := newNode(t, store, o), newWorld(shards)
	defer n.Close()
	more := func() {
		w.likes(upTo(200)...)
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
	}
	more()
	await(t, "checkpointed", func() bool { return n.Checkpointed() == uint64(len(w.entries)) })
	name := runsOf(t, dir)[0]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 0xff // of its first run
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if more(); n.Failed() > 0 {
			break
		}
		at := n.Stats.Checkpoints.Load() + n.Stats.CheckpointErrors.Load()
		await(t, "a checkpoint", func() bool { return n.Stats.Checkpoints.Load()+n.Stats.CheckpointErrors.Load() > at })
	}
	name = filepath.Base(name)
	if err := n.Err(); n.Failed() != 1 || !errors.Is(err, cold.ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(log.String(), name) {
		t.Fatalf("%d have stopped: %v; the log has %s", n.Failed(), err, log.String())
	}
	more()
	await(t, "the other shard is checkpointed", func() bool {
		for number := range pipeline.Shard(shards) {
			if state, err := store.Stack(number).State(); err == nil && state.Applied == w.last() {
				return n.CheckpointErr() == nil
			}
		}
		return false
	})
}

// A shard that cannot be read is taken up as one that has failed, as at a start: an error of Hold
// would keep all others from going on (I3). Given up and dropped, it is taken up like any other.
func TestHoldOfADamagedShard(t *testing.T) {
	const shards = 2
	dir, o, w, ids := t.TempDir(), options(2), newWorld(2), upTo(40)
	store := openStore(t, dir, shards)
	o.Held = []pipeline.Shard{1}
	n := newNode(t, store, o)
	w.likes(ids...)
	follow(t, n, w.tail(0))
	if err := errors.Join(n.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(runsOf(t, dir)[0], 30); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, dir, shards)
	defer store.Close()
	for _, held := range [][]pipeline.Shard{{0, 1}, {0}} { // at a start, and later
		o.Held = held
		n = newNode(t, store, o)
		w.likes(ids...)
		follow(t, n, w.tail(0))
		if len(held) == 1 {
			if err := n.Hold(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if s := n.Standings(); len(s) != 2 || !errors.Is(s[1].Err, cold.ErrCorrupt) || s[1].Answers || n.Holds(1) {
			t.Errorf("they stand %+v", s)
		}
		w.likes(ids...)
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
		w.sameHeld(t, n, ids, []pipeline.Shard{0}, true)
		if len(held) == 2 {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer n.Close()
	if err := errors.Join(n.Release(t.Context(), 1), store.Drop(1), n.Hold(t.Context(), 1)); err != nil {
		t.Fatal(err)
	}
	follow(t, n, w.tail(n.Sequence()))
	if err := n.Settle(t.Context()); err != nil || n.Err() != nil || w.same(t, n, ids) != w.last() {
		t.Errorf("given up, dropped and taken up: %v, %v", err, n.Err())
	}
}

// Others that have a part of the budget, one beside it that it lends to or who is asked, are
// counted, and the shards do with less meanwhile.
func TestMemoryOfOthers(t *testing.T) {
	store := openStore(t, t.TempDir(), 4)
	defer store.Close()
	var others atomic.Int64
	o, w := options(4), newWorld(4)
	o.CheckpointEvery, o.MemoryBytes, o.DirtyRowsMax = 10*time.Millisecond, 8<<20, 5000
	o.Others = func() int { return int(others.Load()) }
	n := newNode(t, store, o)
	defer n.Close()
	like := func() {
		w.likes(upBetween(1, rowsMany)...)
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
	}
	like()
	is := n.Resident()
	if is < 1<<20 {
		t.Fatalf("%d bytes are in memory, too few to see", is)
	}
	taken := o.MemoryBytes - is + is/4
	others.Store(int64(taken))
	if is := n.Resident(); is < taken {
		t.Errorf("%d bytes are counted, without those of others", is)
	}
	await(t, "the shards do with a quarter less", func() bool { return n.Resident() <= o.MemoryBytes })
	others.Store(0)
	n.Lend(o.MemoryBytes - 1<<20)
	await(t, "it does with a MiB", func() bool { return n.Resident() <= 1<<20 })
	n.Lend(0)
	if like(); n.Resident() < 1<<20 {
		t.Errorf("%d bytes are in memory, it may take all again", n.Resident())
	}
}
