package acceptance_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// fleet are processes that share the work: some hold, one only answers.
type fleet struct {
	t             *testing.T
	url, settings string
	shards        int
	holders       map[string]*e2e.Process
	answers       *e2e.Process // holds nothing
	nc            *nats.Conn
	client        *client.Client
}

// fleetShards are few, so that a story of moves is short.
const fleetShards = 16

// answersOnly is what the process that only answers has in its configuration.
const answersOnly = "roles: [answer]\n"

func newFleet(t *testing.T, url, settings string, holders ...string) *fleet {
	t.Helper()
	settings = fmt.Sprintf("shards: %d\ncluster: {replicas: 2, replace_after: 3s}\ncheckpoint: {interval: 200ms, rows: 2048}\n", fleetShards) + settings
	f := &fleet{t: t, url: url, settings: settings, shards: fleetShards, holders: map[string]*e2e.Process{}}
	for _, name := range holders {
		f.add(name).Spawn()
	}
	for _, p := range f.holders {
		p.WaitHealthy()
	}
	f.answers = e2e.Prepare(t, e2e.Setup{URL: url, Settings: answersOnly + settings})
	f.answers.Start()
	f.nc = f.answers.Connect()
	f.client = client.New(f.nc)
	f.waitWhole()
	return f
}

// add prepares a holder.
func (f *fleet) add(name string) *e2e.Process {
	zone := map[string]string{"a": "x", "b": "y"}[name]
	f.holders[name] = e2e.Prepare(f.t, e2e.Setup{
		URL: f.url, Settings: fmt.Sprintf("roles: [route, hold]\nnode: %s\nzone: %q\n", name, zone) + f.settings,
	})
	return f.holders[name]
}

// holdersOf are the nodes that hold each shard.
func (f *fleet) holdersOf() [][]string {
	f.t.Helper()
	shards, err := f.client.Shards(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	out := make([][]string, len(shards.Shards))
	for s, shard := range shards.Shards {
		for _, h := range shard.Holders {
			out[s] = append(out[s], h.Node)
		}
	}
	return out
}

// waitWhole waits until every shard has two holders, both ready.
func (f *fleet) waitWhole() {
	f.t.Helper()
	waitWhole(f.t, f.client, f.shards)
}

func waitWhole(t *testing.T, c *client.Client, shards int) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if last = lacks(t, c, shards); last == "" {
			return
		}
	}
	t.Fatalf("not every shard has two ready holders within a minute: %s", last)
}

// lacks says of which shard there are not two holders, both ready; "" of none.
func lacks(t *testing.T, c *client.Client, shards int) string {
	now, err := c.Shards(t.Context())
	if err != nil || len(now.Shards) != shards {
		return fmt.Sprintf("%d shards: %v", len(now.Shards), err)
	}
	for _, s := range now.Shards {
		ready := func(h client.Holder) bool { return h.State == "ready" }
		if len(s.Holders) != 2 || !ready(s.Holders[0]) || !ready(s.Holders[1]) {
			return fmt.Sprintf("epoch %d, shard %d: %+v", now.Epoch, s.Shard, s.Holders)
		}
	}
	return ""
}

// waitBoth waits until both of two nodes hold all shards, so that one may go.
func waitBoth(t *testing.T, nc *nats.Conn, shards int) {
	t.Helper()
	(&fleet{t: t, shards: shards, client: client.New(nc)}).waitWhole()
}

// router is the node that routes.
func (f *fleet) router() string {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		nodes, err := f.client.Nodes(f.t.Context())
		if err != nil {
			continue
		}
		for _, n := range nodes.Nodes {
			if n.Routes && f.holders[n.Node] != nil && n.State != "away" {
				return n.Node
			}
		}
	}
	f.t.Fatal("nobody routes")
	return ""
}

// nodesRun is a fleet under way, with a publisher and those who check.
type nodesRun struct {
	*fleet
	check  *checker
	random *rand.Rand
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

// faults are what becomes of the nodes. Each begins when every shard has two ready
// holders, and ends with all processes running.
var faults = []struct {
	name string
	do   func(r *nodesRun)
}{
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
	{"the router is killed", func(r *nodesRun) {
		p := r.holders[r.router()]
		p.Kill()
		r.pause(2 * time.Second)
		p.Start()
	}},
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
		r.answers.Do("nodes", "drain", name)
		r.pause(time.Second)
		r.waitWhole()
		r.answers.Do("nodes", "undrain", name)
	}},
	{"another is killed while a holder is drained", func(r *nodesRun) {
		drained := r.any()
		r.answers.Do("nodes", "drain", drained)
		r.pause(500 * time.Millisecond)
		p := r.holders[r.any(drained)]
		p.Kill()
		p.Start()
		r.answers.Do("nodes", "undrain", drained)
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
		gone := map[pipeline.Shard]bool{}
		for s, names := range r.holdersOf() {
			if slices.Contains(names, one) && slices.Contains(names, two) {
				gone[pipeline.Shard(s)] = true
			}
		}
		r.check.down.Store(&gone)
		r.holders[one].Kill()
		r.pause(500 * time.Millisecond)
		r.holders[two].Kill()
		r.pause(2 * time.Second)
		r.holders[one].Start()
		r.holders[two].Start()
		r.waitWhole()
		r.check.down.Store(&map[pipeline.Shard]bool{})
	}},
}

