package twin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/explain"
)

// listLog is a log that ends where it ends.
type listLog struct {
	messages []pipeline.Message // without holes; the first one has sequence first
	first    uint64
	reads    atomic.Int64
}

func (l *listLog) Extent(context.Context) (explain.Extent, error) {
	return explain.Extent{First: l.first, Last: l.first + uint64(len(l.messages)) - 1, Created: time.Unix(1, 0)}, nil
}

func (l *listLog) Begin(context.Context) (explain.Parts, error) { return listParts{l}, nil }

// listParts are all of it.
type listParts struct{ *listLog }

func (p listParts) Extent() explain.Extent {
	e, _ := p.listLog.Extent(context.Background())
	return e
}

func (p listParts) Get(_ context.Context, sequence uint64) (m pipeline.Message, there bool, err error) {
	if sequence < p.first || sequence-p.first >= uint64(len(p.messages)) {
		return m, false, nil
	}
	return p.messages[sequence-p.first], true, nil
}

func (l *listLog) Open(_ context.Context, from pipeline.Position, _ int) (pipeline.Source, error) {
	if from.Next() < l.first {
		return nil, pipeline.ErrGap
	}
	return &listSource{l, l.messages[from.Next()-l.first:]}, nil
}

type listSource struct {
	log  *listLog
	rest []pipeline.Message
}

func (s *listSource) Next(context.Context) ([]pipeline.Message, error) {
	if len(s.rest) == 0 {
		return nil, errors.New("read behind the end")
	}
	run := s.rest[:min(len(s.rest), 7)]
	s.rest = s.rest[len(run):]
	s.log.reads.Add(int64(len(run)))
	return run, nil
}

func (s *listSource) Close() error { return nil }

// asked is a number and what it was after each event.
type asked struct {
	column pipeline.Column
	name   string
	id     uint64
	values []int64 // before the first event, and after each
}

