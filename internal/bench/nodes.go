package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/tidemark-io/tidemark/query/client"
)

// windowBytes is a figure of /metrics: of the windows that a router has appended.
const windowBytes = "tidemark_window_bytes_total"

// holdersMeasured are the numbers of holders with which nodes are measured.
var holdersMeasured = []int{1, 2, 4}

// point is what was measured with so many holders.
type point struct {
	holders   int
	get, poll cost // of 500 posts, and of one who follows 500
	event     cost
	deltas    float64 // bytes of an event in DELTAS
}

// point measures what the processes that there are pay.
func (f *fleet) point(ctx context.Context) (p point, err error) {
	p.holders = len(f.holders)
	rest, err := f.rest(ctx)
	if err != nil {
		return p, err
	}
	if p.get, err = f.gets(ctx, rest, callers, getIDs); err != nil {
		return p, err
	}
	if p.poll, err = f.unreads(ctx, rest, callers, allPollers[0]); err != nil {
		return p, err
	}
	p.event, p.deltas, err = f.apply(ctx, rest)
	f.say("nodes: %d holders: %s", p.holders, p.get.text("get of 500"))
	f.say("nodes: %d holders: %s", p.holders, p.poll.text("poll of 500"))
	f.say("nodes: %d holders: %s", p.holders, p.event.text("event"))
	return p, err
}

// nodes measures what it costs that shards are spread over processes: one
// process with all roles, then one that routes, one that only answers, and 1, 2
// and 4 that hold.
func (b *bench) nodes(ctx context.Context) error {
	b.say("nodes: %s post rows, %s users who follow %d", number(float64(b.size.asked)), number(float64(b.size.pollers)), allPollers[0].follow)
	beside, err := b.oneProcess(ctx)
	if err != nil {
		return err
	}
	points, err := b.severalProcesses(ctx)
	if err != nil {
		return err
	}
	b.addNodes(points, beside)
	return nil
}

// oneProcess is what one process pays that has all roles.
func (b *bench) oneProcess(ctx context.Context) (p point, err error) {
	f, err := b.fleet(ctx, "replicas: 1, ")
	if err != nil {
		return p, err
	}
	defer f.close()
	if err := f.alone(ctx); err != nil {
		return p, err
	}
	return f.point(ctx)
}

// severalProcesses is what is paid with each of holdersMeasured.
func (b *bench) severalProcesses(ctx context.Context) (points []point, err error) {
	f, err := b.fleet(ctx, "replicas: 1, ")
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.apart(ctx); err != nil {
		return nil, err
	}
	for _, holders := range holdersMeasured {
		if holders == 2 { // half of all shards go to the second: what that costs those who ask
			if err := f.move(ctx); err != nil {
				return nil, err
			}
		}
		if err := f.hold(ctx, holders); err != nil {
			return nil, err
		}
		p, err := f.point(ctx)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	return points, nil
}

// addNodes adds what several processes pay, beside one that has all roles.
func (b *bench) addNodes(points []point, beside point) {
	for _, p := range points {
		what := "1 holder and a node that only answers"
		if p.holders > 1 {
			what = fmt.Sprintf("%d holders and a node that only answers", p.holders)
		}
		b.table.add(line{what: "get of 500, " + what, unit: "µs", ours: sample{p.get.all}, beside: "one process", theirs: sample{beside.get.all}, target: ratioAtMost(2)})
		b.table.add(line{what: "unread of one who follows 500, " + what, unit: "µs", ours: sample{p.poll.all}, beside: "one process", theirs: sample{beside.poll.all}, target: ratioAtMost(2)})
	}
	first, last := points[0], points[len(points)-1]
	b.table.add(line{what: "get of 500: a holder's share with 1 holder", unit: "µs", ours: sample{first.get.holders}, beside: "with 4", theirs: sample{last.get.holders / 4}, target: ratioAtLeast(3.4)})
	b.table.add(line{what: "unread of one who follows 500: a holder's share with 1 holder", unit: "µs", ours: sample{first.poll.holders}, beside: "with 4", theirs: sample{last.poll.holders / 4}, target: ratioAtLeast(3.4)})
	b.table.add(line{what: "applying, a holder of a quarter", unit: "µs", ours: sample{last.event.holders / 4}, beside: "of all", theirs: sample{first.event.holders}, target: ratioAtMost(0.35)})
	e := last.event
	for _, a := range []struct {
		what   string
		amount float64
		unit   string
	}{
		{"event, the router", e.router, "µs"},
		{"event, all of 4 holders", e.holders, "µs"},
		{"event, the NATS server", e.server, "µs"},
		{"event, in DELTAS", last.deltas, "bytes"},
	} {
		b.table.add(line{what: a.what, unit: a.unit, ours: sample{a.amount}})
	}
	b.table.note("nodes: processor time of all processes but the NATS server, for a request or an event, less what they take at rest; %d callers, one process with all roles beside it.", callers)
}

func (c cost) text(what string) string {
	return fmt.Sprintf("%s %s µs: router %s, answering %s, all holders %s; NATS server %s; holders read %s and write %s bytes",
		what, number(c.all), number(c.router), number(c.thin), number(c.holders), number(c.server), number(c.read), number(c.written))
}

// gets is what a get of so many posts costs.
func (f *fleet) gets(ctx context.Context, rest spent, callers, n int) (cost, error) {
	return f.asked(ctx, rest, callers, func(c *client.Client) call {
		return func(ctx context.Context, r *rand.Rand) error {
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = postID(uint64(r.IntN(f.size.asked)))
			}
			reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns[likesAt:]})
			if err == nil && len(reply.Missing) > 0 {
				err = fmt.Errorf("%d posts are missing", len(reply.Missing))
			}
			return err
		}
	})
}

