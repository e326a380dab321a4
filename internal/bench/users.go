package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	callers     = 64
	firstAuthor = 1 << 44
	firstOwn    = 4_000_000_000_000_000 // posts of the authors
	newOf       = 50                    // one author in so many has something new
	manyIDs     = 500                   // of a multi-get
)

// followers are users who follow so many of the authors each.
type followers struct {
	first  uint64
	follow int
}

var (
	many = followers{1 << 43, 500}
	few  = followers{1<<43 + 1<<40, 20}
)

// followed are the authors whom the i-th follows: no two the same as long as there are more
// of them than that and 37 does not divide their number.
func (f followers) followed(i, authors int) (all []uint64) {
	for j := range f.follow {
		all = append(all, uint64((i*7919+j*37)%authors))
	}
	return all
}

// unread asks what is new to one of them, and compares.
func (b *bench) unread(f followers) func(*client.Client, *rand.Rand) error {
	want := make([]uint64, b.size.users)
	for i := range want {
		for _, author := range f.followed(i, b.size.authors) {
			if author%newOf == 0 {
				want[i]++
			}
		}
	}
	return func(c *client.Client, r *rand.Rand) error {
		i := r.IntN(len(want))
		reply, err := c.Unread(ctx, f.first+uint64(i))
		if err == nil && reply.Users[0].Feed != want[i] {
			err = fmt.Errorf("user %d has %d unread posts and the answer says %d", f.first+uint64(i), want[i], reply.Users[0].Feed)
		}
		return err
	}
}

// get asks for columns of n posts, drawn among the first ones, and compares.
func get(n, posts int, columns []string) func(*client.Client, *rand.Rand) error {
	return getOf(n, columns, func(_ int, r *rand.Rand) uint64 { return r.Uint64N(uint64(posts)) })
}

// getOf asks for columns of n posts, and compares; place says which post the i-th is.
func getOf(n int, columns []string, place func(i int, r *rand.Rand) uint64) func(*client.Client, *rand.Rand) error {
	return func(c *client.Client, r *rand.Rand) error {
		at, ids := make([]uint64, n), make([]uint64, n)
		for i := range at {
			at[i] = place(i, r)
			ids[i] = postID(at[i])
		}
		reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns})
		for i := range reply.Rows {
			want := countsOf(at[i])
			if got := reply.Rows[i].Values; !slices.Equal(got, want[len(want)-len(columns):]) {
				return fmt.Errorf("post %d has %v and the answer says %v", ids[i], want, got)
			}
		}
		return err
	}
}

// loadUsers makes posts with counts, authors with a post each, who then are followed, and
// then one in fifty publishes another.
func (b *bench) loadUsers(c *client.Client) {
	publishRows(c, 0, b.size.posts)
	post := func(add func([]byte), author, round int) {
		add(must(client.Post(firstAuthor+uint64(author), firstOwn+uint64(round*b.size.authors+author)).AppendJSON(nil)))
	}
	publish(c, func(add func([]byte)) {
		for author := range b.size.authors {
			post(add, author, 0)
		}
		for _, f := range []followers{many, few} {
			for i := range b.size.users {
				for _, author := range f.followed(i, b.size.authors) {
					add(must(client.Follow(f.first+uint64(i), firstAuthor+author).AppendJSON(nil)))
				}
			}
		}
		for author := 0; author < b.size.authors; author += newOf {
			post(add, author, 1)
		}
	})
}

// users measures what they get who ask for little: as fast as they can, and at a steady
// pace while the node has much else to do.
func (b *bench) users() {
	p, c := b.launch("audit: {rate: 0}\nrebuild: {keep: 1s}")
	defer p.discard()
	defer c.Close()
	b.say("polls, rebuild, hostile: to %d users and %d posts", 2*b.size.users, b.size.posts)
	b.loadUsers(c)
	p.rest()
	for _, m := range []struct {
		name string
		run  func(*program)
	}{{"polls", b.polls}, {"rebuild", b.rebuild}, {"hostile", b.hostile}} {
		if b.wanted[m.name] {
			m.run(p)
		}
	}
}

