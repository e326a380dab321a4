package shard_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

const idMax = 6

// cell is a column of a row.
type cell struct {
	counter int
	id      uint64
	column  int
}

// disk is a dumb disk: the cells that are not 0, and the state. As a Sink it
// takes what will be there once it is committed; it has no notion of runs.
type disk struct {
	shard.Sink // nil: only rows come
	cells      map[cell]int64
	state      shard.State
}

func (d *disk) Row(counter int, id uint64, cells []int64) {
	for i, v := range cells {
		d.set(cell{counter, id, i}, v)
	}
}

func (d *disk) Change(counter int, id uint64, deltas []pipeline.Delta) {
	for i, delta := range deltas {
		c := cell{counter, id, i}
		d.set(c, delta.Apply(d.cells[c]))
	}
}

func (d *disk) State(state shard.State) { d.state = state }

func (d *disk) set(c cell, v int64) {
	if delete(d.cells, c); v != 0 {
		d.cells[c] = v
	}
}

func (d *disk) clone() *disk { return &disk{cells: maps.Clone(d.cells), state: d.state} }

// base is rows as they are on the disk.
func (d *disk) base(schema *pipeline.Schema, counter int, ids []uint64) (base []int64) {
	for _, id := range ids {
		for column := range schema.Counters[counter].Count {
			base = append(base, d.cells[cell{counter, id, column}])
		}
	}
	return base
}

// rowsWorld is a shard beside two maps: what every cell is now, and the disk.
type rowsWorld struct {
	*rapid.T
	schema *pipeline.Schema
	s      *shard.Shard
	now    map[cell]int64
	disk   *disk // what is published
	next   *disk // what will be, if the commit under way succeeds; nil: none is
	reads  []*rowsRead
	warmed []uint64 // by counter: loaded up to here
}

// rowsRead is a read that waits for the disk.
type rowsRead struct {
	batch   shard.Batch
	counter int
	ids     []uint64
	missing []uint64
	base    []int64
	want    map[cell]int64
}

// Rows change, are handed over, committed or not, evicted, read, with the disk
// answering late, and loaded; and the shard starts again. Whatever the order, a
// read is exact as of when it was asked (I8), and the disk has the rows of the
// state it has (I4).
func TestRowsTwin(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"post", "user"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "like", Bits: 16}, {Counter: 0, Name: "view", Bits: 3}, {Counter: 1, Name: "post", Bits: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &rowsWorld{schema: schema, now: map[cell]int64{}, disk: &disk{cells: map[cell]int64{}}}
		if rapid.IntRange(0, 3).Draw(t, "fresh") > 0 { // else it knows that nothing is on the disk
			w.disk.state = shard.State{Applied: 5, Sequence: 1}
		}
		w.start()
		t.Repeat(map[string]func(*rapid.T){
			"":         w.on((*rowsWorld).check),
			"apply":    w.on((*rowsWorld).apply),
			"handOver": w.on((*rowsWorld).handOver),
			"settle":   w.on((*rowsWorld).settle),
			"shed":     w.on((*rowsWorld).shed),
			"ask":      w.on((*rowsWorld).ask),
			"answer":   w.on((*rowsWorld).answer),
			"warm":     w.on((*rowsWorld).warm),
			"restart":  w.on((*rowsWorld).restart),
		})
	})
}

func (w *rowsWorld) on(do func(*rowsWorld)) func(*rapid.T) {
	return func(t *rapid.T) {
		w.T = t
		do(w)
	}
}

// start opens the shard as it is on the disk.
func (w *rowsWorld) start() {
	w.s = shard.New(0, w.schema, shard.Limits{}, shard.NewClock(1), w.disk.state)
	w.next, w.reads, w.warmed = nil, nil, make([]uint64, len(w.schema.Counters))
}

