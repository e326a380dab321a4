package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// place is where one node is: its ports and its files.
//
//	data-cluster/
//	  LOCK
//	  node.nk         the key of all nodes, and of commands
//	  a/ b/ c/        config.yaml   written again by every run
//	                  log           of all runs
//	                  data/         what is kept
//	  thin/           config.yaml, log
type place struct {
	node  string
	thin  bool   // it only answers
	nats  string // host:port of its NATS server; "" for a thin node
	route string // host:port of that server for the others; "" for a thin node
	http  string // host:port
	dir   string
}

func (p *place) config() string { return filepath.Join(p.dir, "config.yaml") }
func (p *place) log() string    { return filepath.Join(p.dir, "log") }

// layout is where all nodes are, the thin one last.
type layout []*place

// The usual ports are beside those of `make run` (4222 and 8480), which may run
// at the same time.
const (
	natsPort  = 4231 // of node a; the others follow
	routePort = 6231
	httpPort  = 8481
)

// newLayout chooses the ports. One that is in use is an error, before anything
// is started.
func newLayout(dir string, freePorts bool) (layout, error) {
	var l layout
	next := func(usual, i int) string { return fmt.Sprintf("127.0.0.1:%d", usual+i) }
	if freePorts {
		next = func(int, int) string { return "127.0.0.1:0" }
	}
	for i, node := range []string{"a", "b", "c"} {
		l = append(l, &place{
			node: node, dir: filepath.Join(dir, node),
			nats: next(natsPort, i), route: next(routePort, i), http: next(httpPort, i),
		})
	}
	l = append(l, &place{node: "thin", thin: true, dir: filepath.Join(dir, "thin"), http: next(httpPort, len(l))})
	return l, l.takePorts()
}

// takePorts looks whether every port is free, all of them at once so that port 0
// becomes another one for each, and gives them back.
func (l layout) takePorts() error {
	take := func(address *string) (net.Listener, error) {
		taken, err := net.Listen("tcp", *address)
		if err != nil {
			return nil, fmt.Errorf("%w: stop what uses the port (a node of an earlier run that was killed?), or take others with -free-ports", err)
		}
		*address = taken.Addr().String()
		return taken, nil
	}
	for _, p := range l {
		addresses := []*string{&p.nats, &p.route, &p.http}
		if p.thin {
			addresses = addresses[2:]
		}
		for _, address := range addresses {
			taken, err := take(address)
			if err != nil {
				return fmt.Errorf("node %s: %w", p.node, err)
			}
			defer taken.Close()
		}
	}
	return nil
}

// urls are all NATS servers, as nats.url and NATS_URL have them.
func (l layout) urls() string {
	var urls []string
	for _, p := range l {
		if !p.thin {
			urls = append(urls, "nats://"+p.nats)
		}
	}
	return strings.Join(urls, ",")
}

// key is the file of the key that all nodes have; the first one makes it.
func (l layout) key() string { return filepath.Join(filepath.Dir(l[0].dir), "node.nk") }

func (l layout) routes() string {
	var routes []string
	for _, p := range l {
		if !p.thin {
			routes = append(routes, fmt.Sprintf("%q", "nats://"+p.route))
		}
	}
	return strings.Join(routes, ", ")
}

// write makes the directories, writes the configurations and empties the logs.
func (l layout) write() error {
	for _, p := range l {
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p.config(), []byte(l.configuration(p)), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(p.log(), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// configuration is a node's config.yaml. What is not in it is as in config.yaml
// at the root. The streams are small, since there are three copies of each on
// this machine, and enough for all that the community may say.
func (l layout) configuration(p *place) string {
	const all = "# Written by 'make cluster', which writes it again.\n" +
		"node: %s\nhttp: {listen: %q}\nmemory: {budget: 256MiB}\n" +
		"channels: {games: {kind: dot}}      # the community lights it\n"
	text := fmt.Sprintf(all, p.node, p.http)
	if p.thin {
		return text + fmt.Sprintf("roles: [answer]\nnats: {url: %q, nkey: %q}\n", l.urls(), l.key())
	}
	return text + fmt.Sprintf(`data_dir: %q
cluster: {replicas: 2}              # holders of each shard
nats:
  listen: %q
  nkey: %q
  replicas: 3                       # copies of each stream
  cluster: {name: tidemark-demo, listen: %q, routes: [%s]}
  streams: {events: {max_bytes: 2GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}
`, filepath.Join(p.dir, "data"), p.nats, l.key(), p.route, l.routes())
}
