package spread_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shards = 16
	now    = pipeline.Position(5000 << 10)
)

var quiet = slog.New(slog.DiscardHandler)

// community is a world with users 1 to n and posts.
func community(t testing.TB, r *rand.Rand, n uint64) *querytest.World {
	w := querytest.NewWorld(querytest.SetsSchema(t), shards, now)
	likers(r, w, n)
	position := func() pipeline.Position { return 1 + pipeline.Position(r.Uint64N(uint64(now))) }
	for counter := range 3 {
		w.Rows[counter] = map[uint64][]int64{}
		for id := uint64(1); id <= n; id++ {
			if r.IntN(3) > 0 {
				cells := make([]int64, w.Schema.Counters[counter].Count)
				for i := range cells {
					cells[i] = int64(r.Uint64()) >> r.IntN(64)
				}
				w.Rows[counter][id] = cells
			}
		}
	}
	for user := uint64(1); user <= n; user++ {
		w.Follows[user] = map[uint64]pipeline.Position{}
		for range r.IntN(40) {
			w.Follows[user][1+r.Uint64N(n)] = position()
		}
		if r.IntN(2) == 0 {
			w.Marks[user] = position()
		}
		for range r.IntN(8) {
			w.Posts[user] = append(w.Posts[user], query.FeedPost{Post: r.Uint64(), Author: user, Position: position()})
		}
	}
	for _, name := range []string{"system", "games", "zoo"} {
		w.Notices[name] = map[uint64]uint64{}
		for range n / 2 {
			w.Notices[name][1+r.Uint64N(n)] = r.Uint64N(5)
		}
	}
	w.Dots["red"] = map[uint64]bool{1: true, n: true}
	return w
}

// cluster is nodes on a server.
type cluster struct {
	t       testing.TB
	server  *server.Server
	world   *querytest.World
	holders map[string]*querytest.Holder
	servers map[string]*spread.Server
	view    atomic.Pointer[spread.View]
	own     query.Holder
	reader  *spread.Reader
	metrics *prometheus.Registry
}

func newCluster(t testing.TB, w *querytest.World, o *server.Options) *cluster {
	t.Helper()
	c := &cluster{
		t: t, world: w, server: querytest.Server(t, o), metrics: prometheus.NewRegistry(),
		holders: map[string]*querytest.Holder{}, servers: map[string]*spread.Server{},
	}
	c.view.Store(&spread.View{Holders: make([][]string, w.Shards)})
	return c
}

func (c *cluster) View() *spread.View { return c.view.Load() }
func (c *cluster) Own() query.Holder  { return c.own }

// node starts a holder of some shards, and lists it in the view.
func (c *cluster) node(name string, holds func(pipeline.Shard) bool) *querytest.Holder {
	c.t.Helper()
	h := querytest.NewHolder(c.world, name, holds)
	c.serve(name, h)
	c.list(name, holds)
	c.holders[name] = h
	return h
}

func (c *cluster) list(name string, holds func(pipeline.Shard) bool) {
	v := &spread.View{Epoch: c.View().Epoch + 1, Whole: c.View().Whole}
	for s, nodes := range c.View().Holders {
		nodes = slices.Clone(nodes)
		if holds(pipeline.Shard(s)) {
			nodes = append(nodes, name)
		}
		v.Holders = append(v.Holders, nodes)
	}
	c.view.Store(v)
}

func (c *cluster) serve(name string, h query.Holder) {
	c.t.Helper()
	s, err := spread.Serve(querytest.Connect(c.t, c.server), h, spread.ServerOptions{
		Types: types,
		Node:  name, Schema: c.world.Schema, Shards: c.world.Shards, Workers: 2, Logger: quiet,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[name] = s
	c.t.Cleanup(func() { c.stop(name) })
}

func (c *cluster) stop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.servers[name].Stop(ctx); err != nil {
		c.t.Error(err)
	}
}

// open makes the reader, once the nodes are there.
func (c *cluster) open() *spread.Reader {
	c.t.Helper()
	r, err := spread.New(querytest.Connect(c.t, c.server), spread.Options{Schema: c.world.Schema, Directory: c, Registerer: c.metrics})
	if err != nil {
		c.t.Fatal(err)
	}
	c.reader = r
	c.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return r
}

func (c *cluster) far(p pipeline.Position, wait time.Duration) query.Reader {
	return c.reader.Far(p, time.Now().Add(wait))
}

// figure is one of the reader's metrics; labels are name=value pairs.
func (c *cluster) figure(name string, labels ...string) float64 {
	c.t.Helper()
	families, err := c.metrics.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matches := true
			for _, l := range m.GetLabel() {
				matches = matches && (len(labels) == 0 || slices.Contains(labels, l.GetName()+"="+l.GetValue()))
			}
			if matches {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// relay stands between askers and a holder, and does something with the messages
// of each.
type relay struct {
	mu       sync.Mutex
	question func([]byte) []byte   // nil: as it is; an empty result is not passed on
	answer   func([]byte) [][]byte // nil: as it is
}

// meddle has what goes to name go to a holder that is served as real.
func (c *cluster) meddle(name, real string, m *relay) {
	c.t.Helper()
	nc := querytest.Connect(c.t, c.server)
	_, err := nc.Subscribe(spread.Subject(name, 0), func(q *nats.Msg) {
		m.mu.Lock()
		defer m.mu.Unlock()
		data := q.Data
		if m.question != nil {
			if data = m.question(slices.Clone(data)); len(data) == 0 {
				return
			}
		}
		inbox := nc.NewInbox()
		if _, err := nc.Subscribe(inbox, func(a *nats.Msg) {
			m.mu.Lock()
			defer m.mu.Unlock()
			answers := [][]byte{a.Data}
			if m.answer != nil {
				answers = m.answer(slices.Clone(a.Data))
			}
			for _, data := range answers {
				_ = nc.Publish(q.Reply, data)
			}
		}); err == nil {
			_ = nc.PublishRequest(spread.Subject(real, 0), inbox, data)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// likeColumns are what rows are asked for.
var likeColumns = []pipeline.Column{2, 0}

// sameRows: what is not missing is as one node says.
func sameRows(ids []uint64, got, want *query.Rows, columns int) error {
	missing := map[int]bool{}
	for _, i := range got.Missing {
		if missing[i] {
			return fmt.Errorf("%d is missing twice", i)
		}
		missing[i] = true
	}
	for i := range ids {
		if missing[i] {
			continue
		}
		if got.Exist[i] != want.Exist[i] || want.Exist[i] && !slices.Equal(got.Values[i*columns:(i+1)*columns], want.Values[i*columns:(i+1)*columns]) {
			return fmt.Errorf("id %d: %v %v, not %v %v", ids[i], got.Exist[i], got.Values[i*columns:(i+1)*columns], want.Exist[i], want.Values[i*columns:(i+1)*columns])
		}
	}
	return nil
}

func sameUnreads(got, want *query.Unreads) error {
	if !slices.Equal(got.Notices, want.Notices) || !slices.Equal(got.Dots, want.Dots) || len(got.Users) != len(want.Users) {
		return fmt.Errorf("channels %v %v of %d users, not %v %v of %d", got.Notices, got.Dots, len(got.Users), want.Notices, want.Dots, len(want.Users))
	}
	for i := range got.Users {
		if a, b := fmt.Sprint(got.Users[i]), fmt.Sprint(want.Users[i]); a != b && !slices.Contains(got.Missing, i) {
			return fmt.Errorf("user %d: %s, not %s", i, a, b)
		}
	}
	return nil
}

func byPosition(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) }
