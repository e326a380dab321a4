package acceptance_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
)

// rebuildFaults are what becomes of nodes while a generation is built. Every answer
// stays whole.
var rebuildFaults = []nodeFault{
	{"a holder is killed", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Kill()
		r.pause(2 * time.Second)
		p.Start()
	}},
	{"the leader is killed", routerKilled.do},
	{"a holder is cut off", func(r *nodesRun) {
		p := r.holders[r.any()]
		stopFor(p, func() { r.pause(7 * time.Second) })
	}},
	{"one that only answers is killed", func(r *nodesRun) {
		all := everyShard(r.shards)
		r.check.down.Store(&all)
		r.check.kills.Add(1)
		r.answers.Kill()
		r.pause(time.Second)
		r.answers.Start()
		r.answers.WaitReady()
		r.check.down.Store(&map[pipeline.Shard]bool{})
	}},
	{"a holder stops in order", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Stop()
		r.pause(time.Second)
		p.Start()
	}},
}

// nextShards is how many the second generation has.
const nextShards = 24

// On four nodes that hold and one that only answers: "A rebuild on
// several nodes is one generation for all: all nodes build, and the switch is one
// compare-and-set in the bucket"; from 16 to 24 shards.
func TestRebuildNodes(t *testing.T) {
	t.Parallel()
	f := newRebuildFeed(t, follows-4_000, follows+6_000)
	r := &nodesRun{seed: f.seed, random: f.rand, fleet: newFleet(t, natstest.Apart(t).URL, "", "a", "b", "c", "d")}
	f.importHalf(t, r.answers)
	r.check = f.checker(t, r.nc, r.shards)
	r.check.patience = answeredWithin
	end := r.check.begin(f.seed)

	t.Log(strings.TrimSpace(doSoon(t, r.answers, "rebuild", "--yes", "--config", written(t, fmt.Sprintf("shards: %d\n", nextShards)+moreColumns))))
	arrives := f.arrives(t, r.nc, 0.7, 15*time.Second)
	r.goesOn(t, f, 2, 3)
	<-arrives
	// Back and forward, with whoever leads killed at it.
	for _, to := range []uint32{1, 2} {
		arrives = f.arrives(t, r.nc, map[uint32]float64{1: 0.85, 2: 1}[to], 2*time.Second)
		r.goesTo(t, to)
		<-arrives
		r.shards = map[uint32]int{1: fleetShards, 2: nextShards}[to]
		r.waitWhole()
	}
	// What commands say to all nodes is about the one that serves.
	drained := r.any()
	r.command("nodes", "drain", drained)
	e2e.Until(t, drained+" holds nothing", func() bool {
		return !slices.ContainsFunc(r.holdersOf(), func(names []string) bool { return slices.Contains(names, drained) })
	})
	r.waitWhole()
	r.command("nodes", "undrain", drained)
	e2e.Until(t, drained+" holds something", func() bool {
		return slices.ContainsFunc(r.holdersOf(), func(names []string) bool { return slices.Contains(names, drained) })
	})
	r.waitWhole()
	end()
	if t.Failed() {
		return
	}
	f.ends(t, r.answers, r.nc)
	r.settled()
	for _, p := range r.holders {
		if state := stateOf(t, p); state.Serving != 2 {
			t.Errorf("%+v", state)
		}
	}
}

// goesOn has faults come until a generation serves, and so many at least.
func (r *nodesRun) goesOn(t *testing.T, f *rebuildFeed, generation uint32, least int) {
	t.Helper()
	most := 2 * least
	if *rebuildFull {
		most = 60
	}
	switched := false
	for i, fault := range r.draw(rebuildFaults, most) {
		if t.Failed() || switched && i >= least {
			return
		}
		begun := time.Now()
		r.pause(700 * time.Millisecond)
		r.waitWholeOf(fleetShards, nextShards)
		fault.do(r)
		s := stateOf(t, r.answers)
		t.Logf("%s %s, %v: %+v", begun.Format("15:04:05.000"), fault.name, time.Since(begun).Round(time.Millisecond), s)
		switched = switched || serves(generation)(s)
	}
	until(t, r.answers, "switched", serves(generation))
}

// waitWholeOf waits until every shard has two ready holders, of so many shards or of
// so many others: a switch may come meanwhile.
func (r *nodesRun) waitWholeOf(shards ...int) {
	r.t.Helper()
	var last string
	for deadline := time.Now().Add(wholeWithin); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, n := range shards {
			if last = lacks(r.t, r.client, n); last == "" {
				return
			}
		}
	}
	r.t.Fatalf("not every shard has two ready holders within %v: %s", wholeWithin, last)
}

// goesTo has another generation serve, and kills whoever leads meanwhile.
func (r *nodesRun) goesTo(t *testing.T, generation uint32) {
	t.Helper()
	for try, begun := 0, time.Now(); time.Since(begun) < rebuildWithin; try++ {
		r.waitWholeOf(fleetShards, nextShards)
		leader := r.holders[r.router()]
		command := r.answers.Command(t.Context(), "rebuild", "--back")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		r.pause(300 * time.Millisecond)
		if try < 2 {
			leader.Kill()
		}
		_ = command.Wait() // it is lost with the leader, or done
		if try < 2 {
			leader.Start()
		}
		if stateOf(t, r.answers).Serving == generation {
			return
		}
	}
	t.Fatalf("generation %d does not come to serve within %v", generation, rebuildWithin)
}

// stopFor has a process stand still for a while.
func stopFor(p *e2e.Process, while func()) {
	p.Signal(syscall.SIGSTOP)
	while()
	p.Signal(syscall.SIGCONT)
}
