package sinks_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/sinks"
)

const victimEnv = "TIDEMARK_TEST_VICTIM"

func victimDir() string { return os.Getenv(victimEnv) }

const (
	victimShards = 5
	victimIDs    = 400
)

func victimWorld() *world {
	w := newWorld(victimShards)
	w.random(rand.New(rand.NewPCG(1, 2)), 2000, 40, victimIDs)
	return w
}

func victimOptions() sinks.Options {
	o := options(victimShards)
	o.CheckpointEvery, o.DirtyRowsMax = 2*time.Millisecond, 60
	return o
}

// exit stands in for a test where there is none.
type exit struct{}

func (exit) Helper() {}
func (exit) Fatalf(format string, args ...any) {
	quiet.Error(format, "args", args)
	os.Exit(3)
}

// victim follows the log until it is killed.
func victim(dir string) {
	n := newNode(exit{}, openStore(exit{}, dir, victimShards), victimOptions())
	w := victimWorld()
	os.Stdout.WriteString("on\n")
	for _, e := range w.entries[n.Sequence():] {
		follow(exit{}, n, &slice{w.entries[e.Sequence-1 : e.Sequence]})
		time.Sleep(100 * time.Microsecond)
	}
	select {} // all done; the kill still comes
}

// "Rows and position commit together." (I4) By kill -9, again and again on one directory.
func TestKilled(t *testing.T) {
	dir, w := t.TempDir(), victimWorld()
	moved := 0
	const rounds, roundsMax = 15, 100 // more until a kill has hit the process at work
	for round := 0; moved < 4 && round < rounds || moved == 0 && round < roundsMax; round++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(make([]byte, 3)); n == 0 {
			t.Fatalf("round %d: the process did not come up: %v, %v", round, err, cmd.Wait())
		}
		time.Sleep(time.Duration(20+rand.IntN(60)+10*round) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()

		store := openStore(t, dir, victimShards)
		n := newNode(t, store, victimOptions())
		w.sameByShard(t, n, upTo(victimIDs))
		at := n.Applied()
		n.Crash() // the next round goes on from what the killed one left
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		switch {
		case at == w.last(): // it has nothing left to do: another one
			dir = t.TempDir()
		case at > 0:
			moved++
		}
	}
	if moved == 0 {
		t.Error("no kill hit the process at work")
	}
	store := openStore(t, dir, victimShards)
	defer store.Close()
	n := newNode(t, store, victimOptions())
	defer n.Close()
	follow(t, n, w.tail(n.Sequence()))
	wait(t, n, w.last())
	if asOf := w.same(t, n, upTo(victimIDs)); asOf != w.last() {
		t.Fatalf("as of %d, want %d", asOf, w.last())
	}
}
