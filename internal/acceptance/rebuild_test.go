package acceptance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// answeredWithin is how long an answer may take where nobody is killed, on a machine that does
// much besides.
const answeredWithin = time.Minute

// Half of a part of Higgs is imported; a column and a rule are added by `rebuild --config` while
// the other half arrives. In the end all old columns equal the expected files, and the
// new column equals its own count over all of history. Not one answer during it is wrong or
// missing: a client asks throughout. On one process.
func TestRebuild(t *testing.T) {
	t.Parallel()
	from, to := follows-15_000, follows+20_000
	if testing.Short() {
		from, to = follows-2_000, follows+2_500
	}
	f := newRebuildFeed(t, from, to)
	p := e2e.Run(t, "rebuild: {keep: 2s}\n")
	f.importHalf(t, p)
	nc := p.Connect()
	c := f.checker(t, nc, 64)
	p.WaitReady()
	end := c.begin(f.seed)
	t.Log(strings.TrimSpace(doSoon(t, p, "rebuild", "--yes", "--config", written(t, moreColumns))))
	enough := f.keepsArriving(t, nc, 0.8)
	seen := until(t, p, "switched", serves(2))
	for _, s := range seen[:len(seen)-1] {
		if s.Serving != 1 {
			t.Errorf("it serves before the switch: %+v", s)
		}
	}
	if last := seen[len(seen)-1]; last.Differs != 0 || last.Why != "" {
		t.Errorf("%+v", last)
	}
	if n := strings.Count(logOf(t, p), "both are compared with the log"); n != 1 {
		t.Errorf("they are compared %d times", n)
	}
	enough()
	<-f.arrives(t, nc, 0.9, 500*time.Millisecond)

	if !testing.Short() { // "`rebuild.keep` later" the first one goes: nodes look every ten seconds
		until(t, p, "dropped", func(s rebuildStatus) bool { return s.Kept == 0 })
		gone(t, filepath.Join(p.Dir, "data", "generations", "1", "badger"))
		e2e.Until(t, "the first one's windows are gone", func() bool {
			_, err := streamsOf(t, nc).Stream(t.Context(), jetlog.DeltasStream)
			return errors.Is(err, jetstream.ErrStreamNotFound)
		})
	}
	<-f.arrives(t, nc, 1, 500*time.Millisecond)
	end()
	f.ends(t, p, nc)
}

// "A disk that is full while a generation builds leaves the serving one
// untouched": it answers and goes on, and the rebuild goes on when there is room. A rebuild for
// which there is too little memory is refused before, with the numbers.
func TestRebuildDiskFull(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	disk := newDisk(t, 512<<20)
	f := newRebuildFeed(t, follows-5_000, follows+5_000)
	p := e2e.Prepare(t, e2e.Setup{
		URL: natstest.Apart(t).URL, DataDir: filepath.Join(disk.Path, "data"), Settings: "memory: {budget: 35MiB}\n" + diskSettings,
	})
	p.Start()
	f.importHalf(t, p)
	nc, next := p.Connect(), written(t, "shards: 8\n"+moreColumns)
	const want = "memory.budget is 35MiB, and two generations need"
	out, err := p.Command(t.Context(), "rebuild", "--yes", "--config", next).CombinedOutput()
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, want %s: %s", err, want, out)
	}
	gone(t, filepath.Join(p.Dir, "data", "generations"))
	p.Stop()
	p.Configure(diskSettings)
	p.Start()
	p.WaitReady()
	c := f.checker(t, nc, 4)
	end := c.begin(f.seed)
	doSoon(t, p, "rebuild", "--yes", "--config", next)
	disk.Fill(t)
	<-f.arrives(t, nc, 0.02, time.Second) // that there is something to write
	t.Log(logged(t, p, "the disk "))
	answered := c.answers.Load()
	e2e.Until(t, "it answers on a full disk", func() bool { return c.answers.Load() > answered+20 })
	disk.Free(t)
	arrives := f.arrives(t, nc, 1, 2*time.Second)
	until(t, p, "switched", serves(2))
	<-arrives
	end()
	p.WaitReady()
	f.ends(t, p, nc)
}

