package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	nodesGets    = 8 // callers
	nodesArrived = 100 * time.Millisecond
)

// fleet is a system of several processes on a NATS server of the bench's own,
// whose processor time is nobody's of theirs.
type fleet struct {
	*bench
	server   *jetlog.Server
	settings string // of all, in the section cluster
	all      []*program
	holders  []*program
	router   *program
	thin     *program
	c        *client.Client // of the thin one
}

// nodes measures what it costs that shards are spread over processes: one
// process with all roles, then one that routes, one that only answers, and 1, 2
// and 4 that hold.
func (b *bench) nodes(ctx context.Context) (err error) {
	b.say("nodes: %s post rows, %s users who follow %d", number(float64(b.size.asked)), number(float64(b.size.pollers)), allPollers[0].follow)
	alone, err := b.fleet(ctx, "")
	if err != nil {
		return err
	}
	one, err := alone.add(ctx, "one", "")
	if err == nil {
		alone.holders, alone.thin = []*program{one}, one
		err = alone.load(ctx)
	}
	var beside nodesCost
	if err == nil {
		beside, err = alone.cost(ctx)
	}
	alone.close()
	if err != nil {
		return err
	}
	b.say("nodes: one process: get %s µs, poll %s µs", number(beside.get.all), number(beside.poll.all))

	f, err := b.fleet(ctx, "")
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.measure(ctx, beside); err != nil {
		return err
	}
	return b.kills(ctx)
}

func (f *fleet) measure(ctx context.Context, beside nodesCost) (err error) {
	if f.router, err = f.add(ctx, "router", "roles: [route]\n"); err != nil {
		return err
	}
	if err := f.hold(ctx, 1); err != nil {
		return err
	}
	if f.thin, err = f.add(ctx, "thin", "roles: [answer]\n"); err != nil {
		return err
	}
	if err := f.load(ctx); err != nil {
		return err
	}
	var costs []nodesCost
	var applies []float64
	for _, holders := range []int{1, 2, 4} {
		if holders == 2 {
			if err := f.move(ctx); err != nil {
				return err
			}
		}
		if err := f.hold(ctx, holders); err != nil {
			return err
		}
		cost, err := f.cost(ctx)
		if err != nil {
			return err
		}
		apply, err := f.apply(ctx, uint64(holders))
		if err != nil {
			return err
		}
		costs, applies = append(costs, cost), append(applies, apply)
		f.say("nodes: %d holders: get %s µs (a holder %s), poll %s µs (a holder %s), %s µs an event applied", holders,
			number(cost.get.all), number(cost.get.holder), number(cost.poll.all), number(cost.poll.holder), number(apply))
		what := fmt.Sprintf("%d holders and a node that only answers", holders)
		f.table.add(line{what: "get of 500, " + what, unit: "µs", ours: sample{cost.get.all}, beside: "one process", theirs: sample{beside.get.all}, target: ratioAtMost(2)})
		f.table.add(line{what: "unread of one who follows 500, " + what, unit: "µs", ours: sample{cost.poll.all}, beside: "one process", theirs: sample{beside.poll.all}, target: ratioAtMost(2)})
	}
	last := len(costs) - 1
	f.table.add(line{what: "get of 500: a holder's share with 1 holder", unit: "µs", ours: sample{costs[0].get.holder}, beside: "with 4", theirs: sample{costs[last].get.holder}, target: ratioAtLeast(3.4)})
	f.table.add(line{what: "unread of one who follows 500: a holder's share with 1 holder", unit: "µs", ours: sample{costs[0].poll.holder}, beside: "with 4", theirs: sample{costs[last].poll.holder}, target: ratioAtLeast(3.4)})
	f.table.add(line{what: "applying, a holder of a quarter", unit: "µs", ours: sample{applies[last]}, beside: "of all", theirs: sample{applies[0]}, target: ratioAtMost(0.35)})
	f.table.note("nodes: processor time of all processes but the NATS server, which is the bench's, for a request or an event; %d callers, one process with all roles beside it.", nodesGets)
	return nil
}

// fleet starts the server.
func (b *bench) fleet(ctx context.Context, settings string) (*fleet, error) {
	if _, err := b.build(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "nodes-")
	if err != nil {
		return nil, err
	}
	f := &fleet{bench: b, settings: settings}
	f.server, err = jetlog.StartServer(jetlog.ServerOptions{
		Listen: "127.0.0.1:0", StoreDir: filepath.Join(dir, "streams"),
		StoreBytesMax: jetlog.StreamOptions{}.BytesMax(), SyncInterval: 200 * time.Millisecond,
	})
	return f, err
}

func (f *fleet) close() {
	if f.c != nil {
		f.c.Close()
	}
	for _, p := range f.all {
		p.discard()
	}
	f.server.Close()
}

