package sinks_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/sinks"
)

// Windows in any number, fed in any pieces, sent again, through owners,
// checkpoints and crashes, give what a map gives (I1, I3, I4, I6).
func TestNodeTwin(t *testing.T) {
	root := t.TempDir()
	number := 0
	rapid.Check(t, func(t *rapid.T) {
		number++
		dir := filepath.Join(root, "badger", string(rune('a'+number%26)))
		os.RemoveAll(dir)
		ids := upTo(rapid.Uint64Range(1, 40).Draw(t, "ids"))
		shards := rapid.SampledFrom([]int{1, 2, 3, 7, 64}).Draw(t, "shards")
		w := newWorld(shards)
		o := options(shards)
		draw := func(t *rapid.T) sinks.Options {
			o.Owners = rapid.IntRange(1, 3).Draw(t, "owners")
			o.DirtyRowsMax = rapid.SampledFrom([]int{1, 3, 20, 1000}).Draw(t, "dirty")
			o.MemoryBytes = rapid.SampledFrom([]int{0, 1, 64 << 10}).Draw(t, "memory")
			o.CheckpointEvery = rapid.SampledFrom([]time.Duration{100 * time.Microsecond, time.Millisecond, time.Hour}).Draw(t, "every")
			return o
		}
		store := openStore(t, dir, shards)
		n := newNode(t, store, draw(t))
		handed := uint64(0) // the furthest window any node was handed
		defer func() {
			n.Close()
			store.Close()
		}()
		reborn := func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "store") == 0 {
				if err := store.Close(); err != nil {
					t.Fatalf("%v", err)
				}
				store = openStore(t, dir, shards)
			}
			n = newNode(t, store, draw(t))
			if n.Sequence() > handed {
				t.Fatalf("goes on after window %d of %d", n.Sequence(), handed)
			}
			w.sameByShard(t, n, ids)
			for _, p := range n.Positions() {
				if p > w.ends[handed] {
					t.Fatalf("stands at %d, handed %d", p, w.ends[handed])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				w.random(r, rapid.IntRange(1, 6).Draw(t, "windows"), rapid.IntRange(0, 30).Draw(t, "changes"), uint64(len(ids)))
			},
			"follow": func(t *rapid.T) {
				again := min(n.Sequence(), rapid.Uint64Range(0, 4).Draw(t, "again"))
				follow(t, n, w.tail(n.Sequence()-again))
				handed = max(handed, n.Sequence())
			},
			"followSome": func(t *rapid.T) {
				tail := w.tail(n.Sequence())
				tail.entries = tail.entries[:rapid.IntRange(0, len(tail.entries)).Draw(t, "some")]
				follow(t, n, tail)
				handed = max(handed, n.Sequence())
			},
			"read": func(t *rapid.T) { w.sameByShard(t, n, ids) },
			"settle": func(t *rapid.T) {
				want := w.ends[n.Sequence()]
				wait(t, n, want)
				if at := n.Positions(); len(at) > 1 || at[0] != want { // since a crash some shards are ahead
					w.sameByShard(t, n, ids)
				} else if asOf := w.same(t, n, ids); asOf != want {
					t.Fatalf("as of %d, applied up to %d", asOf, want)
				}
			},
			"crash": func(t *rapid.T) {
				n.Crash()
				reborn(t)
			},
			"close": func(t *rapid.T) {
				at := n.Sequence()
				if err := n.Close(); err != nil {
					t.Fatalf("%v", err)
				}
				if n.Checkpointed() != at {
					t.Fatalf("closed at window %d, checkpointed up to %d", at, n.Checkpointed())
				}
				reborn(t)
				if n.Sequence() != at || n.Applied() != w.ends[at] {
					t.Fatalf("closed at window %d, goes on after %d, position %d", at, n.Sequence(), n.Applied())
				}
			},
			"": func(t *rapid.T) {
				if err := n.Err(); err != nil {
					t.Fatalf("%v", err)
				}
				if n.Checkpointed() > n.Sequence() {
					t.Fatalf("checkpointed %d, handed %d", n.Checkpointed(), n.Sequence())
				}
				if failed := n.Stats.CheckpointErrors.Load(); failed > 0 {
					t.Fatalf("%d checkpoints failed", failed)
				}
			},
		})
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
		if asOf := w.same(t, n, ids); asOf != w.last() {
			t.Fatalf("as of %d at the end, want %d", asOf, w.last())
		}
	})
}