// docs/contract.md: "The events behind the number, newest first, what each changed,
// paged; their sum is the number": of every number of generated sequences, with packs,
// deletions, adjusts, follows twice, reads with seen and refused events, page by page
// with every limit, with filters, damaged filters and none.
func TestExplain(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./internal/twin -run TestExplain -seed=%d", seed)
	sequences := 10
	if testing.Short() {
		sequences = 4
	}
	w, err := newWorld(t.TempDir(), setupOf(seed, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var all []past
	for number := range sequences {
		r := chances(seed, number)
		s, m := generate(r, number, w.ages.once), &model{ages: w.ages, defaults: w.defaults}
		if err := w.tell(r, s, m); err != nil {
			t.Fatal(err)
		}
		all = append(all, past{s, m})
	}
	program, err := operators.Compile(w.schema, w.rules, 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 77))
	log := &listLog{messages: w.log, first: 1}
	dir := t.TempDir()
	x := explain.New(explain.Options{
		Schema: w.schema, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: log,
		Dir: dir, Upto: func() uint64 { return uint64(len(w.log)) }, Rate: 1 << 30, BytesMax: 1 << 30, Events: 40,
	})
	for number, p := range all {
		switch number {
		case sequences / 4: // some without filters, then all with
			if err := x.Make(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, _ := x.Size(); n < len(w.log)/100 {
				t.Fatalf("%d filters of %d messages", n, len(w.log))
			}
		case sequences / 2:
			damage(t, r, dir)
		case sequences * 3 / 4:
			if err := x.Make(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range w.numbersOf(p) {
			if err := w.explained(t, r, x, p.model, a); err != nil {
				t.Fatalf("sequence %d, %s of %d: %v", number, a.name, a.id, err)
			}
		}
		for _, user := range p.users {
			if err := w.badge(t, r, x, p.model, user); err != nil {
				t.Fatalf("sequence %d, unread of %d: %v", number, user, err)
			}
		}
	}
}

// damage turns a bit of one in three filters over, cuts some and takes some away.
func damage(t *testing.T, r *rand.Rand, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.filter"))
	if err != nil || len(files) == 0 {
		t.Fatalf("filters: %v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		switch r.IntN(5) {
		case 0:
			text[r.IntN(len(text))] ^= 1 << r.IntN(8)
		case 1:
			text = text[:r.IntN(len(text))]
		case 2:
			os.Remove(name)
			continue
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// numbersOf are all numbers that a sequence is about, by the model.
func (w *world) numbersOf(p past) []asked {
	var all []asked
	add := func(counter string, columns []string, ids []uint64) {
		for _, column := range columns {
			c, ok := w.schema.Find(counter + "." + column)
			if !ok {
				panic(column)
			}
			for _, id := range ids {
				all = append(all, asked{column: c, name: counter + "." + column, id: id})
			}
		}
	}
	add("user", userColumns, p.users)
	add("unread", unreadKinds, p.users)
	add("post", postColumns, p.posts)
	add("page", []string{"view"}, p.pages)
	for n := 0; n <= len(p.model.log); n++ {
		m := *p.model
		m.log = m.log[:n]
		counts := m.count()
		for i := range all {
			a := &all[i]
			counter, column, _ := cutName(a.name)
			a.values = append(a.values, m.value(counts, counter, column, a.id))
		}
	}
	return all
}

func cutName(name string) (counter, column string, ok bool) {
	for i := range name {
		if name[i] == '.' {
			return name[:i], name[i+1:], true
		}
	}
	return "", "", false
}

// explained compares an explanation with the model, in one page and in many.
func (w *world) explained(t *testing.T, r *rand.Rand, x *explain.Explainer, m *model, a asked) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asOf := pipeline.EndOf(uint64(len(w.log)))
	whole := query.Explanation{}
	ask := query.ExplainAsk{ID: a.id, Columns: []pipeline.Column{a.column}, AsOf: asOf, Before: pipeline.PositionMax, Limit: 1000, Soft: time.Now().Add(time.Hour)}
	if err := x.Explain(ctx, &ask, &whole); err != nil {
		return err
	}
	if whole.Next != 0 || whole.Base != 0 {
		return fmt.Errorf("next %d, base %d", whole.Next, whole.Base)
	}
	var paged []query.ExplainedEvent
	limit := 1 + r.IntN(5)
	for ask.Limit = limit; ; {
		page := query.Explanation{}
		if err := x.Explain(ctx, &ask, &page); err != nil {
			return err
		}
		if len(page.Events) > limit {
			return fmt.Errorf("%d events in a page of %d", len(page.Events), limit)
		}
		paged = append(paged, page.Events...)
		if ask.Before = page.Next; page.Next == 0 {
			break
		}
	}
	if !slices.EqualFunc(paged, whole.Events, func(a, b query.ExplainedEvent) bool {
		return a.Position == b.Position && slices.Equal(a.Changes, b.Changes)
	}) {
		return fmt.Errorf("in pages of %d:\n%+v\nwhole:\n%+v", limit, short(paged), short(whole.Events))
	}
	changes := make(map[pipeline.Position]query.NumberChange)
	for _, e := range whole.Events {
		changes[e.Position] = e.Changes[0]
	}
	value := a.values[0]
	for i, e := range m.log {
		change, is := changes[e.position]
		switch delete(changes, e.position); {
		case change.Unsure:
			return fmt.Errorf("%s: unsure", e.position)
		case is && change.Set:
			value = change.N
		case is:
			value += change.N
		}
		if value != a.values[i+1] {
			return fmt.Errorf("after the event at %s (%s): %d by the events, %d by the model; explained: %v %+v", e.position, e.kind, value, a.values[i+1], is, change)
		}
	}
	if len(changes) > 0 {
		return fmt.Errorf("explained, and not in the model: %v", changes)
	}
	return nil
}

// badge compares the explanation of all 1:1 numbers of a user: what was really
// added, also where a read set them, sums to each number.
func (w *world) badge(t *testing.T, r *rand.Rand, x *explain.Explainer, m *model, user uint64) error {
	if w.defaults["unread.like"] != 0 { // a row's default is no sum
		return nil
	}
	var columns []pipeline.Column
	for _, kind := range unreadKinds {
		c, _ := w.schema.Find("unread." + kind)
		columns = append(columns, c)
	}
	sums := make([]int64, len(columns))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := query.ExplainAsk{
		ID: user, Columns: columns, AsOf: pipeline.EndOf(uint64(len(w.log))), Before: pipeline.PositionMax,
		Limit: 1 + r.IntN(6), Soft: time.Now().Add(time.Hour), Differences: true,
	}
	for {
		page := query.Explanation{}
		if err := x.Explain(ctx, &ask, &page); err != nil {
			return err
		}
		for _, e := range page.Events {
			for i, c := range e.Changes {
				if sums[i] += c.N; c.Set || c.Unsure {
					return fmt.Errorf("%s: %+v", e.Position, c)
				}
			}
		}
		if ask.Before = page.Next; page.Next == 0 {
			break
		}
	}
	counts := m.count()
	for i, kind := range unreadKinds {
		if is := m.value(counts, "unread", kind, user); is != sums[i] {
			return fmt.Errorf("%s is %d, by the events %d", kind, is, sums[i])
		}
	}
	return nil
}

func short(events []query.ExplainedEvent) (lines []string) {
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("%d %s %+v\n", e.Position, e.Type, e.Changes))
	}
	return lines
}
