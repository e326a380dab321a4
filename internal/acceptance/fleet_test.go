package acceptance_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/query/client"
)

// fleet are processes that share the work: some hold, some only answer.
type fleet struct {
	t             *testing.T
	url, settings string
	key           string // file of the key of embedded servers; "": they are somebody else's
	streams       string // further keys of nats, that all who hold must have alike
	shards        int
	holders       map[string]*e2e.Process
	answers       *e2e.Process // holds nothing
	another       *e2e.Process // nor does this one; nil: there is none
	nc            *nats.Conn
	client        *client.Client
}

// fleetShards are few, so that a story of moves is short.
const fleetShards = 16

// answersOnly is what the process that only answers has in its configuration.
const answersOnly = "roles: [answer]\n"

const fleetSettings = "shards: 16\ncluster: {replicas: 2, replace_after: 3s}\ncheckpoint: {interval: 200ms, rows: 2048}\n"

// clusterStreams are the keys of nats for three servers.
const clusterStreams = "replicas: 3, streams: {events: {max_bytes: 4GiB}, deltas: {max_bytes: 4GiB}, deadletter: {max_bytes: 64MiB}}"

// newFleet is one on outside servers. One of its processes only answers.
func newFleet(t *testing.T, url, streams string, holders ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, url: url, settings: fleetSettings, streams: streams, shards: fleetShards, holders: map[string]*e2e.Process{}}
	for _, name := range holders {
		f.add(name).Spawn()
	}
	for _, p := range f.holders {
		p.WaitHealthy()
	}
	f.answers = f.thin()
	f.connect()
	f.waitWhole()
	return f
}

// newFleetEmbedded is one whose holders a, b and c have embedded servers, which
// form a cluster and keep three copies of every stream. Others are holders
// without, and two processes only answer.
func newFleetEmbedded(t *testing.T, others ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, settings: fleetSettings, streams: clusterStreams, shards: fleetShards, holders: map[string]*e2e.Process{}}
	names := []string{"a", "b", "c"}
	f.key = filepath.Join(t.TempDir(), walls.KeyFile)
	if _, err := walls.Key(f.key); err != nil {
		t.Fatal(err)
	}
	ports := map[string]int{}
	var routes, urls []string
	for _, name := range names {
		ports[name] = e2e.FreePort(t)
		routes = append(routes, fmt.Sprintf("'nats://127.0.0.1:%d'", ports[name]))
	}
	for _, name := range names {
		p := f.prepare(name, e2e.Setup{NATS: fmt.Sprintf(
			"%s, cluster: {listen: '127.0.0.1:%d', routes: [%s]}", f.streams, ports[name], strings.Join(routes, ", "))})
		p.Spawn()
		urls = append(urls, p.URL)
	}
	for _, p := range f.holders {
		p.WaitReady()
	}
	f.url = strings.Join(urls, ",")
	for _, name := range others {
		f.add(name).Start()
	}
	f.answers, f.another = f.thin(), f.thin()
	f.connect()
	f.waitWhole()
	return f
}

// thin starts a process that only answers.
func (f *fleet) thin() *e2e.Process {
	p := e2e.Prepare(f.t, e2e.Setup{URL: f.url, Key: f.key, Settings: answersOnly + f.settings})
	p.Start()
	return p
}

// connect has a client that soon finds out that its server stands still.
func (f *fleet) connect() {
	f.t.Helper()
	nc, err := nats.Connect(f.url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), e2e.Inside(f.t, f.key))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(nc.Close)
	f.nc, f.client = nc, client.New(nc)
}

// add prepares a holder on the fleet's servers.
func (f *fleet) add(name string) *e2e.Process {
	return f.prepare(name, e2e.Setup{URL: f.url, NATS: f.streams})
}

// prepare prepares a holder.
func (f *fleet) prepare(name string, s e2e.Setup) *e2e.Process {
	zone := map[string]string{"a": "x", "b": "y"}[name]
	s.Key = f.key
	s.Settings = fmt.Sprintf("roles: [route, hold]\nnode: %s\nzone: %q\n", name, zone) + f.settings
	f.holders[name] = e2e.Prepare(f.t, s)
	return f.holders[name]
}

// command runs one of the program's, again while a NATS cluster elects.
func (f *fleet) command(args ...string) {
	f.t.Helper()
	e2e.Until(f.t, "tidemark "+strings.Join(args, " "), func() bool {
		out, err := f.answers.Command(f.t.Context(), args...).CombinedOutput()
		if err != nil {
			f.t.Logf("tidemark %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return err == nil
	})
}

// holdersOf are the nodes that hold each shard.
func (f *fleet) holdersOf() [][]string {
	f.t.Helper()
	var shards client.Shards
	e2e.Until(f.t, "somebody says who holds what", func() (ok bool) {
		var err error
		shards, err = f.client.Shards(f.t.Context())
		return err == nil
	})
	out := make([][]string, len(shards.Shards))
	for s, shard := range shards.Shards {
		for _, h := range shard.Holders {
			out[s] = append(out[s], h.Node)
		}
	}
	return out
}

// holds says whether a node holds any shard.
func (f *fleet) holds(name string) bool {
	f.t.Helper()
	return slices.ContainsFunc(f.holdersOf(), func(names []string) bool { return slices.Contains(names, name) })
}

// wholeWithin bounds moves, also where a NATS cluster elects before them.
const wholeWithin = 2 * time.Minute

// waitWhole waits until every shard has two holders, both ready.
func (f *fleet) waitWhole() {
	f.t.Helper()
	waitWhole(f.t, f.client, f.shards)
}

// waitWhole waits until every shard has two ready holders, of so many shards or of so many
// others: a switch to another generation may come meanwhile.
func waitWhole(t *testing.T, c *client.Client, shards ...int) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(wholeWithin); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, n := range shards {
			if last = lacks(t, c, n); last == "" {
				return
			}
		}
	}
	t.Fatalf("not every shard has two ready holders within %v: %s", wholeWithin, last)
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

// router is the node that routes.
func (f *fleet) router() (name string) {
	f.t.Helper()
	e2e.Until(f.t, "somebody routes", func() bool {
		nodes, err := f.client.Nodes(f.t.Context())
		if err != nil {
			return false
		}
		for _, n := range nodes.Nodes {
			if n.Routes && f.holders[n.Node] != nil && n.State != "away" {
				name = n.Node
			}
		}
		return name != ""
	})
	return name
}

// settled waits until 'tidemark shards' shows what it should, and makes sure that none
// has stopped.
func (f *fleet) settled() {
	f.t.Helper()
	e2e.Until(f.t, "all holders are ready", func() bool {
		out := f.answers.Do("shards") // else shards still move
		return strings.Count(out, "ready") == 2*f.shards && !strings.Contains(out, "failed")
	})
	for name, p := range f.holders {
		if p.Ended() != nil {
			f.t.Errorf("%s has ended: %v", name, p.Ended())
		}
		p.WaitReady()
	}
}
