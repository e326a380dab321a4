package node

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// fleet is a few nodes in one process, on a server of their own.
type fleet struct {
	t    *testing.T
	nc   *nats.Conn
	url  string
	dirs map[string]string
	edit func(*config.Config) // nil: as it is
	log  e2e.Lines            // of all of them
}

const fleetShards = 8

func newFleet(t *testing.T) *fleet {
	server := natstest.Apart(t)
	nc, err := nats.Connect(server.URL, nats.Timeout(untilMax))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &fleet{t: t, nc: nc, url: server.URL, dirs: map[string]string{}}
}

// plain is the configuration of a node of the fleet. On a busy machine the server takes
// seconds now and then, and a node that routes does so until it stops: a test that has it
// lose its lease says so.
func (f *fleet) plain(name string) *config.Config {
	c := eachLikeCounts()
	c.Node, c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = name, f.dirs[name], f.url, "", fleetShards
	c.Router.LeaseRenew, c.Router.LeaseExpiry = time.Second, 10*time.Second
	return c
}

func (f *fleet) start(name string) *Node {
	f.t.Helper()
	if f.dirs[name] == "" {
		f.dirs[name] = f.t.TempDir()
	}
	c := f.plain(name)
	if f.edit != nil {
		f.edit(c)
	}
	n, err := Start(f.t.Context(), c, Options{Version: "test", Processors: 2, Logger: slog.New(slog.NewTextHandler(&f.log, nil)).With("on", name)})
	if err != nil {
		f.t.Fatalf("%v\n%s", err, f.log.String())
	}
	f.t.Cleanup(func() { n.Close() })
	return n
}

// publish stores a like of each of the first posts.
func (f *fleet) publish(posts int) {
	f.t.Helper()
	for post := 1; post <= posts; post++ {
		if _, err := f.nc.Request("events.like", fmt.Appendf(nil, `{"actor":7,"post":%d,"author":9}`, post), untilMax); err != nil {
			f.t.Fatal(err)
		}
	}
}

// untilMax bounds the wait for what comes by itself.
const untilMax = 2 * time.Minute

func (f *fleet) until(what string, is func() bool) {
	f.t.Helper()
	for end := time.Now().Add(untilMax); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("within %v there is not: %s\n%s", untilMax, what, f.log.String())
		}
	}
}

// settled says that each of the nodes holds what is assigned to it, something,
// and nothing else, and that all shards are held.
func settled(nodes ...*Node) bool {
	all := 0
	for _, n := range nodes {
		v := n.gen().members.View()
		assigned, held := v.Assignment.HeldSet(n.name), n.gen().heldNow()
		if held.Len() == 0 || held != assigned {
			return false
		}
		for s := range held.All() {
			if !n.gen().sinks.Holds(s) {
				return false
			}
		}
		all += held.Len()
	}
	return all == fleetShards
}

// dropSpares deletes what nodes have given up: it would be taken back.
func (f *fleet) dropSpares(nodes ...*Node) {
	f.t.Helper()
	for _, n := range nodes {
		held := n.gen().heldNow()
		for s := range pipeline.Shard(fleetShards) {
			if held.Has(s) {
				continue
			}
			if err := n.gen().store.Drop(s); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// likes says whether each of the first posts has so many.
func (f *fleet) likes(posts, want int) bool {
	f.t.Helper()
	var ids []string
	for post := 1; post <= posts; post++ {
		ids = append(ids, fmt.Sprint(post))
	}
	m, err := f.nc.Request("tidemark.get", fmt.Appendf(nil, `{"counter":"post","columns":["like"],"ids":[%s],"timeout_ms":9000}`, strings.Join(ids, ",")), 10*time.Second)
	return err == nil && strings.Count(string(m.Data), fmt.Sprintf(`"like":%d}`, want)) == posts && !strings.Contains(string(m.Data), "missing")
}

// Nodes that come get their part, a node that stops keeps its own, and what only
// it has is not derived from all of the log by a newcomer that it is assigned to.
func TestShardsWaitForTheirNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.start("a")
	f.publish(100)
	b := f.start("b")
	f.until("a part each", func() bool { return settled(a, b) })
	f.until("all likes", func() bool { return f.likes(100, 1) })
	of := b.gen().heldNow()
	f.dropSpares(a)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if m, _ := a.gen().members.View().Member("b"); a.gen().members.View() != nil && m.Member != nil && m.Ready.Len() != 0 && m.Ready != of {
		t.Errorf("it left with %v, and held %v", m.Ready, of)
	}
	f.publish(100)
	c := f.start("c")
	taken := func() (shards []pipeline.Shard) { // from the one that is away
		assigned := a.gen().members.View().Assignment.HeldSet("c")
		for s := range assigned.All() {
			if of.Has(s) {
				shards = append(shards, s)
			}
		}
		return shards
	}
	f.until("a part for c", func() bool { return a.gen().members.View().Assignment.HeldSet("c") != [64]uint64{} })
	time.Sleep(2 * time.Second)
	held := c.gen().heldNow()
	for _, s := range taken() {
		if held.Has(s) {
			m, _ := c.gen().members.View().Member("b")
			t.Errorf("shard %d, which b has, is derived from the log: %v %v %+v\n%s", s, m.Status, m.Ready, m.Member, f.log.String())
		}
	}
	t.Logf("of b's shards %v, %v were given to c meanwhile", of, taken())
	b = f.start("b")
	f.until("a part each", func() bool { return settled(a, b, c) })
	f.until("all likes", func() bool { return f.likes(100, 2) })
	if f.log.Has("deriving windows again") {
		t.Error("something was derived")
	}
}

// Nodes that start at once, with a log that is there, read it once.
func TestStartedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.start("a")
	f.publish(50)
	f.until("all likes", func() bool { return f.likes(50, 1) })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	members, err := bucket.AttachMembers(t.Context(), f.nc, 0, bucket.MembersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Forget(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	members.Close()
	var nodes [3]*Node
	var started sync.WaitGroup
	names := []string{"x", "y", "z"}
	for _, name := range names {
		f.dirs[name] = t.TempDir()
	}
	for i, name := range names {
		started.Go(func() { nodes[i] = f.start(name) })
	}
	started.Wait()
	f.until("a part each", func() bool { return settled(nodes[:]...) })
	f.until("all likes", func() bool { return f.likes(50, 1) })
}

// A node that takes all shards from another one says so in a line or two.
func TestStartHasFewLines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.start("a")
	f.publish(50)
	f.until("all likes", func() bool { return f.likes(50, 1) })
	b := f.start("b")
	f.until("a part each", func() bool { return settled(a, b) })
	f.stop(a)
	f.stop(b)
	log := f.log.String()
	for _, text := range []string{"tidemark: shards have come", "tidemark: shards are given up, and stay stored"} {
		n := strings.Count(log, text)
		if n == 0 || n > 2 || !regexp.MustCompile(regexp.QuoteMeta(text)+`[^\n]* shards=\d[-,\d]* number=\d`).MatchString(log) {
			t.Errorf("%d lines %q:\n%s", n, text, log)
		}
	}
}
