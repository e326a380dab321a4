package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// fleet is a system of several processes on a NATS server that is a process of its own:
// what they pay for answers is known.
type fleet struct {
	*bench
	server *child
	url    string // of the server
	all    []*program
	c      *client.Client
}

// fleetOf starts so many holders, a router and a node that only answers; none: one process
// with all roles. It returns when all is loaded and at rest.
func (b *bench) fleetOf(holders int) *fleet {
	dir := must(os.MkdirTemp(b.dir, "fleet-"))
	f := &fleet{bench: b}
	var address string
	f.server, address = b.myself(serverArgument, dir, dir)
	f.url = "nats://" + address
	if holders == 0 {
		f.add("one", "")
	} else {
		f.add("router", "roles: [route]")
		for n := range holders {
			f.add(fmt.Sprint("holder", n), "roles: [hold]")
		}
		f.add("thin", "roles: [answer]")
	}
	answering := f.all[len(f.all)-1]
	f.c = answering.ready()
	answering.until("wait for the shards", 100*time.Millisecond, func() error { return f.spread(max(holders, 1)) })
	f.loadUsers(f.c)
	for _, p := range f.all {
		if p != answering || holders == 0 {
			p.rest()
		}
	}
	return f
}

// add starts one more process.
func (f *fleet) add(name, settings string) {
	p := f.prepare(f.url, fmt.Sprintf("node: %s\ncluster: {replicas: 1, replace_after: 1h}\naudit: {rate: 0}\n%s", name, settings))
	f.all = append(f.all, p)
	p.spawn()
}

// spread is an error unless each shard is ready at one holder, and each holder has some.
func (f *fleet) spread(holders int) error {
	shards, err := f.c.Shards(ctx)
	if err != nil {
		return err
	}
	with := map[string]int{}
	for _, s := range shards.Shards {
		if len(s.Holders) != 1 || s.Holders[0].State != "ready" {
			return fmt.Errorf("shard %d is with %v", s.Shard, s.Holders)
		}
		with[s.Holders[0].Node]++
	}
	if len(with) != holders {
		return fmt.Errorf("%d shards are with %d of %d holders", len(shards.Shards), len(with), holders)
	}
	return nil
}

func (f *fleet) close() {
	f.c.Close()
	for _, p := range f.all {
		p.discard()
	}
	f.server.end(syscall.SIGKILL)
}

// busy is the processor time of all processes but the server.
func (f *fleet) busy() (sum time.Duration) {
	for _, p := range f.all {
		sum += p.busy()
	}
	return sum
}

// cost is the processor time of all for one call, in µs, less what they take at rest.
func (f *fleet) cost(one func(*client.Client, *rand.Rand) error) float64 {
	before := f.busy()
	time.Sleep(2 * f.size.round)
	rest := f.busy() - before
	before = f.busy()
	perSecond := callFor(callers, 2*f.size.round, to(f.url, one))
	return (f.busy() - before - rest).Seconds() * 1e6 / (perSecond * 2 * f.size.round.Seconds())
}

// nodes measures what it costs that shards are spread over four holders: one process with
// all roles, then one that routes, one that only answers, and four that hold.
func (b *bench) nodes() {
	lines := []line{
		{what: "unread of one who follows 500, over 4 holders", unit: "µs", beside: "one process", target: ratioAtMost(2.4)},
		{what: "get of 500, over 4 holders", unit: "µs", beside: "one process", target: ratioAtMost(1.8)},
	}
	for _, holders := range []int{0, 4} {
		b.say("nodes: %d holders", holders)
		f := b.fleetOf(holders)
		for i, one := range []func(*client.Client, *rand.Rand) error{b.unread(many), get(manyIDs, b.size.posts, like)} {
			to := &lines[i].theirs
			if holders > 0 {
				to = &lines[i].ours
			}
			*to = append(*to, f.cost(one))
		}
		f.close()
	}
	b.table.add(lines...)
}
