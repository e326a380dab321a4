package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
)

// list is a log in memory; sequences may be missing.
type list struct {
	messages []pipeline.Message
	extent   Extent
	opened   int
}

func (l *list) Extent(context.Context) (Extent, error) { return l.extent, nil }

func (l *list) Begin(context.Context) (Parts, error) { return parts{l}, nil }

type parts struct{ *list }

func (p parts) Extent() Extent { return p.extent }

func (p parts) Get(_ context.Context, sequence uint64) (pipeline.Message, bool, error) {
	at, there := slices.BinarySearchFunc(p.messages, sequence, func(m pipeline.Message, s uint64) int { return cmp.Compare(m.Sequence, s) })
	if !there {
		return pipeline.Message{}, false, nil
	}
	return p.messages[at], true, nil
}

func (l *list) Open(_ context.Context, from pipeline.Position, _ int) (pipeline.Source, error) {
	if l.opened++; from.Next() < l.extent.First {
		return nil, pipeline.ErrGap
	}
	at := slices.IndexFunc(l.messages, func(m pipeline.Message) bool { return m.Sequence >= from.Next() })
	return &source{l.messages[at:]}, nil
}

type source struct{ rest []pipeline.Message }

func (s *source) Next(context.Context) ([]pipeline.Message, error) {
	if len(s.rest) == 0 {
		return nil, errors.New("read behind the end")
	}
	run := s.rest[:min(len(s.rest), 3)]
	s.rest = s.rest[len(run):]
	return run, nil
}

func (s *source) Close() error { return nil }

// add puts a message at the log's end.
func (l *list) add(sequence uint64, data string) {
	l.messages = append(l.messages, pipeline.Message{Sequence: sequence, Subject: "events.pack", Data: []byte(data)})
	l.extent.First, l.extent.Last = max(l.extent.First, 1), sequence
}

func maker(l *list, dir string, events int) *Explainer {
	return NewExplainer(ExplainOptions{
		Log: l, Tracer: func() pipeline.Tracer { return numbers{} }, Dir: dir, Upto: func() uint64 { return l.extent.Last }, Rate: math.MaxInt32, BytesMax: 1 << 40, Events: events,
	})
}

func made(t *testing.T, x *Explainer) *filters {
	t.Helper()
	if err := x.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x.filters
}

var digits = regexp.MustCompile(`[0-9]+`)

// numbers is a tracer of a log whose messages name ids, each with the one after it.
type numbers struct{}

func (numbers) Trace(m *pipeline.Message, _ func([]byte) bool, visit func(*pipeline.Traced)) {
	var section []byte
	for _, text := range digits.FindAllString(string(m.Data), -1) {
		id, _ := strconv.ParseUint(text, 10, 64)
		section = pipeline.AppendOperation(section, pipeline.At(m.Sequence, 0)-1, &pipeline.Operation{Op: pipeline.OpFollowed, ID: id, Other: id + 1, Position: pipeline.At(m.Sequence, 0)})
	}
	visit(&pipeline.Traced{Position: pipeline.At(m.Sequence, 0), Line: m.Data, Ids: section})
}

func (b *builder) name(sequence, id uint64) {
	b.add(&pipeline.Message{Sequence: sequence, Time: int64(sequence) * 1000, Data: []byte(strconv.FormatUint(id, 10))}, numbers{})
}