// "four holders with two replicas, one that only answers … while holders and the
// router are killed -9, started, drained, joined, cut off and stopped at random
// (twenty times or more); then every column of every user and post equals …,
// asked through a node that only answers; and during all of it a checking client
// asks with min_position and holds each whole answer between the twin's at its
// as_of and at the newest position then."
func TestNodes(t *testing.T) {
	const count = 22
	path, lines := slice(t, follows-10_000, follows+20_000)
	want := oracle(t, path)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	feed := newFeed(t, lines, random)

	f := newFleet(t, natstest.Server(t).URL(), "", "a", "b", "c", "d")
	r := &nodesRun{fleet: f, random: random, check: &checker{t: t, feed: feed, nc: f.nc, shards: f.shards}}
	r.check.down.Store(&map[pipeline.Shard]bool{})
	end := r.check.begin(seed)
	order := r.order(count)
	for i, each := range order {
		if i == count/2 {
			r.add("e").Start() // one joins
		}
		r.waitWhole()
		if t.Failed() {
			break
		}
		begun := time.Now()
		published := make(chan struct{})
		go func() {
			defer close(published)
			feed.publish(t, f.nc, (i+1)*len(feed.messages)/count, 1500*time.Millisecond)
		}()
		r.pause(500 * time.Millisecond)
		faults[each].do(r)
		<-published
		t.Logf("%s %s, %v", begun.Format("15:04:05.000"), faults[each].name, time.Since(begun).Round(time.Millisecond))
	}
	r.waitWhole()
	end()
	if t.Failed() {
		return
	}
	check(t, f.nc, want, lastPosition(t, f.nc))
	f.settled()
}

// order is each fault as often as every other, or once more, in some order.
func (r *nodesRun) order(count int) (out []int) {
	for len(out) < count {
		out = append(out, r.random.Perm(len(faults))...)
	}
	return out[:count]
}

// settled makes sure of what 'tidemark shards' shows, and that none has stopped.
func (f *fleet) settled() {
	f.t.Helper()
	out := f.answers.Do("shards")
	if n := strings.Count(out, "ready"); n != 2*f.shards || strings.Contains(out, "failed") {
		f.t.Errorf("tidemark shards shows %d ready holders, not %d:\n%s", n, 2*f.shards, out)
	}
	for name, p := range f.holders {
		if p.Ended() != nil {
			f.t.Errorf("%s has ended: %v", name, p.Ended())
		}
		p.WaitReady()
	}
}

// "three `tidemark run` with embedded servers find each other, form a NATS
// cluster", and with one more that only answers one of them may be killed.
func TestNodesEmbedded(t *testing.T) {
	path, lines := slice(t, follows-3_000, follows+5_000)
	want := oracle(t, path)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 4))
	feed := newFeed(t, lines, random)

	f := &fleet{t: t, shards: fleetShards, holders: map[string]*e2e.Process{}}
	ports := map[string]int{"a": e2e.FreePort(t), "b": e2e.FreePort(t), "c": e2e.FreePort(t)}
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("'nats://127.0.0.1:%d'", port))
	}
	settings := fmt.Sprintf("shards: %d\ncluster: {replicas: 2}\ncheckpoint: {interval: 200ms}\n", fleetShards)
	var urls []string
	for name, port := range ports {
		p := e2e.Prepare(t, e2e.Setup{
			NATS: fmt.Sprintf("replicas: 3, cluster: {listen: '127.0.0.1:%d', routes: [%s]}, "+
				"streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}", port, strings.Join(routes, ", ")),
			Settings: fmt.Sprintf("node: %s\n", name) + settings,
		})
		p.Spawn()
		f.holders[name], urls = p, append(urls, p.URL)
	}
	for _, p := range f.holders {
		p.WaitReady()
	}
	f.answers = e2e.Prepare(t, e2e.Setup{URL: strings.Join(urls, ","), Settings: answersOnly + settings})
	f.answers.Start()
	f.nc = f.answers.Connect()
	f.client = client.New(f.nc)
	f.waitWhole()

	parts, n := 4, len(feed.messages)
	for i := range parts {
		published := make(chan struct{})
		go func() {
			defer close(published)
			feed.publish(t, f.nc, (i+1)*n/parts, 2*time.Second)
		}()
		if i%2 == 1 { // whichever it is: it has a third of the streams' copies, too, and may lead them
			p := f.holders[[]string{"a", "b", "c"}[random.IntN(3)]]
			time.Sleep(time.Second)
			p.Kill()
			time.Sleep(time.Second)
			p.Start()
		}
		<-published
		f.waitWhole()
	}
	if t.Failed() {
		return
	}
	check(t, f.nc, want, lastPosition(t, f.nc))
	f.settled()
}
