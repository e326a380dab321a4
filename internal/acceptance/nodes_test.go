package acceptance_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
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

// pause lets a node be away for a while, which the seed draws: a fault is at another moment
// each time.
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
	routerKilled,
	holderDrained,
	twoKilled,
	{"a holder is killed, and back at once", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Kill()
		p.Start()
	}},
	{"a holder stops in order", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Stop()
		r.pause(2 * time.Second)
		p.Start()
	}},
	{"a holder is away for so long that it is replaced", func(r *nodesRun) {
		name := r.any()
		r.holders[name].Stop()
		e2e.Until(r.t, "others hold its shards", func() bool { return !r.holds(name) })
		r.waitWhole()
		r.holders[name].Start()
	}},
	{"a holder is suspended", func(r *nodesRun) {
		p := r.holders[r.any()]
		p.Signal(syscall.SIGSTOP)
		r.pause(8 * time.Second)
		p.Signal(syscall.SIGCONT)
	}},
}

var routerKilled = nodeFault{"the router is killed", func(r *nodesRun) {
	p := r.holders[r.router()]
	p.Kill()
	r.pause(2 * time.Second)
	p.Start()
}}

var holderDrained = nodeFault{"a holder is drained, and undrained", func(r *nodesRun) {
	name := r.any()
	r.command("nodes", "drain", name)
	e2e.Until(r.t, name+" holds nothing", func() bool { return !r.holds(name) })
	r.waitWhole()
	r.command("nodes", "undrain", name)
}}

var twoKilled = nodeFault{"two are killed", func(r *nodesRun) {
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
	r.pause(time.Second)
	r.holders[one].Start()
	r.holders[two].Start()
	r.waitWhole()
	r.check.down.Store(&map[pipeline.Shard]bool{})
}}

// embeddedFaults are of nodes that have a server, or need none.
var embeddedFaults = []nodeFault{
	{"a holder with a server is killed", func(r *nodesRun) {
		p := r.holders[[]string{"a", "b", "c"}[r.random.IntN(3)]]
		p.Kill()
		r.pause(2 * time.Second)
		p.Start()
	}},
	routerKilled,
	{"one that only answers is killed", func(r *nodesRun) {
		r.another.Kill()
		r.pause(2 * time.Second)
		r.another.Start()
	}},
}

// Four holders with two replicas and one node that only answers, while holders and the
// router are killed -9, drained, stopped, suspended and joined at random. Then every column of
// every user and post is what it should be, asked through the node that only answers. During
// all of it a checking client asks with min_position and holds each whole answer between the
// twin's at its as_of and at the newest position then. With -short: three faults, always the
// same. -full has all of Higgs.
func TestNodes(t *testing.T) {
	t.Parallel()
	from, to, joins, over := follows-5_000, follows+10_000, "e", 1500*time.Millisecond
	if testing.Short() {
		from, to, joins, over = follows-1_000, follows+2_000, "", 500*time.Millisecond
	}
	r := newNodesRun(t, from, to, func() *fleet { return newFleet(t, natstest.Apart(t).URL, "", "a", "b", "c", "d") })
	faults := []nodeFault{routerKilled, holderDrained, twoKilled}
	if !testing.Short() {
		faults = r.draw(nodeFaults, len(nodeFaults)+1)
	}
	r.story(faults, over, joins)
	r.ends()
}

// "Three `tidemark run` with embedded servers find each other, form a NATS cluster": whoever
// is killed has a third of the streams' copies, too, and may lead them. With -full under all
// faults of nodes.
func TestNodesEmbedded(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	r := newNodesRun(t, follows-3_000, follows+5_000, func() *fleet { return newFleetEmbedded(t, "d") })
	r.check.lossy = true
	faults, joins := embeddedFaults, ""
	if *full {
		faults, joins = slices.Concat(embeddedFaults, nodeFaults), "e"
	}
	r.story(r.draw(faults, len(faults)), 5*time.Second, joins)
	r.ends()
}

// newNodesRun has lines of Higgs to publish; with -full all of them.
func newNodesRun(t *testing.T, from, to int, fleet func() *fleet) *nodesRun {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &nodesRun{seed: seed, random: rand.New(rand.NewPCG(seed, 3))}
	packMost := 60
	if *full {
		from, to, packMost = 0, 1<<62, 300
	}
	_, lines := slice(t, from, to)
	feed := newFeed(t, lines, packMost, r.random)
	r.fleet = fleet()
	r.check = newChecker(t, feed, r.nc, r.shards)
	return r
}

// draw is each fault as often as every other, or once more, in some order.
func (r *nodesRun) draw(of []nodeFault, count int) (out []nodeFault) {
	if *full {
		count *= 2
	}
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
		r.pause(over / 2)
		fault.do(r)
		<-published
		t.Logf("%s %s, %v", begun.Format("15:04:05.000"), fault.name, time.Since(begun).Round(time.Millisecond))
	}
	r.waitWhole()
	end()
}

// ends compares everything with what the oracle says of the events, and has each node compare
// what it holds with the log.
func (r *nodesRun) ends() {
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
	check(r.t, r.nc, oracleOf(r.t, r.check.feed.lines), lastPosition(r.t, r.nc))
	r.settled()
	r.command("verify", "--all") // fails when anything differs
}