// looked has the pollers read their feeds, and then one author in fifty post: what was
// before holders have joined, they do not know who posted.
func (f *fleet) looked(ctx context.Context, group pollers) error {
	f.looks++
	err := feedLines(ctx, f.c, func(add func([]byte) error) error {
		var buffer []byte
		event := func(e client.Event) (err error) {
			if buffer, err = e.AppendJSON(buffer[:0]); err != nil {
				return err
			}
			return add(buffer)
		}
		for i := range f.size.pollers {
			if err := event(client.Read(group.user(i), "feed")); err != nil {
				return err
			}
		}
		for a := 0; a < f.size.polled; a += newOf {
			if err := event(client.Post(firstFollowed+uint64(a), firstPolled+uint64((1+f.looks)*f.size.polled+a))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.settle(ctx)
}

// unreads is what an unread poll of one user costs.
func (f *fleet) unreads(ctx context.Context, rest spent, callers int, group pollers) (cost, error) {
	if err := f.looked(ctx, group); err != nil {
		return cost{}, err
	}
	expected := make([]uint64, f.size.pollers)
	for i := range expected {
		expected[i] = uint64(group.unread(i, f.size.polled))
	}
	return f.asked(ctx, rest, callers, func(c *client.Client) call {
		return func(ctx context.Context, r *rand.Rand) error {
			i := r.IntN(f.size.pollers)
			reply, err := c.Unread(ctx, group.user(i))
			if err != nil {
				return err
			}
			if got := reply.Users[0].Feed; got != expected[i] {
				return fmt.Errorf("user %d has %d unread posts and the answer says %d", group.user(i), expected[i], got)
			}
			return nil
		}
	})
}

// asked has callers ask for a while.
func (f *fleet) asked(ctx context.Context, rest spent, callers int, ask func(*client.Client) call) (cost, error) {
	return f.costOf(rest, func() (int, error) {
		t, err := callFor(ctx, callers, f.size.ask, func() (call, io.Closer, error) {
			c, err := client.Connect(f.url)
			if err != nil {
				return nil, nil, err
			}
			return ask(c), closer(c.Close), nil
		})
		return len(t.took), err
	})
}

// apply is what an event costs, checkpoints included, and its bytes in DELTAS.
func (f *fleet) apply(ctx context.Context, rest spent) (c cost, deltas float64, err error) {
	before, err := f.router.figures()
	if err != nil {
		return c, 0, err
	}
	f.drawn++
	events := newCommunity(100 + f.drawn)
	c, err = f.costOf(rest, func() (int, error) {
		err := feedLines(ctx, f.c, func(add func([]byte) error) error {
			var body []byte
			for range f.size.backlog {
				if _, body = events.event(body[:0]); len(body) == 0 {
					continue
				}
				if err := add(body); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = f.settle(ctx)
		}
		return f.size.backlog, err
	})
	if err != nil {
		return c, 0, err
	}
	now, err := f.router.figures()
	return c, (now[windowBytes] - before[windowBytes]) / float64(f.size.backlog), err
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
	if err := f.join(ctx); err != nil {
		return err
	}
	beside, err := get()
	f.table.add(line{
		what: "small gets, p99 while shards move", unit: "ms", ours: sample{beside.quantile(0.99)},
		beside: "when all is quiet", theirs: sample{quiet.quantile(0.99)}, target: ratioAtMost(2),
	})
	return err
}
