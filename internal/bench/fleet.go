package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

// fleet is a system of several processes on a NATS server that is a process of
// its own: what each costs is known.
type fleet struct {
	*bench
	server   *child
	url      string // of the server
	dir      string // of its streams
	settings string // of all, in the section cluster
	all      []*program
	holders  []*program
	router   *program
	thin     *program
	c        *client.Client // of the thin one
	drawn    uint64         // how often events were drawn
	looks    int            // how often pollers have read their feeds
}

// serverArgument: `bench server HOST:PORT DIR`, a NATS server as the program
// embeds it.
const serverArgument = "server"

// serve is the main of a server's process. It returns on errors only.
func serve(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("a server is HOST:PORT DIR, not %q", arguments)
	}
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // as `tidemark run` has it
	_, err := embed.StartServer(embed.ServerOptions{
		Listen: arguments[0], StoreDir: arguments[1],
		StoreBytesMax: jetlog.StreamOptions{}.BytesMax(), SyncInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	select {}
}

// fleet starts the server.
func (b *bench) fleet(ctx context.Context, settings string) (*fleet, error) {
	if _, err := b.build(ctx); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "nodes-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	f := &fleet{bench: b, settings: settings, url: "nats://" + address, dir: dir}
	if f.server, err = b.children.start(filepath.Join(dir, "log"), nil, self, serverArgument, address, filepath.Join(dir, "streams")); err != nil {
		return nil, err
	}
	err = f.server.until(ctx, "wait for the server", 5*time.Millisecond, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) close() {
	if f.c != nil {
		f.c.Close()
	}
	for _, p := range f.all {
		p.discard()
	}
	f.server.end(syscall.SIGKILL)
	os.RemoveAll(f.dir)
}

// add starts one more process.
func (f *fleet) add(ctx context.Context, name, settings string) (*program, error) {
	p, err := f.prepareOn(ctx, f.url, fmt.Sprintf("node: %s\nnats: {url: %q}\ncluster: {%sreplace_after: 1h}\n%s", name, f.url, f.settings, settings))
	if err != nil {
		return nil, err
	}
	f.all = append(f.all, p)
	return p, p.spawn()
}

// alone starts the one process that has all roles.
func (f *fleet) alone(ctx context.Context) error {
	one, err := f.add(ctx, "one", "")
	if err != nil {
		return err
	}
	f.holders, f.router, f.thin = []*program{one}, one, one
	return f.load(ctx)
}

// apart starts one process that routes, one that holds and one that only answers.
func (f *fleet) apart(ctx context.Context) (err error) {
	if f.router, err = f.add(ctx, "router", "roles: [route]\n"); err != nil {
		return err
	}
	if err := f.hold(ctx, 1); err != nil {
		return err
	}
	if f.thin, err = f.add(ctx, "thin", "roles: [answer]\n"); err != nil {
		return err
	}
	return f.load(ctx)
}

// hold starts as many holders as are missing, and waits until all shards are
// where they belong.
func (f *fleet) hold(ctx context.Context, holders int) error {
	for len(f.holders) < holders {
		if err := f.join(ctx); err != nil {
			return err
		}
	}
	return f.arrived(ctx, 1)
}

// join starts one more holder.
func (f *fleet) join(ctx context.Context) error {
	p, err := f.add(ctx, fmt.Sprintf("h%d", len(f.holders)), "roles: [hold]\n")
	if err == nil {
		f.holders = append(f.holders, p)
	}
	return err
}

// nodesArrived is how often is looked whether something has come about.
const nodesArrived = 100 * time.Millisecond

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
	return (&small{bench: f.bench, p: f.holders[0]}).load(ctx, f.c)
}

// settle returns when nobody has anything left to do.
func (f *fleet) settle(ctx context.Context) error {
	for _, p := range f.holders {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// spent is processor time by what a process is for. One that is for several
// counts in each, and once in all. The server does not count in all.
type spent struct {
	all, router, holders, thin, server time.Duration
	read, written                      float64 // bytes of all holders, of sockets and files
}

func (f *fleet) spent() (s spent) {
	for _, p := range f.all {
		busy := p.busy()
		s.all += busy
		if p == f.router {
			s.router += busy
		}
		if p == f.thin {
			s.thin += busy
		}
		if slices.Contains(f.holders, p) {
			s.holders += busy
			figures := fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid)
			s.read, s.written = s.read+status(figures, "rchar"), s.written+status(figures, "wchar")
		}
	}
	s.server = f.server.busy()
	return s
}

// cost is processor time for a request or an event, in microseconds. holders is that
// of all holders together; all is without the server's. read and written are bytes of
// all holders.
type cost struct{ all, router, holders, thin, server, read, written float64 }

// over is what was spent for each of n, less what a fleet at rest spends in the
// same time.
func (s spent) over(before, rest spent, took time.Duration, n int) cost {
	each := func(now, before, rest float64) float64 {
		return max(0, now-before-rest*took.Seconds()/restFor.Seconds()) / float64(max(n, 1))
	}
	share := func(now, before, rest time.Duration) float64 {
		return each(now.Seconds(), before.Seconds(), rest.Seconds()) * 1e6
	}
	return cost{
		share(s.all, before.all, rest.all), share(s.router, before.router, rest.router), share(s.holders, before.holders, rest.holders),
		share(s.thin, before.thin, rest.thin), share(s.server, before.server, rest.server),
		each(s.read, before.read, rest.read), each(s.written, before.written, rest.written),
	}
}

// restFor is how long a fleet at rest is watched.
const restFor = 2 * time.Second

// rest is what is spent while nothing is asked and nothing arrives.
func (f *fleet) rest(ctx context.Context) (s spent, err error) {
	if err := f.settle(ctx); err != nil {
		return s, err
	}
	before := f.spent()
	time.Sleep(restFor)
	now := f.spent()
	return spent{
		now.all - before.all, now.router - before.router, now.holders - before.holders, now.thin - before.thin, now.server - before.server,
		now.read - before.read, now.written - before.written,
	}, ctx.Err()
}

// costOf is what each of the things cost that do does; it says how many.
func (f *fleet) costOf(rest spent, do func() (n int, err error)) (cost, error) {
	before, begun := f.spent(), time.Now()
	n, err := do()
	if err == nil && n == 0 {
		err = errors.New("nothing was done")
	}
	return f.spent().over(before, rest, time.Since(begun), n), err
}