// rebuildFaults are what becomes of nodes while a generation is built. Every answer
// stays whole.
var rebuildFaults = []nodeFault{
	nodeFaults[3], // a holder is killed, and back at once
	routerKilled,
	{"one that only answers is killed", func(r *nodesRun) {
		all := everyShard(r.shards)
		r.check.down.Store(&all)
		r.check.kills.Add(1)
		r.answers.Kill()
		r.answers.Start()
		r.answers.WaitReady()
		r.check.down.Store(&map[pipeline.Shard]bool{})
	}},
}

// On four nodes that hold and one that only answers: "A rebuild on several nodes is one
// generation for all: all nodes build, and the switch is one compare-and-set in the bucket";
// from 16 to 24 shards, while they are killed, and back to 16 and forward again with whoever
// leads killed at it. Nodes of other processes, which internal/node does not have.
func TestRebuildNodes(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	const nextShards = 24
	f := newRebuildFeed(t, follows-4_000, follows+6_000)
	r := &nodesRun{seed: f.seed, random: f.rand, fleet: newFleet(t, natstest.Apart(t).URL, "", "a", "b", "c", "d")}
	f.importHalf(t, r.answers)
	r.check = f.checker(t, r.nc, r.shards)
	end := r.check.begin(f.seed)

	next := written(t, fmt.Sprintf("shards: %d\n", nextShards)+moreColumns)
	t.Log(strings.TrimSpace(doSoon(t, r.answers, "rebuild", "--yes", "--config", next)))
	arrives := f.arrives(t, r.nc, 0.7, 10*time.Second)
	for _, fault := range r.draw(rebuildFaults, len(rebuildFaults)) {
		waitWhole(t, r.client, fleetShards, nextShards)
		fault.do(r)
		t.Logf("%s: %+v", fault.name, stateOf(t, r.answers))
	}
	until(t, r.answers, "switched", serves(2))
	<-arrives
	for _, back := range []struct {
		to, shards int
		part       float64
	}{{1, fleetShards, 0.85}, {2, nextShards, 1}} {
		arrives = f.arrives(t, r.nc, back.part, 2*time.Second)
		for try := 0; ; try++ {
			waitWhole(t, r.client, fleetShards, nextShards)
			leader := r.holders[r.router()]
			command := r.answers.Command(t.Context(), "rebuild", "--back")
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			r.pause(300 * time.Millisecond)
			if try < 2 {
				leader.Kill()
				leader.Start()
			}
			_ = command.Wait() // it is lost with the leader, or done
			if stateOf(t, r.answers).Serving == uint32(back.to) {
				break
			}
		}
		<-arrives
		r.shards = back.shards
		r.waitWhole()
	}
	// What commands say to all nodes is about the one that serves.
	holderDrained.do(r)
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

// checker asks for what is in the feed; begin begins.
func (f *rebuildFeed) checker(t *testing.T, nc *nats.Conn, shards int) *checker {
	c := newChecker(t, f.feedOf, nc, shards)
	c.patience = answeredWithin
	return c
}

// arrives publishes the second half up to a part of it; the channel is closed then.
func (f *rebuildFeed) arrives(t *testing.T, nc *nats.Conn, upTo float64, over time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.publish(t, nc, f.part(upTo), over)
	}()
	return done
}

// keepsArriving publishes the second half up to a part of it at most, until it is
// told that it is enough, so that events come at a switch, too.
func (f *rebuildFeed) keepsArriving(t *testing.T, nc *nats.Conn, most float64) (enough func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		const step = 0.02
		for upTo := step; upTo <= most; upTo += step {
			if f.part(upTo) <= int(f.acked.Load()) {
				continue
			}
			select {
			case <-stop:
				return
			case <-t.Context().Done(): // the test has failed
				return
			default:
				f.publish(t, nc, f.part(upTo), 250*time.Millisecond)
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// gone waits until a path is not there.
func gone(t *testing.T, path string) {
	t.Helper()
	e2e.Until(t, path+" is gone", func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	})
}
