package sinks_test

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is a testing.T or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// The columns as the configuration has them; windows name them in any order.
var columnNames = []string{"post.like", "post.repost", "post.view", "user.post", "user.like"}

func schema() *pipeline.Schema {
	s, err := pipeline.NewSchema([]string{"post", "user"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "like", Bits: 16, Max: 63},
		{Counter: 0, Name: "repost", Bits: 16, Max: 63},
		{Counter: 0, Name: "view", Bits: 16, Max: 63},
		{Counter: 1, Name: "post", Bits: 16, Max: 63},
		{Counter: 1, Name: "like", Bits: 16, Max: 63},
	})
	if err != nil {
		panic(err)
	}
	return s
}

var quiet = slog.New(slog.DiscardHandler)

func openStore(t fataler, dir string, shards int) *cold.Store {
	t.Helper()
	s, err := cold.Open(dir, schema(), cold.Options{Shards: shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

func options(shards int) sinks.Options {
	return sinks.Options{
		Shards: shards, Owners: 2, CheckpointEvery: time.Hour, DirtyRowsMax: 1000,
		SequenceMax: 1 << 40, Logger: quiet,
	}
}

func newNode(t fataler, store *cold.Store, o sinks.Options) *sinks.Node {
	t.Helper()
	n, err := sinks.NewNode(store, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return n
}

// cell names one number; id 0 is never used.
type cell struct {
	column int // in columnNames
	id     uint64
}

// since is a cell's value from a position on.
type since struct {
	position pipeline.Position
	value    int64
}

// world is a log of windows and the twin: every cell's history.
type world struct {
	shards  int
	entries []pipeline.Entry // entries[i] has sequence i+1
	ends    []pipeline.Position
	history map[cell][]since
}

func newWorld(shards int) *world {
	return &world{shards: shards, ends: []pipeline.Position{0}, history: map[cell][]since{}}
}

type change struct {
	cell
	delta pipeline.Delta
}

// window appends a window; each cell at most once, as merging makes it.
func (w *world) window(length uint64, order []int, changes []change) {
	from := w.ends[len(w.ends)-1]
	win := &pipeline.Window{
		Header:   pipeline.Header{From: from, To: from + pipeline.Position(length), Time: int64(len(w.ends))},
		Sections: make([][]byte, w.shards+1),
	}
	place := make([]int, len(order))
	for i, column := range order {
		win.Columns = append(win.Columns, columnNames[column])
		place[column] = i
	}
	for _, c := range changes {
		s := &win.Sections[pipeline.ShardOf(c.id, w.shards)]
		*s = pipeline.AppendChange(*s, place[c.column], c.id, c.delta)
		w.history[c.cell] = append(w.history[c.cell], since{win.To, c.delta.Apply(w.at(c.cell, from))})
	}
	w.ends = append(w.ends, win.To)
	w.entries = append(w.entries, pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: pipeline.AppendWindow(nil, win)})
}

// random appends windows that are a function of r alone.
func (w *world) random(r *rand.Rand, windows, changes int, ids uint64) {
	for range windows {
		list, seen := []change{}, map[cell]bool{}
		for range changes {
			c := cell{r.IntN(len(columnNames)), 1 + r.Uint64N(ids)}
			if seen[c] {
				continue
			}
			seen[c] = true
			d := []pipeline.Delta{pipeline.Add(1), pipeline.Add(-r.Int64N(9)), pipeline.Set(r.Int64N(1 << 20)), pipeline.Take(r.Int64N(5))}[r.IntN(4)]
			list = append(list, change{c, d})
		}
		w.window(1+r.Uint64N(2000), r.Perm(len(columnNames)), list)
	}
}

// at is a cell's value as of a position.
func (w *world) at(c cell, p pipeline.Position) int64 {
	h := w.history[c]
	i, _ := slices.BinarySearchFunc(h, p, func(s since, p pipeline.Position) int {
		if s.position <= p {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0
	}
	return h[i-1].value
}

func (w *world) last() pipeline.Position { return w.ends[len(w.ends)-1] }

// tail is what a tailer reads after a sequence.
func (w *world) tail(after uint64) *slice {
	return &slice{w.entries[min(after, uint64(len(w.entries))):]}
}

// slice is a Tailer: entries at hand, some at a time, then io.EOF.
type slice struct{ entries []pipeline.Entry }

func (s *slice) Next(context.Context) ([]pipeline.Entry, error) {
	if len(s.entries) == 0 {
		return nil, io.EOF
	}
	n := min(3, len(s.entries))
	out := s.entries[:n]
	s.entries = s.entries[n:]
	return out, nil
}

func (s *slice) Close() error { return nil }

func follow(t fataler, n *sinks.Node, tailer pipeline.Tailer) {
	t.Helper()
	if err := n.Follow(context.Background(), tailer); err != io.EOF {
		t.Fatalf("Follow: %v", err)
	}
}

func wait(t fataler, n *sinks.Node, p pipeline.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	if err := n.WaitApplied(ctx, p); err != nil {
		t.Fatalf("waiting for %d at %d: %v", p, n.Applied(), err)
	}
}

// ask reads all columns of both counters and returns what as_of says.
func ask(t fataler, n *sinks.Node, ids []uint64, see func(counter int, first pipeline.Column, columns int, rows *query.Rows)) {
	t.Helper()
	var rows query.Rows
	for counter, c := range n.Schema().Counters {
		var columns []pipeline.Column
		for i := range c.Count {
			columns = append(columns, c.First+pipeline.Column(i))
		}
		if err := n.Rows(context.Background(), counter, columns, ids, &rows, true); err != nil {
			t.Fatalf("Rows: %v", err)
		}
		see(counter, c.First, len(columns), &rows)
	}
}

// same compares the answer for ids with the twin as of what the answer says
// of itself. Exact where the ids are of one shard, or where nothing moves.
func (w *world) same(t fataler, n *sinks.Node, ids []uint64) (asOf pipeline.Position) {
	t.Helper()
	before := n.Applied()
	ask(t, n, ids, func(_ int, first pipeline.Column, columns int, rows *query.Rows) {
		asOf = rows.AsOf
		if len(rows.Missing) > 0 {
			t.Fatalf("missing: %v", rows.Missing)
		}
		if asOf < before || !slices.Contains(w.ends, asOf) {
			t.Fatalf("as of %d, which is before %d or no window's end (I4)", asOf, before)
		}
		for i, id := range ids {
			exist := false
			for j := range columns {
				want := w.at(cell{int(first) + j, id}, asOf)
				exist = exist || want != 0
				if got := rows.Values[i*columns+j]; got != want {
					t.Fatalf("%s of %d is %d, want %d as of %d", columnNames[int(first)+j], id, got, want, asOf)
				}
			}
			if rows.Exist[i] != exist {
				t.Fatalf("id %d exists: %v", id, rows.Exist[i])
			}
		}
	})
	return asOf
}

// sameByShard compares shard by shard, each as of its own position (I4), also
// while windows are applied.
func (w *world) sameByShard(t fataler, n *sinks.Node, ids []uint64) {
	t.Helper()
	byShard := map[pipeline.Shard][]uint64{}
	for _, id := range ids {
		s := pipeline.ShardOf(id, w.shards)
		byShard[s] = append(byShard[s], id)
	}
	for _, ids := range byShard {
		w.same(t, n, ids)
	}
}

func upTo(n uint64) (ids []uint64) {
	for id := uint64(1); id <= n; id++ {
		ids = append(ids, id)
	}
	return ids
}