// add starts one more process.
func (f *fleet) add(ctx context.Context, name, settings string) (*program, error) {
	p, err := f.prepareOn(ctx, f.server.URL(), fmt.Sprintf("node: %s\nnats: {url: %q}\ncluster: {%sreplace_after: 1h}\n%s", name, f.server.URL(), f.settings, settings))
	if err != nil {
		return nil, err
	}
	f.all = append(f.all, p)
	return p, p.spawn()
}

// hold starts as many holders as are missing, and waits until all shards are
// where they belong.
func (f *fleet) hold(ctx context.Context, holders int) error {
	for len(f.holders) < holders {
		p, err := f.add(ctx, fmt.Sprintf("h%d", len(f.holders)), "roles: [hold]\n")
		if err != nil {
			return err
		}
		f.holders = append(f.holders, p)
	}
	return f.arrived(ctx, 1)
}

// arrived returns when every shard is ready at as many holders, and at no
// other, and the shards are spread over all holders.
func (f *fleet) arrived(ctx context.Context, replicas int) error {
	if f.thin == nil {
		return nil // nobody answers yet
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	return f.thin.until(ctx, "wait for the shards", nodesArrived, func() error {
		shards, err := f.c.Shards(ctx)
		if err != nil {
			return err
		}
		with := map[string]int{}
		for _, s := range shards.Shards {
			if len(s.Holders) != replicas {
				return fmt.Errorf("shard %d has %d holders", s.Shard, len(s.Holders))
			}
			for _, h := range s.Holders {
				if h.State != "ready" {
					return fmt.Errorf("shard %d is %s at %s", s.Shard, h.State, h.Node)
				}
				with[h.Node]++
			}
		}
		if len(shards.Shards) == 0 || len(with) != len(f.holders) {
			return fmt.Errorf("%d shards are with %d of %d holders", len(shards.Shards), len(with), len(f.holders))
		}
		return nil
	})
}

func (f *fleet) connect(ctx context.Context) (err error) {
	if f.c == nil {
		f.c, err = f.thin.ready(ctx)
	}
	return err
}

// load publishes what is asked for later, and waits until all is at rest.
func (f *fleet) load(ctx context.Context) error {
	if err := f.connect(ctx); err != nil {
		return err
	}
	if err := f.arrived(ctx, 1); err != nil {
		return err
	}
	s := &small{bench: f.bench, p: f.holders[0]}
	return s.load(ctx, f.c)
}

// share is processor time for a request, in microseconds.
type share struct{ all, holder float64 }

// nodesCost is what requests cost.
type nodesCost struct{ get, poll share }

func (f *fleet) cost(ctx context.Context) (cost nodesCost, err error) {
	if cost.get, err = f.spent(ctx, func(c *client.Client) call {
		return func(ctx context.Context, r *rand.Rand) error {
			ids := make([]uint64, getIDs)
			for i := range ids {
				ids[i] = postID(uint64(r.IntN(f.size.asked)))
			}
			reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns[likesAt:]})
			if err == nil && len(reply.Missing) > 0 {
				err = fmt.Errorf("%d posts are missing", len(reply.Missing))
			}
			return err
		}
	}); err != nil {
		return cost, err
	}
	group := allPollers[0]
	cost.poll, err = f.spent(ctx, func(c *client.Client) call {
		return func(ctx context.Context, r *rand.Rand) error {
			i := r.IntN(f.size.pollers)
			reply, err := c.Unread(ctx, group.user(i))
			if err != nil {
				return err
			}
			if got, want := reply.Users[0].Feed, uint64(group.unread(i, f.size.polled)); got != want {
				return fmt.Errorf("user %d has %d unread posts and the answer says %d", group.user(i), want, got)
			}
			return nil
		}
	})
	return cost, err
}

// spent has callers ask for a while.
func (f *fleet) spent(ctx context.Context, ask func(*client.Client) call) (s share, err error) {
	before := f.busy()
	t, err := callFor(ctx, nodesGets, f.size.ask, func() (call, io.Closer, error) {
		c, err := client.Connect(f.server.URL())
		if err != nil {
			return nil, nil, err
		}
		return ask(c), closer(c.Close), nil
	})
	if err != nil {
		return s, err
	}
	for i, now := range f.busy() {
		spent := (now - before[i]).Seconds() * 1e6 / float64(len(t.took))
		s.all += spent
		if slices.Contains(f.holders, f.all[i]) {
			s.holder += spent / float64(len(f.holders))
		}
	}
	return s, nil
}

func (f *fleet) busy() (all []time.Duration) {
	for _, p := range f.all {
		all = append(all, p.child.busy())
	}
	return all
}

