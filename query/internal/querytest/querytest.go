// Package querytest is what the tests of query and its client share: a real
// NATS server in the process, and a Reader that is a map.
package querytest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Schema has two counters, suffixes, a default and a hidden column.
func Schema(t testing.TB) *pipeline.Schema {
	t.Helper()
	schema, err := pipeline.NewSchema([]string{"post", "user"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "repost", Suffix: "cntrn", Bits: 16, Max: 63},
		{Counter: 0, Name: "comment", Suffix: "cntcm", Bits: 16, Max: 63},
		{Counter: 0, Name: "like", Suffix: "cntan", Bits: 8, Max: 63},
		{Counter: 0, Name: "old", Suffix: "cntold", Bits: 8, Max: 63, Hidden: true},
		{Counter: 1, Name: "post", Suffix: "cntup", Bits: 16, Max: 63},
		{Counter: 1, Name: "score", Bits: 16, Max: 63, Default: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// Server runs a NATS server until the test ends; with a store directory it
// has JetStream.
func Server(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoSigs, o.NoLog = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// Connect connects until the test ends.
func Connect(t testing.TB, s *server.Server, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Reader is the dumb twin of the state: rows in a map under one lock.
type Reader struct {
	// Before, if set, runs at the start of every Rows.
	Before func()

	mu      sync.Mutex
	applied pipeline.Position
	moved   chan struct{} // closed when applied moves
	rows    map[cell]int64
	exist   map[row]bool
	stopped map[uint64]bool // ids whose shard is stopped
	err     error
}

type (
	row struct {
		counter int
		id      uint64
	}
	cell struct {
		column pipeline.Column
		id     uint64
	}
)

// NewReader is empty, at position 0.
func NewReader() *Reader {
	return &Reader{moved: make(chan struct{}), rows: map[cell]int64{}, exist: map[row]bool{}, stopped: map[uint64]bool{}}
}

// Set sets one cell.
func (r *Reader) Set(counter int, column pipeline.Column, id uint64, value int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[cell{column, id}] = value
	r.exist[row{counter, id}] = true
}

// StopShardOf makes an id unreadable.
func (r *Reader) StopShardOf(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped[id] = true
}

// Fail makes every Rows fail.
func (r *Reader) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Apply moves on to p.
func (r *Reader) Apply(p pipeline.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = p
	close(r.moved)
	r.moved = make(chan struct{})
}

// Applied is query.Reader's.
func (r *Reader) Applied() pipeline.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// WaitApplied is query.Reader's.
func (r *Reader) WaitApplied(ctx context.Context, p pipeline.Position) error {
	for {
		r.mu.Lock()
		applied, moved := r.applied, r.moved
		r.mu.Unlock()
		if applied >= p {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Rows is query.Reader's.
func (r *Reader) Rows(_ context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows) error {
	if r.Before != nil {
		r.Before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	rows.Reset(len(ids), len(columns))
	rows.AsOf = r.applied
	for i, id := range ids {
		if r.stopped[id] {
			rows.Missing = append(rows.Missing, i)
			continue
		}
		rows.Exist[i] = r.exist[row{counter, id}]
		for j, column := range columns {
			rows.Values[i*len(columns)+j] = r.rows[cell{column, id}]
		}
	}
	slices.Reverse(rows.Missing) // in any order
	return nil
}