func (w *rowsWorld) apply() {
	section, from := []byte(nil), w.s.State().Applied
	for range rapid.IntRange(0, 6).Draw(w.T, "changes") {
		column := rapid.IntRange(0, len(w.schema.Columns)-1).Draw(w.T, "column")
		id := rapid.Uint64Range(1, idMax).Draw(w.T, "id")
		d := rapid.SampledFrom([]pipeline.Delta{
			pipeline.Add(1), pipeline.Set(0), pipeline.Set(9), pipeline.Add(-3), pipeline.Take(2), pipeline.Add(math.MaxInt64),
		}).Draw(w.T, "delta")
		section = pipeline.AppendChange(section, column, id, d)
		counter := w.schema.Columns[column].Counter
		c := cell{counter, id, column - int(w.schema.Counters[counter].First)}
		w.now[c] = d.Apply(w.now[c])
	}
	window := &pipeline.Window{Header: pipeline.Header{From: from, To: from + 5}, Sections: [][]byte{section, nil}}
	if err := w.s.Apply(w.s.State().Sequence+1, window, []pipeline.Column{0, 1, 2}); err != nil {
		w.Fatal(err)
	}
	if err := w.s.Apply(math.MaxUint64, window, nil); err != nil || w.s.State().Sequence == math.MaxUint64 { // again: dropped (I3)
		w.Fatalf("%v, %+v", err, w.s.State())
	}
}

func (w *rowsWorld) handOver() {
	if w.next != nil || !w.s.Moved() {
		w.Skip("nothing to hand over")
	}
	w.s.HandOver()
	if w.s.Moved() || w.s.Dirty() != 0 {
		w.Fatalf("moved %v, %d dirty after all was handed over", w.s.Moved(), w.s.Dirty())
	}
	w.next = w.disk.clone()
	w.s.Write(w.next)
	want := w.disk.clone()
	want.cells, want.state = map[cell]int64{}, w.s.State()
	for c, v := range w.now {
		want.set(c, v)
	}
	if !maps.Equal(w.next.cells, want.cells) || w.next.state != want.state {
		w.Fatalf("the disk gets %v of %+v, want %v of %+v", w.next.cells, w.next.state, want.cells, want.state)
	}
}

func (w *rowsWorld) settle() {
	if w.next == nil {
		w.Skip("nothing is under way")
	}
	committed := rapid.Bool().Draw(w.T, "committed")
	published := false
	w.s.Settle(committed, func() { w.disk, published = w.next, true })
	w.next = nil
	if published != committed || w.s.Durable() != w.disk.state.Sequence {
		w.Fatalf("committed %v: published %v, durable %d of %d", committed, published, w.s.Durable(), w.disk.state.Sequence)
	}
	if !committed && !w.s.Moved() {
		w.Fatal("what was not committed is forgotten")
	}
}

func (w *rowsWorld) shed() {
	w.s.Watch()
	for range rapid.IntRange(1, 3).Draw(w.T, "rounds") {
		w.s.Shed(rapid.SampledFrom([]float64{0.2, 0.5, 1}).Draw(w.T, "share"))
	}
}

// ask begins a read; answer ends one, perhaps much later.
func (w *rowsWorld) ask() {
	r := &rowsRead{
		counter: rapid.IntRange(0, 1).Draw(w.T, "counter"),
		ids:     rapid.SliceOfN(rapid.Uint64Range(1, idMax), 1, 6).Draw(w.T, "ids"), // some twice
		want:    maps.Clone(w.now),
	}
	if w.begin(r); r.missing == nil {
		return
	}
	if w.reads = append(w.reads, r); rapid.Bool().Draw(w.T, "at once") {
		w.finish(len(w.reads) - 1)
	}
}

func (w *rowsWorld) begin(r *rowsRead) {
	var pinned *disk
	state, err := w.s.Read(r.counter, r.ids, &r.batch, func() { pinned = w.disk }, w.compare(r))
	if err != nil || state != w.s.State() || (pinned != nil) != (r.batch.Cold() > 0) {
		w.Fatalf("%v, %+v, %d of %d cold", err, state, r.batch.Cold(), len(r.ids))
	}
	if pinned != nil {
		r.missing = r.batch.Missing()
		if !slices.IsSorted(r.missing) || len(slices.Compact(slices.Clone(r.missing))) != len(r.missing) {
			w.Fatalf("missing %v", r.missing)
		}
		r.base = pinned.base(w.schema, r.counter, r.missing)
	}
}