// kept are filters that keep the one of a builder, and its stretch.
func kept(t *testing.T, b *builder) (*filters, stretch) {
	t.Helper()
	f, err := openFilters(t.TempDir(), 7)
	s := b.stretch
	if err == nil {
		err = f.keep(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f, s
}

// answers are the messages that a filter names.
func (f *filters) answers(t *testing.T, s stretch, k key) ([]uint64, error) {
	t.Helper()
	o, err := f.open(s)
	if err != nil {
		return nil, err
	}
	defer o.close()
	return o.findAny([]key{k})
}

// What a message of a stretch does something with, its filter names, alone and together;
// of what does not, it says so nearly always. One key may have any share of the messages.
func TestFilterHasWhatIsThere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 29, 681, 682, 683, 5000} {
		for _, often := range []int{1, 2, 1 << 20} { // the same id in one message of so many
			b, has := &builder{stretch: stretch{5, 5}}, map[uint64][]uint64{}
			for i := range uint64(n) {
				id := []uint64{math.MaxUint64, 1, 1 << 63, r.Uint64() >> r.IntN(40)}[min(i, 3)]
				if r.IntN(often) == 0 {
					id = 42
				}
				b.name(5+i, id)
				has[id] = append(has[id], 5+i)
			}
			f, s := kept(t, b)
			for id, want := range has {
				slices.Reverse(want)
				for _, k := range []key{keyOf(id), keyOf(id).with(id+1, 0)} {
					if got, err := f.answers(t, s, k); err != nil || len(got) < len(want) || len(got) == len(want) && !slices.Equal(got, want) {
						t.Fatalf("%d messages: %d is in %d, want %d: %v", n, id, got, want, err)
					}
				}
			}
			wrong := 0
			const asked = 10_000
			o, err := f.open(s)
			if err != nil {
				t.Fatal(err)
			}
			for range asked {
				if got, err := o.findAny([]key{key(r.Uint64())}); err != nil {
					t.Fatal(err)
				} else if len(got) > 0 {
					wrong++
				}
			}
			o.close()
			if wrong > asked/1000 {
				t.Errorf("%d messages: %d of %d that are not there are said to be", n, wrong, asked)
			}
			if _, bytes := f.size(); n >= 1000 && bytes > int64(n)*13+2*blockBytes {
				t.Errorf("%d messages take %d bytes", n, bytes)
			}
		}
	}
}

// What is said often is one entry: a filter of few ids names all their messages, however
// many changes of them there are.
func TestFilterOfManyChanges(t *testing.T) {
	b := &builder{stretch: stretch{1, 1}}
	const messages = entriesMax/1000 + 50
	for i := range uint64(messages) {
		b.add(&pipeline.Message{Sequence: i + 1}, often(i+100))
	}
	f, s := kept(t, b)
	for i := range uint64(messages) {
		if got, err := f.answers(t, s, keyOf(i+100)); err != nil || !slices.Contains(got, i+1) {
			t.Fatalf("message %d is not named: %v, %v", i+1, got, err)
		}
	}
}

// often is a tracer that has a message do something with the same id a thousand times, and
// once with another one.
type often uint64

func (o often) Trace(m *pipeline.Message, _ func([]byte) bool, visit func(*pipeline.Traced)) {
	var section []byte
	for i := range 1001 {
		id := uint64(7)
		if i == 1000 {
			id = uint64(o)
		}
		section = pipeline.AppendChange(section, 0, id, pipeline.Add(1))
	}
	visit(&pipeline.Traced{Position: pipeline.At(m.Sequence, 0), Ids: section})
}

// A file that is not as it was written says that it is damaged, or what it said
// before: it never hides anything.
func TestDamagedFilterHidesNothing(t *testing.T) {
	b := &builder{stretch: stretch{1, 1}}
	for i := range uint64(900) {
		b.name(i+1, i+1000)
	}
	s := b.stretch
	f, err := openFilters(t.TempDir(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.keep(b); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.name(s))
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, file []byte) {
		if err := os.WriteFile(f.name(s), file, 0o644); err != nil {
			t.Fatal(err)
		}
		for i := uint64(0); i < 900; i += 97 {
			if got, err := f.answers(t, s, keyOf(i+1000)); !slices.Contains(got, i+1) && !errors.Is(err, errDamaged) {
				t.Fatalf("%s: %d is hidden: %v", what, i+1000, err)
			}
		}
	}
	for bit := 0; bit < len(good)*8; bit += 331 {
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprintf("bit %d", bit), file)
	}
	for n := 0; n < len(good); n += 499 {
		try(fmt.Sprintf("%d bytes", n), good[:n])
	}
	swapped := slices.Concat(good[:blockBytes], good[2*blockBytes:3*blockBytes], good[blockBytes:2*blockBytes], good[3*blockBytes:])
	try("two blocks swapped", swapped)
}

