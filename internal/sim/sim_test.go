package sim

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // worlds are small and many
	goleak.VerifyTestMain(m)
}

var (
	seedFlag  = flag.Uint64("sim.seed", 0, "this seed alone; with -v, what happens in it")
	seedsFlag = flag.Int("sim.seeds", 0, "how many seeds; 0 is as many as the build is meant for")
	firstFlag = flag.Uint64("sim.first", 1, "the first of them")
)

// failuresMax is how many seeds may fail before the rest is not tried.
const failuresMax = 5

// simulate runs a seed in a bubble: a clock of its own, and goroutines that end
// with it.
func simulate(t *testing.T, seed uint64, f *fault, trace io.Writer) (sum uint64, err error) {
	return simulateInto(t, seed, f, trace, nil)
}

// simulateInto adds to a net what the seed derives and answers.
func simulateInto(t *testing.T, seed uint64, f *fault, trace io.Writer, n *netSums) (sum uint64, err error) {
	synctest.Test(t, func(*testing.T) { sum, err = runSeed(seed, f, trace, n) })
	return sum, err
}

// How many seeds of each kind of world a minute is enough for. With -short TestNet runs the first
// of them.
const (
	seedsMost      = 500
	nodeSeedsMost  = 300
	auditSeedsMost = 100
)

// "Every event changes every cell that its rules name exactly once, whatever crashes,
// restarts, doubles or stalls" (I1): whatever a seed does to routers, to the delta log
// and to those who follow it, it ends where the model does.
func TestSimulation(t *testing.T) { simulateSeeds(t, seedsMost, nil) }

// amongHolders has shards spread over several holders, and move.
var amongHolders = &fault{setup: nodes}

// Answers are whole and exact all the while: whatever a seed does to those who hold
// shards, while shards move between them, each whole answer that is put together from
// several lies between what the model says at its as_of and at the end of the log; and in
// the end all is whole and equal.
func TestNodes(t *testing.T) {
	t.Cleanup(func() {
		t.Logf("%d shards were copied, %d answers of several nodes compared, %d times one was whole, %d followees known by what was remembered", moved.Load(), compared.Load(), fresh.Load(), recently.Load())
	})
	simulateSeeds(t, nodeSeedsMost, amongHolders)
}

// simulateSeeds runs seeds, or the one that a flag says.
func simulateSeeds(t *testing.T, most int, f *fault) {
	if *seedFlag != 0 {
		var trace io.Writer
		if testing.Verbose() {
			trace = t.Output()
		}
		if _, err := simulate(t, *seedFlag, f, trace); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		return
	}
	if testing.Short() && *seedsFlag == 0 {
		t.Skip("long: TestNet runs its first seeds, and make test-all all of them")
	}
	seeds := uint64(most)
	if *seedsFlag > 0 {
		seeds = uint64(*seedsFlag)
	}
	test := t.Name()
	eachSeed(t, *firstFlag, seeds, func(t *testing.T, seed uint64) error {
		_, err := simulate(t, seed, f, nil)
		if err != nil {
			err = fmt.Errorf("%w\ngo test ./internal/sim -run '%s$' -count=1 -v -sim.seed=%d", err, test, seed)
		}
		return err
	})
}

// eachSeed does something for so many seeds from a first one, on all processors, and returns when
// all are done.
func eachSeed(t *testing.T, first, seeds uint64, do func(t *testing.T, seed uint64) error) {
	var next, failures atomic.Uint64
	begun := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1); n <= seeds && failures.Load() < failuresMax; n = next.Add(1) {
					seed := first + n - 1
					if err := do(t, seed); err != nil {
						t.Errorf("seed %d: %v", seed, err)
						failures.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d seeds from %d in %v", min(next.Load(), seeds), first, time.Since(begun).Round(time.Millisecond))
}