func (w *rowsWorld) compare(r *rowsRead) func(i int, cells []int64) {
	return func(i int, cells []int64) {
		for column, v := range cells {
			if c := (cell{r.counter, r.ids[i], column}); v != r.want[c] {
				w.Fatalf("%+v is %d, want %d", c, v, r.want[c])
			}
		}
	}
}

func (w *rowsWorld) answer() {
	if len(w.reads) == 0 {
		w.Skip("nobody waits")
	}
	w.finish(rapid.IntRange(0, len(w.reads)-1).Draw(w.T, "read"))
}

func (w *rowsWorld) finish(at int) {
	r := w.reads[at]
	w.reads = slices.Delete(w.reads, at, at+1)
	rows := 0
	r.batch.Lay(r.base, func(i int, cells []int64) {
		rows++
		w.compare(r)(i, cells)
	})
	if rows != r.batch.Cold() {
		w.Fatalf("%d of %d rows answered", rows, r.batch.Cold())
	}
	w.s.InstallRows(&r.batch, r.base)
}

// warm loads the next rows of a counter, or begins again.
func (w *rowsWorld) warm() {
	counter := rapid.IntRange(0, 1).Draw(w.T, "counter")
	from := w.warmed[counter]
	if rapid.IntRange(0, 9).Draw(w.T, "again") == 0 {
		from = 0
	}
	to := from + rapid.Uint64Range(1, idMax).Draw(w.T, "length")
	var pinned *disk
	published, err := w.s.Pin(func() { pinned = w.disk })
	if err != nil {
		w.Fatal(err)
	}
	var ids []uint64
	for id := from; id < to; id++ {
		for column := range w.schema.Counters[counter].Count {
			if pinned.cells[cell{counter, id, column}] != 0 {
				ids = append(ids, id)
				break
			}
		}
	}
	stretch := shard.IDs(from, to, to > idMax)
	if rapid.IntRange(0, 3).Draw(w.T, "newest") == 0 {
		stretch = nil
	}
	if !w.s.InstallCounter(published, counter, ids, pinned.base(w.schema, counter, ids), stretch) {
		w.Fatal("nothing was published, and nothing installed")
	}
	if stretch != nil {
		w.warmed[counter] = to
	}
}

// restart loses all that is not on the disk.
func (w *rowsWorld) restart() {
	if w.next != nil && rapid.Bool().Draw(w.T, "committed") { // and nobody learned of it
		w.disk = w.next
	}
	w.now = maps.Clone(w.disk.cells)
	w.start()
}

// check reads everything, and leaves nothing of that in memory.
func (w *rowsWorld) check() {
	for counter := range w.schema.Counters {
		r := &rowsRead{counter: counter, want: w.now}
		for id := uint64(1); id <= idMax; id++ {
			r.ids = append(r.ids, id)
		}
		if w.begin(r); r.missing != nil {
			r.batch.Lay(r.base, w.compare(r))
		}
	}
	for _, c := range w.s.Stats().Counters {
		if c.Cached > 0 && w.s.Whole() {
			w.Fatal("a row of a whole shard is cached")
		}
		if c.Rows+c.Cached > idMax {
			w.Fatalf("%d rows and %d cached ones, of %d ids: one is in both", c.Rows, c.Cached, idMax)
		}
	}
}

// Tables that hardly grow any more give back what they have free, and those that grow do
// not.
func TestFit(t *testing.T) {
	s := shard.New(0, schemaOf(t), shard.Limits{}, shard.NewClock(100), shard.State{})
	const rows = 40_000
	w := window(s)
	for id := uint64(1); id <= rows; id++ {
		w.Sections[0] = pipeline.AppendChange(w.Sections[0], 0, id, pipeline.Add(1))
	}
	if err := s.Apply(1, w, []pipeline.Column{0}); err != nil {
		t.Fatal(err)
	}
	s.HandOver()
	s.Settle(true, func() {})
	grown := s.Bytes()
	if s.Fit(); s.Bytes() != grown {
		t.Errorf("%d bytes, and after they had grown %d", s.Bytes(), grown)
	}
	for range 100 {
		s.Fit()
	}
	fitted := s.Bytes()
	if s.FitAll(); fitted > grown*9/10 || fitted != s.Bytes() {
		t.Errorf("%d bytes, a little at a time %d, at once %d", grown, fitted, s.Bytes())
	}
}