// apply is a holder's processor time for an event, in microseconds, checkpoints
// included.
func (f *fleet) apply(ctx context.Context, seed uint64) (float64, error) {
	before := f.busy()
	drawn := newCommunity(100 + seed)
	err := feedLines(ctx, f.c, func(add func([]byte) error) error {
		var body []byte
		for range f.size.backlog {
			if _, body = drawn.event(body[:0]); len(body) == 0 {
				continue
			}
			if err := add(body); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = f.holders[0].settle(ctx)
	}
	sum := 0.0
	for i, now := range f.busy() {
		if slices.Contains(f.holders, f.all[i]) {
			sum += (now - before[i]).Seconds() * 1e6 / float64(f.size.backlog*len(f.holders))
		}
	}
	return sum, err
}

// move is what small gets take while half of the shards go to a second holder.
func (f *fleet) move(ctx context.Context) error {
	get := func() (sample, error) {
		return pace(ctx, f.size.calls, f.size.moving, func(ctx context.Context, _ int, seed uint64) error {
			post := postID(seed % uint64(f.size.asked))
			reply, err := f.c.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{post}, Columns: columns[likesAt:]})
			if err == nil && len(reply.Missing) > 0 {
				err = fmt.Errorf("post %d is missing", post)
			}
			return err
		})
	}
	quiet, err := get()
	if err != nil {
		return err
	}
	p, err := f.add(ctx, fmt.Sprintf("h%d", len(f.holders)), "roles: [hold]\n")
	if err != nil {
		return err
	}
	f.holders = append(f.holders, p)
	beside, err := get()
	f.table.add(line{
		what: "small gets, p99 while shards move", unit: "ms", ours: sample{beside.quantile(0.99)},
		beside: "when all is quiet", theirs: sample{quiet.quantile(0.99)}, target: ratioAtMost(2),
	})
	return err
}

// kills is how long it takes until all is well again when one is gone, with two
// holders of each shard and two that can route.
func (b *bench) kills(ctx context.Context) error {
	f, err := b.fleet(ctx, "replicas: 2, ")
	if err != nil {
		return err
	}
	defer f.close()
	var routers []*program
	for _, name := range []string{"first", "second"} {
		p, err := f.add(ctx, name, "roles: [route]\n")
		if err != nil {
			return err
		}
		routers = append(routers, p)
	}
	if err := f.hold(ctx, 3); err != nil {
		return err
	}
	if f.thin, err = f.add(ctx, "thin", "roles: [answer]\n"); err != nil {
		return err
	}
	if err := f.arrived(ctx, 2); err != nil {
		return err
	}
	if err := loadRows(ctx, f.c, 0, 1000); err != nil {
		return err
	}
	holder := line{what: "kill -9 of one of two holders, until every answer is whole", unit: "s", target: atMost(1)}
	router := line{what: "kill -9 of the router, until events count", unit: "s", target: atMost(2)}
	for round := range f.size.rounds {
		victim := f.holders[round%len(f.holders)]
		begun := time.Now()
		victim.end(syscall.SIGKILL)
		took, err := f.untilWhole(ctx, begun)
		if err != nil {
			return err
		}
		holder.ours = append(holder.ours, took.Seconds())
		if err := victim.spawn(); err != nil {
			return err
		}
		active, err := f.active(ctx, routers)
		if err != nil {
			return err
		}
		begun = time.Now()
		active.end(syscall.SIGKILL)
		at, err := f.c.Publish(ctx, client.Like(1, 2, 3))
		if err == nil {
			err = applied(ctx, f.c, at)
		}
		if err != nil {
			return err
		}
		router.ours = append(router.ours, time.Since(begun).Seconds())
		if err := active.spawn(); err != nil {
			return err
		}
		if err := f.arrived(ctx, 2); err != nil {
			return err
		}
		f.say("nodes: whole %s s after a holder was killed, counting %s s after the router was", last(holder.ours), last(router.ours))
	}
	f.table.add(holder)
	f.table.add(router)
	return nil
}

// untilWhole asks for ids of all shards for some seconds, and gives when the
// last answer came that was not whole, or was long in coming.
func (f *fleet) untilWhole(ctx context.Context, begun time.Time) (took time.Duration, err error) {
	ids := idOfEachShard()
	for time.Since(begun) < 3*time.Second {
		asked := time.Now()
		reply, err := f.c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns[likesAt:]})
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err != nil || len(reply.Missing) > 0 || time.Since(asked) > 50*time.Millisecond {
			took = time.Since(begun)
		}
	}
	return took, nil
}

// active is the one that routes.
func (f *fleet) active(ctx context.Context, routers []*program) (is *program, err error) {
	err = f.thin.until(ctx, "wait for a router", nodesArrived, func() error {
		for _, p := range routers {
			figures, err := p.figures()
			if err == nil && figures["tidemark_router_active"] == 1 {
				is = p
				return nil
			}
		}
		return errors.New("nobody routes")
	})
	return is, err
}