// Stretches follow one another without a gap, also over sequences that are not
// there, and packs count by their lines. What is made again after damage ends where
// the next begins.
func TestStretchesCoverTheLog(t *testing.T) {
	l := &list{extent: Extent{Created: time.Unix(9, 0)}}
	sequence := uint64(0)
	for i := range uint64(400) {
		if sequence++; i%50 == 49 {
			sequence += 30 // deleted
		}
		l.add(sequence, "{\"a\":1}\n{\"a\":2}")
	}
	dir := t.TempDir()
	x := maker(l, dir, 16)
	all := made(t, x).all()
	check := func(all []stretch) {
		t.Helper()
		if len(all) < 50 || all[0].first != 1 {
			t.Fatalf("%v", all)
		}
		for i := range all[1:] {
			if all[i+1].first != all[i].last+1 {
				t.Fatalf("%v", all[i:i+2])
			}
		}
	}
	check(all)
	x.filters.drop(all[3])
	x.filters.drop(all[4])
	x.filters.drop(all[20])
	x.made = 0
	check(made(t, x).all())
	again := maker(l, dir, 16)
	opened := l.opened
	check(made(t, again).all())
	if l.opened > opened+1 { // the end, that fills no stretch
		t.Errorf("what has filters is read again")
	}
}

// EVENTS is deleted and recreated (its creation time is part of the key).
func TestFiltersOfAnotherLogGo(t *testing.T) {
	l := &list{extent: Extent{Created: time.Unix(9, 0)}}
	for i := range uint64(64) {
		l.add(i+1, "1")
	}
	dir := t.TempDir()
	x := maker(l, dir, 8)
	if n := len(made(t, x).all()); n != 8 {
		t.Fatal(n)
	}
	l.extent.Created = time.Unix(10, 0)
	if f := x.filtersOf(l.extent); len(f.all()) != 0 {
		t.Errorf("filters of another log: %v", f.all())
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 0 {
		t.Errorf("%v", files)
	}
}

// Filters of what was trimmed go, and there are no more than explain.disk lets
// be: the oldest go, and are not made again.
func TestFiltersAreBounded(t *testing.T) {
	l := &list{extent: Extent{Created: time.Unix(9, 0)}}
	for i := range uint64(640) {
		l.add(i+1, strconv.FormatUint(i*7919, 10))
	}
	x := maker(l, t.TempDir(), 8)
	if n := len(made(t, x).all()); n != 80 {
		t.Fatal(n)
	}
	l.extent.First, x.made = 100, 0
	if all := made(t, x).all(); all[0] != (stretch{97, 104}) {
		t.Fatal(all[0])
	}
	_, bytes := x.Size()
	x.BytesMax, x.made = bytes/2, 0
	all := made(t, x).all()
	if _, now := x.Size(); now > bytes/2 || all[len(all)-1].last != 640 {
		t.Fatalf("%d bytes, %v", now, all)
	}
	x.made = 0
	opened := l.opened
	if again := made(t, x).all(); !slices.Equal(again, all) || l.opened > opened {
		t.Errorf("made again: %v", again)
	}
}

// There are only so many explanations at a time as there is memory for; one may always run,
// and who gives up takes nobody's place.
func TestExplanationsWait(t *testing.T) {
	for memory, places := range map[int]int{0: placesMax, 1: 1, 2*searchBytes + 1: 2} {
		x := NewExplainer(ExplainOptions{Memory: memory, Log: waiting{}, Tracer: func() pipeline.Tracer { return numbers{} }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		for range places {
			go func() { ended <- x.Explain(ctx, nil, nil) }()
		}
		e2e.Until(t, "all run", func() bool { return x.Bytes() == places*searchBytes })
		gone, giveUp := context.WithCancel(t.Context())
		giveUp()
		if err := x.Explain(gone, nil, nil); !errors.Is(err, context.Canceled) || x.Bytes() != places*searchBytes {
			t.Errorf("%d places: one more: %v", places, err)
		}
		cancel()
		for range places {
			if err := <-ended; !errors.Is(err, errWaited) {
				t.Error(err)
			}
		}
		if x.Bytes() != 0 {
			t.Errorf("they hold %d bytes", x.Bytes())
		}
	}
}

// waiting is a log that does not answer.
type waiting struct{ Log }

var errWaited = errors.New("it was waited for")

func (waiting) Begin(ctx context.Context) (Parts, error) {
	<-ctx.Done()
	return nil, errWaited
}