// polls are unread polls of 64 callers, beside an echo of the same answers.
func (b *bench) polls(p *program) {
	echo, address := b.echo(p)
	defer echo.end(syscall.SIGKILL)
	for i, f := range []followers{many, few} {
		out := line{what: fmt.Sprintf("unread polls of users who follow %d, 64 callers", f.follow), unit: "polls/s", beside: bareEcho, target: ratioAtLeast([]float64{0.8, 0.95}[i])}
		for range b.size.rounds {
			out.theirs = append(out.theirs, callFor(callers, b.size.round, to(address, func(c *client.Client, _ *rand.Rand) error {
				_, err := c.Unread(ctx, f.first)
				return err
			})))
			out.ours = append(out.ours, callFor(callers, b.size.round, to(p.url, b.unread(f))))
		}
		b.say("%s: %s a second, an echo %s", out.what, out.ours.last(), out.theirs.last())
		b.table.add(out)
	}
}

// calls are small requests at a steady pace, gets of 10 posts and polls in turn: how long
// each took, in milliseconds.
func (b *bench) calls(c *client.Client) sample {
	ask := []func(*client.Client, *rand.Rand) error{get(10, b.size.posts, columns), b.unread(few)}
	return pace(500, b.size.round, func(i int, _ time.Time, r *rand.Rand) error { return ask[i%len(ask)](c, r) })
}

// hostile is what small requests take beside a process that asks for as much as a request
// may, or publishes as fast as it can. It runs at a lower priority than the node and the one
// who asks: it takes all that they leave of the processors.
func (b *bench) hostile(p *program) {
	c := p.connect()
	defer c.Close()
	for _, l := range []struct {
		name, what string
		most       float64
	}{{"maximal", "maximal requests of 4 clients", 2.5}, {"producers", "producers at full speed", 4}} {
		out := line{what: "small requests, p99 beside " + l.what, unit: "ms", beside: quiet, target: ratioAtMost(l.most)}
		for range b.size.rounds {
			p.rest()
			out.theirs = append(out.theirs, b.calls(c).quantile(0.99))
			out.ours = append(out.ours, b.beside(p, l.name, func() sample { return b.calls(c) }).quantile(0.99))
		}
		b.say("%s: %s ms, quiet %s", out.what, out.ours.last(), out.theirs.last())
		b.table.add(out)
	}
}

const quiet = "p99 when all is quiet"

// beside does something while a load is on.
func (b *bench) beside(p *program, load string, do func() sample) sample {
	l := b.children.start(filepath.Join(b.dir, load), must(exec.LookPath("nice")), "-n", "10", me(), loadArgument, load, p.url, fmt.Sprint(b.size.posts), fmt.Sprint(b.size.users))
	defer l.end(syscall.SIGKILL)
	time.Sleep(b.size.round / 4)
	took := do()
	check(l.ended())
	return took
}

// rebuild is what small requests take while a second generation is made beside the one that
// serves, and how fast that is.
func (b *bench) rebuild(p *program) {
	c := p.connect()
	defer c.Close()
	calm, begun := b.calls(c), time.Now()
	p.command("rebuild", "--yes", "--nats", p.url)
	var loud sample
	caught := time.Duration(0)
	for state := ""; state != "switched"; {
		loud = append(loud, b.calls(c)...)
		var s struct {
			State, Why string
			Differs    uint64
		}
		check(json.Unmarshal(p.command("rebuild", "--status", "--json", "--nats", p.url), &s))
		if state = s.State; caught == 0 && state != "building" {
			caught = time.Since(begun)
		}
		if state == "aborted" || s.Differs > 0 {
			check(fmt.Errorf("the rebuild is %s: %s", state, s.Why))
		}
	}
	b.say("rebuild: p99 %s ms, quiet %s", number(loud.quantile(0.99)), number(calm.quantile(0.99)))
	b.table.add(line{
		what: "small requests, p99 beside a rebuild", unit: "ms", ours: sample{loud.quantile(0.99)},
		beside: quiet, theirs: sample{calm.quantile(0.99)}, target: ratioAtMost(2),
	})
	b.table.note("rebuild: caught up with the log after %s s, compared and serving after %s s.", number(caught.Seconds()), number(time.Since(begun).Seconds()))
}
