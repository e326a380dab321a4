package acceptance_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
)

// nodesRun is a fleet under way, with a publisher and those who check.
type nodesRun struct {
	*fleet
	check  *checker
	random *rand.Rand
	seed   uint64
}

// any is some holder.
func (r *nodesRun) any(but ...string) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(r.holders)), func(n string) bool { return slices.Contains(but, n) })
	return names[r.random.IntN(len(names))]
}

// pause is a while.
func (r *nodesRun) pause(most time.Duration) {
	time.Sleep(time.Duration(r.random.Int64N(int64(most))))
}

// nodeFault is what becomes of nodes. It begins when every shard has two ready
// holders, and ends with all processes running.
type nodeFault struct {
	name string
	do   func(r *nodesRun)
}

var nodeFaults = []nodeFault{
	{"a holder is killed, and back at once", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Kill()
		p.Start()
	}},
	{"a holder is killed, and back after a while", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Kill()
		r.pause(3 * time.Second)
		p.Start()
	}},
	routerKilled,
	{"a holder stops in order", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Stop()
		r.pause(2 * time.Second)
		p.Start()
	}},
	{"a holder is away for so long that it is replaced", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Stop()
		time.Sleep(4 * time.Second)
		r.waitWhole()
		p.Start()
	}},
	{"a holder is drained, and undrained", func(r *nodesRun) {
		name := r.any()
		r.command("nodes", "drain", name)
		r.pause(time.Second)
		r.waitWhole()
		r.command("nodes", "undrain", name)
	}},
	{"another is killed while a holder is drained", func(r *nodesRun) {
		drained := r.any()
		r.command("nodes", "drain", drained)
		r.pause(500 * time.Millisecond)
		p := r.holders[r.any(drained)]
		p.Kill()
		p.Start()
		r.command("nodes", "undrain", drained)
	}},
	{"a holder is cut off", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Signal(syscall.SIGSTOP)
		r.pause(8 * time.Second)
		p.Signal(syscall.SIGCONT)
	}},
	{"two are killed", func(r *nodesRun) {
		one := r.any()
		two := r.any(one)
		// A shard may be on its way to one of them: which they have is known when both
		// are killed, and nobody else is given it that soon.
		all, gone := everyShard(r.shards), map[pipeline.Shard]bool{}
		r.holders[one].Kill()
		r.pause(500 * time.Millisecond)
		r.check.down.Store(&all)
		r.holders[two].Kill()
		for s, names := range r.holdersOf() {
			if slices.Contains(names, one) && slices.Contains(names, two) {
				gone[pipeline.Shard(s)] = true
			}
		}
		r.check.down.Store(&gone)
		r.pause(2 * time.Second)
		r.holders[one].Start()
		r.holders[two].Start()
		r.waitWhole()
		r.check.down.Store(&map[pipeline.Shard]bool{})
	}},
}

var routerKilled = nodeFault{"the router is killed", func(r *nodesRun) {
	p := r.holders[r.router()]
	p.Kill()
	r.pause(2 * time.Second)
	p.Start()
}}

// Four holders with two replicas and one node that only answers, while holders and the
// router are killed -9, started, drained, joined, cut off and stopped at random, ten times
// or more. Then every column of every user and post is what it should be, asked
// through the node that only answers. During all of it a checking client asks with
// min_position and holds each whole answer between the twin's at its as_of and at the
// newest position then.
func TestNodes(t *testing.T) {
	t.Parallel()
	from, to, faults := follows-5_000, follows+10_000, 11
	if *nodesFull {
		from, to, faults = follows-10_000, follows+20_000, 22
	}
	path, lines := slice(t, from, to)
	want := oracle(t, path)
	r := newNodesRun(t, lines, 60, func() *fleet { return newFleet(t, natstest.Apart(t).URL, "", "a", "b", "c", "d") })
	r.story(r.draw(nodeFaults, faults), 1500*time.Millisecond, "e")
	r.ends(want)
}

// newNodesRun has lines to publish, in packs of up to packMost.
func newNodesRun(t *testing.T, lines [][]byte, packMost int, fleet func() *fleet) *nodesRun {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &nodesRun{seed: seed, random: rand.New(rand.NewPCG(seed, 3))}
	feed := newFeed(t, lines, packMost, r.random)
	r.fleet = fleet()
	r.check = &checker{t: t, feed: feed, nc: r.nc, shards: r.shards}
	r.check.down.Store(&map[pipeline.Shard]bool{})
	return r
}

// draw is each fault as often as every other, or once more, in some order.
func (r *nodesRun) draw(of []nodeFault, count int) (out []nodeFault) {
	for len(out) < count {
		for _, i := range r.random.Perm(len(of)) {
			out = append(out, of[i])
		}
	}
	return out[:count]
}

// story publishes everything, a part of it with each fault and over a time at
// least, while it is asked for. Half way through a node joins.
func (r *nodesRun) story(faults []nodeFault, over time.Duration, joins string) {
	t, feed := r.t, r.check.feed
	t.Helper()
	end := r.check.begin(r.seed)
	for i, fault := range faults {
		if i == len(faults)/2 && joins != "" {
			r.add(joins).Start()
		}
		r.waitWhole()
		if t.Failed() {
			break
		}
		begun := time.Now()
		published := make(chan struct{})
		go func() {
			defer close(published)
			feed.publish(t, r.nc, (i+1)*len(feed.messages)/len(faults), over)
		}()
		r.pause(500 * time.Millisecond)
		fault.do(r)
		<-published
		t.Logf("%s %s, %v", begun.Format("15:04:05.000"), fault.name, time.Since(begun).Round(time.Millisecond))
	}
	r.waitWhole()
	end()
}

// ends compares everything with the files in a directory.
func (r *nodesRun) ends(want string) {
	if r.t.Failed() {
		return
	}
	r.t.Helper()
	// While a NATS cluster elects, what is known of nodes stands still: also of one
	// that was killed and waits for the cluster to start.
	for _, p := range r.holders {
		p.WaitReady()
	}
	r.answers.WaitReady()
	r.waitWhole()
	check(r.t, r.nc, want, lastPosition(r.t, r.nc))
	r.settled()
}
