package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// skipping says that a shard stands where its node does, and not where it was
// checkpointed.
type skipping struct {
	cold.Source
	from *process
}

func (s skipping) Manifest() *cold.Manifest {
	m := *s.Source.Manifest()
	if s.from.up() {
		m.State.Applied, m.State.Sequence = s.from.node.Applied(), s.from.node.Sequence()
	}
	return &m
}

// incomplete leaves a run out.
type incomplete struct{ cold.Source }

func (s incomplete) Manifest() *cold.Manifest {
	m := *s.Source.Manifest()
	m.Runs = m.Runs[min(1, len(m.Runs)):]
	return &m
}

func (s incomplete) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	return s.Source.Read(ctx, run+1, b, at)
}

func (s incomplete) Sum(ctx context.Context, run int) (cold.Sum, error) {
	return s.Source.Sum(ctx, run+1)
}

// blind appends behind whatever is last.
type blind struct {
	pipeline.Log
	s *Server
}

func (l blind) Append(ctx context.Context, _ uint64, window []byte) (uint64, error) {
	return l.Log.Append(ctx, l.s.State(jetlog.DeltasStream).Last, window)
}

// hasty appends once more when there was no answer.
type hasty struct {
	pipeline.Log
	s *Server
}

func (l hasty) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	sequence, err := l.Log.Append(ctx, last, window)
	if err != nil && !errors.Is(err, pipeline.ErrFenced) && ctx.Err() == nil {
		return l.Log.Append(ctx, l.s.State(jetlog.DeltasStream).Last, window)
	}
	return sequence, err
}

// trusting hears no error where there was no answer.
type trusting struct{ pipeline.Log }

func (l trusting) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	sequence, err := l.Log.Append(ctx, last, window)
	if err != nil && !errors.Is(err, pipeline.ErrFenced) && ctx.Err() == nil {
		return last + 1, nil
	}
	return sequence, err
}

// forgetful says that the last window ended where EVENTS ends now.
type forgetful struct {
	pipeline.Log
	s *Server
}

func (l forgetful) Tail(ctx context.Context) (pipeline.Header, uint64, error) {
	h, last, err := l.Log.Tail(ctx)
	if last > 0 {
		h.To = pipeline.EndOf(l.s.State(jetlog.EventsStream).Last)
	}
	return h, last, err
}

// whole takes the message that a window begins in for read.
type whole struct{ pipeline.Deriver }

func (d whole) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	if messages[0].Sequence == from.Sequence() {
		messages = messages[1:]
	}
	return d.Deriver.Derive(from, to, messages)
}

// unchained leaves a window out, now and then.
type unchained struct {
	pipeline.Log
	n int
}

func (l *unchained) Append(ctx context.Context, last uint64, window []byte) (uint64, error) {
	if l.n++; l.n%4 == 0 {
		return last, nil
	}
	return l.Log.Append(ctx, last, window)
}

// unsettled waits for nothing when its patience is bounded: when the guard asks.
type unsettled struct{ pipeline.Shards }

func (s unsettled) Settle(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); bounded {
		return nil
	}
	return s.Shards.Settle(ctx)
}

// placeless does not say to a node that has joined and follows where its shards stand.
type placeless struct {
	pipeline.Shards
	joined bool
}

func (s *placeless) Sequence() uint64 {
	s.joined = true
	return s.Shards.Sequence()
}

func (s *placeless) Positions() []pipeline.Position {
	if s.joined {
		s.joined = false
		return nil
	}
	return s.Shards.Positions()
}

// hurried goes on one window later than it is told.
type hurried struct{ pipeline.Shards }

func (s hurried) Resume(sequence uint64) { s.Shards.Resume(sequence + 1) }

// furthest knows no shards but the one that has come furthest.
type furthest struct{ pipeline.Shards }

func (s furthest) Positions() []pipeline.Position {
	all := s.Shards.Positions()
	return all[max(0, len(all)-1):]
}

// outermost knows no shards between the first and the last.
type outermost struct{ pipeline.Shards }

func (s outermost) Positions() []pipeline.Position {
	all := s.Shards.Positions()
	if len(all) > 2 {
		all = slices.Delete(all, 1, len(all)-1)
	}
	return all
}

// unmoved leaves messages where they are.
type unmoved struct{ pipeline.Events }

func (unmoved) Reclaim(context.Context, uint64, int64) (int, error) { return 0, nil }

// late begins a message later.
type late struct{ pipeline.Events }

func (l late) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return l.Events.Open(ctx, pipeline.EndOf(from.Next()))
}

// credulous takes any window for the one that is meant.
type credulous struct{ pipeline.Log }

func (l credulous) At(ctx context.Context, sequence uint64) (pipeline.Header, error) {
	_, err := l.Log.At(ctx, sequence)
	return pipeline.Header{}, err
}

// endless says that nothing was ever purged.
type endless struct{ pipeline.Log }

