package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// docs/failures.md: "keeps what was acknowledged unless a majority of its servers loses
// power at the same time", and docs/contract.md: "kill -9 at any moment loses and doubles
// nothing": whatever becomes of one server at a time, and of the node that routes, both
// nodes' answers are those for the events of EVENTS, which has every acknowledged one
// once.
func TestCluster(t *testing.T) {
	t.Parallel()
	_, lines := slice(t, follows, follows+6_000)
	for name, story := range map[string]func(*clusterRun){
		"one server after the other stops": func(r *clusterRun) {
			for _, m := range r.Servers {
				r.during(func() (end func()) {
					m.Stop()
					return m.Start
				})
			}
		},
		"who leads every stream is killed, and the node that routes": func(r *clusterRun) {
			m := r.leader()
			r.during(func() (end func()) {
				m.Kill()
				r.restartRouter()
				return m.Start
			})
		},
		"who leads every stream, and has the router's connection, stands still until others do": func(r *clusterRun) {
			m := r.leader()
			r.during(func() (end func()) {
				m.Signal(syscall.SIGSTOP)
				return func() {
					r.counted()
					m.Signal(syscall.SIGCONT)
				}
			})
			r.during(func() (end func()) {
				r.restartRouter()
				return func() {}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for elections, most of the time
			r := newClusterRun(t, lines)
			story(r)
			r.publish(len(lines))
			r.compare()
		})
	}
}

// clusterRun is a cluster with two nodes, and some events that are published
// in parts.
type clusterRun struct {
	*natstest.Cluster
	t         *testing.T
	nodes     []*e2e.Process
	lines     [][]byte
	published int
}

func newClusterRun(t *testing.T, lines [][]byte) *clusterRun {
	r := &clusterRun{Cluster: natstest.NewCluster(t), t: t, lines: lines}
	const settings = "shards: 4\ncluster: {replicas: 2}\nrouter: {lease_renew: 100ms, lease_expiry: 1s}\ncheckpoint: {interval: 50ms, rows: 2048}\n"
	for range 2 {
		r.nodes = append(r.nodes, e2e.Prepare(t, e2e.Setup{URL: r.URL(), NATS: "replicas: 3", Settings: settings}))
	}
	for _, n := range r.nodes {
		n.Spawn() // both at once make the streams
	}
	for _, n := range r.nodes {
		n.WaitHealthy()
	}
	e2e.Until(t, "both nodes have reported: the router would purge windows that others need", func() bool {
		return len(r.reported()) == len(r.nodes)
	})
	r.publish(r.part())
	return r
}

// reported are the nodes that have said what they need of DELTAS.
func (r *clusterRun) reported() []string {
	r.t.Helper()
	js, err := jetstream.New(r.Conn())
	if err != nil {
		r.t.Fatal(err)
	}
	r.WaitWhole() // any server may answer
	bucket, err := js.KeyValue(r.t.Context(), "TIDEMARK")
	if err != nil {
		r.t.Fatal(err)
	}
	lister, err := bucket.ListKeysFiltered(r.t.Context(), "node.*")
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for name := range lister.Keys() {
		names = append(names, name)
	}
	return names
}

// part is as many lines more as one of the parts has.
func (r *clusterRun) part() int { return min(r.published+len(r.lines)/5, len(r.lines)) }

// during publishes a part while something is wrong, from its middle on.
func (r *clusterRun) during(begin func() (end func())) {
	r.t.Helper()
	part := r.part()
	r.publish((r.published + part) / 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.publish(part)
	}()
	end := begin()
	<-done
	end()
	r.WaitWhole()
}

// leader is the server that the routing node is connected to, once it leads
// every stream.
func (r *clusterRun) leader() *natstest.Member {
	r.t.Helper()
	log, err := os.ReadFile(r.router().Log())
	if err != nil {
		r.t.Fatal(err)
	}
	m := r.Leader("EVENTS")
	for _, each := range r.Servers {
		if strings.Contains(string(log), " nats="+each.URL+" ") {
			m = each
		}
	}
	for _, stream := range []string{"EVENTS", "DELTAS", "KV_TIDEMARK"} {
		r.Lead(m, stream)
	}
	return m
}

// restartRouter kills the node that routes, or one of them, and starts it at
// once.
func (r *clusterRun) restartRouter() {
	r.t.Helper()
	n := r.router()
	n.Kill()
	n.Start()
}

// router is the node that routes, or one of them.
func (r *clusterRun) router() *e2e.Process {
	r.t.Helper()
	if figure(r.t, r.nodes[1], "tidemark_router_active") == 1 {
		return r.nodes[1]
	}
	return r.nodes[0]
}

// counted waits until both nodes have counted what is published.
func (r *clusterRun) counted() {
	r.t.Helper()
	end := float64(lastPosition(r.t, r.Conn()))
	for _, n := range r.nodes {
		e2e.Until(r.t, "all is counted", func() bool { return figure(r.t, n, "tidemark_applied_position") >= end })
	}
}

// publishers send side by side, each what it has until it is acknowledged.
const publishers = 16

// publish sends the lines up to one, each with an id of its own, again and
// again until all are acknowledged.
func (r *clusterRun) publish(to int) {
	js, err := jetstream.New(r.Conn())
	if err != nil {
		r.t.Error(err)
		return
	}
	next, done := atomic.Int64{}, make(chan struct{})
	next.Store(int64(r.published))
	for range publishers {
		go func() {
			for i := int(next.Add(1) - 1); i < to; i = int(next.Add(1) - 1) {
				insistOn(js, strconv.Itoa(i), r.lines[i])
			}
			done <- struct{}{}
		}()
	}
	for range publishers {
		<-done
	}
	r.published = to
}

// insistOn publishes an event with an id, again and again until it is
// acknowledged.
func insistOn(js jetstream.JetStream, id string, line []byte) {
	var event struct{ Type string }
	if err := json.Unmarshal(line, &event); err != nil {
		panic(err)
	}
	for stored := false; !stored; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := js.Publish(ctx, "events."+event.Type, line, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
		cancel()
		if stored = err == nil; !stored {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// compare asks each node alone for everything that EVENTS has.
func (r *clusterRun) compare() {
	t := r.t
	t.Helper()
	end := lastPosition(t, r.Conn())
	want := oracle(t, r.readBack(end.Sequence()))
	for i, n := range r.nodes {
		n.WaitReady()
		waitBoth(t, r.Conn(), 4)
		other := r.nodes[1-i]
		other.Stop()
		check(t, r.Conn(), want, end)
		other.Start()
	}
	for _, n := range r.nodes {
		log, err := os.ReadFile(n.Log())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(log), "lost its tail") {
			t.Errorf("it says that EVENTS has lost something:\n%s", log)
		}
		if n := strings.Count(string(log), "taking over"); n > 50 { // to try again and again without success makes hundreds
			t.Errorf("it says %d times that it takes over", n)
		}
	}
}

// readBack is EVENTS in its order, as a file. Every line is in it once.
func (r *clusterRun) readBack(last uint64) (path string) {
	t := r.t
	t.Helper()
	if last != uint64(len(r.lines)) {
		t.Errorf("EVENTS has %d messages, %d were published", last, len(r.lines))
	}
	js, err := r.Conn().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	sub, err := js.SubscribeSync("events.>", nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool, len(r.lines))
	var out bytes.Buffer
	for range last {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		id := m.Header.Get(nats.MsgIdHdr)
		if i, err := strconv.Atoi(id); err != nil || i >= len(r.lines) || seen[id] || !bytes.Equal(m.Data, r.lines[i]) {
			t.Errorf("EVENTS has message %q: %s; twice: %v", id, m.Data, seen[id])
		}
		seen[id] = true
		out.Write(append(m.Data, '\n'))
	}
	path = filepath.Join(t.TempDir(), "stored.ndjson")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
