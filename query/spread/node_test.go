package spread_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// windows are a log: what every node applies.
type windows struct {
	schema   *pipeline.Schema
	shards   int
	at       pipeline.Position
	sections [][]byte
	authors  []uint64 // nil: windows do not say who posted or deleted a post
	entries  []pipeline.Entry
	started  []*sinks.Node
}

func newWindows(t testing.TB, shards int) *windows {
	return &windows{schema: querytest.Schema(t), shards: shards, sections: make([][]byte, shards+1), authors: []uint64{}}
}

func (w *windows) section(id uint64) *[]byte {
	return &w.sections[pipeline.ShardOf(id, w.shards)]
}

func (w *windows) operate(o pipeline.Operation, base pipeline.Position) {
	s := w.section(o.ID)
	*s = pipeline.AppendOperation(*s, base, &o)
	if (o.Op == pipeline.OpPost || o.Op == pipeline.OpUnpost) && w.authors != nil {
		w.authors = append(w.authors, o.ID)
	}
}

// cut ends a window.
func (w *windows) cut(to pipeline.Position) {
	win := &pipeline.Window{Header: pipeline.Header{From: w.at, To: to, Time: int64(len(w.entries)+1) * 1000}, Authors: w.authors, Sections: w.sections}
	win.Marks = []pipeline.TimeMark{{Second: int64(1000 + len(w.entries)), Position: w.at + 1}}
	for i := range w.schema.Columns {
		win.Columns = append(win.Columns, w.schema.FullName(pipeline.Column(i)))
	}
	w.entries = append(w.entries, pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: pipeline.AppendWindow(nil, win)})
	w.at, w.sections, w.authors = to, make([][]byte, w.shards+1), w.authors[:0]
}

// node starts a node that holds some shards, nil: all.
func (w *windows) node(t testing.TB, held []pipeline.Shard) *sinks.Node {
	t.Helper()
	return w.nodeWith(t, held, shard.Limits{PostsMax: 1000, Retention: 30 * 86400, Inactive: 30 * 86400})
}

func (w *windows) nodeWith(t testing.TB, held []pipeline.Shard, users shard.Limits) *sinks.Node {
	t.Helper()
	store, err := cold.Open(t.TempDir(), w.schema, cold.Options{Shards: w.shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	n, err := sinks.NewNode(store, sinks.Options{
		Shards: w.shards, Held: held, Owners: 1, CheckpointEvery: time.Hour, DirtyRowsMax: 1 << 20, SequenceMax: 1 << 40, Logger: quiet,
		Users: users,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.started = append(w.started, n)
	t.Cleanup(func() {
		if err := errors.Join(n.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, e := range w.entries {
		if err := n.Hand(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	return n
}

// nodes starts n of them: node i has the shards with i in their replicas.
func (w *windows) nodes(t testing.TB, n, replicas int) *cluster {
	t.Helper()
	c := &cluster{t: t, server: querytest.Server(t, &server.Options{}), servers: map[string]*spread.Server{}, metrics: prometheus.NewRegistry()}
	c.world = querytest.NewWorld(w.schema, w.shards, w.at)
	c.view.Store(&spread.View{Holders: make([][]string, w.shards)})
	for i := range n {
		holds := func(s pipeline.Shard) bool {
			for r := range replicas {
				if (int(s)+r)%n == i {
					return true
				}
			}
			return false
		}
		held := []pipeline.Shard{}
		for s := range pipeline.Shard(w.shards) {
			if holds(s) {
				held = append(held, s)
			}
		}
		name := fmt.Sprint("n", i)
		c.serve(name, w.node(t, held))
		c.list(name, holds)
	}
	return c
}