func (l endless) First(ctx context.Context) (pipeline.Header, uint64, error) {
	_, first, err := l.Log.First(ctx)
	return pipeline.Header{}, first, err
}

// unsealed lists files that are not durable.
type unsealed struct{ cold.Engine }

func (e unsealed) Create(name string) (cold.NewFile, error) {
	f, err := e.Engine.Create(name)
	return unsealedFile{f}, err
}

type unsealedFile struct{ cold.NewFile }

func (unsealedFile) Seal() error { return nil }

// backwards has a merge take the oldest run for the newest.
func backwards(runs []*run.Run) []*run.Run {
	slices.Reverse(runs)
	return runs
}

// allButNewest has a merge lose its newest run.
func allButNewest(runs []*run.Run) []*run.Run { return runs[1:] }

// newestStays has the newest run of a merge stay where it was, above the merged
// one, which has its changes too.
func newestStays(runs []*run.Run, _ *run.Run) (stay []*run.Run) { return runs[:1] }

// stale has merged runs asked only for what the newest of what they were made
// of may have.
type stale struct {
	mu     sync.Mutex
	before map[*run.Run]*run.Run
}

func newStale(s *cold.Store) {
	f := &stale{before: map[*run.Run]*run.Run{}}
	s.Broken.Replace, s.Broken.May = f.merged, f.may
}

func (s *stale) merged(runs []*run.Run, merged *run.Run) (stay []*run.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[merged] = runs[0]
	return nil
}

func (s *stale) may(r *run.Run, key run.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.before[r]
	return before == nil || before.May(&key)
}

// byPosition keeps one letter for a position.
type byPosition struct {
	pipeline.DeadLetters
	s *Server
}

func (k byPosition) Keep(ctx context.Context, letters []pipeline.DeadLetter) error {
	var others []pipeline.DeadLetter
	for _, l := range letters {
		if !slices.ContainsFunc(k.s.Letters(), func(have pipeline.DeadLetter) bool { return have.Position == l.Position }) {
			others = append(others, l)
		}
	}
	return k.DeadLetters.Keep(ctx, others)
}

// remerger derives events one by one and merges them by itself: an
// independent way to the same windows, or, by reads, to wrong ones.
type remerger struct {
	shards int
	wrong  bool
}

func (m *remerger) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	singles, err := program(m.shards, 1).NewLane().Derive(from, to, messages)
	if err != nil {
		return nil, err
	}
	schema, err := configuration().Schema()
	if err != nil {
		return nil, err
	}
	out := pipeline.Derived{Header: singles[0].Header}
	out.Events, out.Time, out.To = 0, 0, to
	merged := pipeline.Window{Sections: make([][]byte, m.shards+1)}
	cells := map[cellOf]pipeline.Delta{}
	var order []cellOf
	ordered := make([][]byte, m.shards+1)
	for _, d := range singles {
		w, err := pipeline.DecodeWindow(d.Window)
		if err != nil {
			return nil, err
		}
		out.Events, out.Time = out.Events+w.Events, max(out.Time, w.Time)
		out.Letters = append(out.Letters, d.Letters...)
		merged.Columns = w.Columns
		for _, mark := range w.Marks {
			if n := len(merged.Marks); n == 0 || merged.Marks[n-1].Second < mark.Second {
				merged.Marks = append(merged.Marks, mark)
			}
		}
		for section, b := range w.Sections {
			r := pipeline.ReadSection(b, w.From)
			for c, ok := r.Next(); ok; c, ok = r.Next() {
				at := cellOf{section, c.Column, c.ID}
				have, known := cells[at]
				switch {
				case c.Op != pipeline.OpCell:
					ordered[section] = pipeline.AppendOperation(ordered[section], from, &r.Operation)
				case schema.Columns[c.Column].Ordered:
					ordered[section] = pipeline.AppendChange(ordered[section], c.Column, c.ID, c.Delta)
				case !known:
					order = append(order, at)
					cells[at] = c.Delta
				case m.wrong:
					cells[at] = c.Delta.Then(have)
				default:
					cells[at] = have.Then(c.Delta)
				}
			}
		}
	}
	for _, at := range order {
		merged.Sections[at.section] = pipeline.AppendChange(merged.Sections[at.section], at.column, at.id, cells[at])
	}
	for section := range ordered {
		merged.Sections[section] = append(merged.Sections[section], ordered[section]...)
	}
	merged.Header = out.Header
	out.Window = pipeline.AppendWindow(nil, &merged)
	return []pipeline.Derived{out}, nil
}

type cellOf struct {
	section, column int
	id              uint64
}

// The one who merges once more does so in the right order when told to: it is
// the order alone that TestBroken notices.
func TestRemerger(t *testing.T) {
	f := &fault{router: func(ctx context.Context, p *process, r *pipeline.Router) {
		r.Lane = func() pipeline.Deriver { return p.witness(ctx, &remerger{shards: p.w.shards}) }
	}}
	for seed := uint64(1); seed <= uint64(fewSeeds()); seed++ {
		if _, err := simulate(t, seed, f, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
