package cold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

var bg = context.Background()

// source is an export that is counted, and goes wrong where a test wants it.
type source struct {
	Source
	bytes int64 // read
	fail  func(run int, b []byte, at int64) error
}

func (s *source) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	b = b[:min(len(b), 10_000)] // many pieces
	n, err := s.Source.Read(ctx, run, b, at)
	s.bytes += int64(n)
	if err == nil && s.fail != nil {
		err = s.fail(run, b[:n], at)
	}
	return n, err
}

func export(t testing.TB, s *Store, shard pipeline.Shard) *source {
	t.Helper()
	e, err := s.Export(shard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if e.layers != nil {
			e.Close()
		}
	})
	return &source{Source: e}
}

func (s *source) close() { s.Source.(*Export).Close() }

func beginImport(t testing.TB, s *Store, shard pipeline.Shard) *Import {
	t.Helper()
	i, err := s.Import(shard)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// imported copies and commits.
func imported(t testing.TB, s *Store, from Source) {
	t.Helper()
	i := beginImport(t, s, from.Manifest().Shard)
	defer i.Close()
	if err := i.Copy(bg, from); err != nil {
		t.Fatal(err)
	}
	if err := i.Commit(); err != nil {
		t.Fatal(err)
	}
}

// pair is a store with a few runs in shard 1, and an empty one.
func pair(t *testing.T) (from, to *Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	from, _ = byHand(t, t.TempDir(), nil)
	to, _ = byHand(t, dir, nil)
	t.Cleanup(func() { closeStore(t, from); to.Close() })
	for at := range pipeline.Position(3) {
		count(t, from, 1, at+1)
	}
	return from, to, dir
}

// "Runs that are here already are not copied again", also where the shard went on
// over there; and what is imported can go on here. After an error a Copy goes on with the
// run that was not whole; another import begins again.
func TestImportIsIncremental(t *testing.T) {
	from, to, dir := pair(t)
	first := export(t, from, 1)
	cut, cuts, read, total := errors.New("cut off"), 0, int64(0), first.Manifest().Bytes()
	first.fail = func(_ int, b []byte, _ int64) error {
		if read += int64(len(b)); read > total/2 && cuts < 3 {
			read, cuts = 0, cuts+1
			return cut
		}
		return nil
	}
	i, last := beginImport(t, to, 1), int64(0)
	for {
		i.Progress = func(bytes, of int64) {
			if bytes > of || of != total {
				t.Errorf("%d bytes of %d", bytes, of)
			}
			last = bytes
		}
		err := i.Copy(bg, first)
		if err == nil {
			break
		}
		if !errors.Is(err, cut) || i.Commit() == nil {
			t.Fatalf("committed, and not all is there: %v", err)
		}
	}
	if last != total || cuts < 2 || first.bytes > int64(1+cuts)*total {
		t.Errorf("%d bytes of %d are here, %d were read with %d cuts", last, total, first.bytes, cuts)
	}
	if err := i.Commit(); err != nil {
		t.Fatal(err)
	}
	i.Close()
	count(t, from, 1, 4)
	newer := export(t, from, 1)
	imported(t, to, newer)
	if newest := newer.Manifest().Runs[0].Bytes; newer.bytes != newest {
		t.Errorf("%d bytes were copied, and the new run has %d", newer.bytes, newest)
	}
	wantCounted(t, to, 1, 4)
	closeStore(t, to)
	to, _ = byHand(t, dir, nil)
	defer closeStore(t, to)
	wantCounted(t, to, 1, 4)
	again := export(t, from, 1)
	imported(t, to, again)
	if again.bytes != 0 {
		t.Errorf("after a restart %d bytes were copied again", again.bytes)
	}
	for at := range pipeline.Position(RunsWanted) {
		count(t, to, 1, 5+at)
	}
	if did, err := to.MergeOnce(nil); !did || err != nil {
		t.Fatal(did, err)
	}
	wantCounted(t, to, 1, 4+RunsWanted)
}

// "What came is not what was exported": it is named, and copied again.
func TestImportNoticesDamage(t *testing.T) {
	from, to, dir := pair(t)
	e := export(t, from, 1)
	once := true
	e.fail = func(run int, b []byte, at int64) error {
		if run == 1 && once {
			b[len(b)/2] ^= 0x10
			once = false
		}
		return nil
	}
	i := beginImport(t, to, 1)
	defer i.Close()
	if err := i.Copy(bg, e); !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), "shard 1: run 2 of 3") {
		t.Fatalf("%v", err)
	}
	if n := len(runFiles(t, dir)); n != 1 {
		t.Errorf("%d files, and one run was whole", n)
	}
	if err := i.Copy(bg, e); err != nil {
		t.Fatal(err)
	}
	if err := i.Commit(); err != nil {
		t.Fatal(err)
	}
	wantCounted(t, to, 1, 3)
}

// What is damaged over there arrives as it was exported, and is found block by
// block.
func TestImportNoticesDamagedExport(t *testing.T) {
	from, to, dir := pair(t)
	e := export(t, from, 1)
	l := e.Source.(*Export).layers.all[2]
	path := filepath.Join(from.engine.(*badgerEngine).path, l.file.name())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[l.at+l.info.IndexAt/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	i := beginImport(t, to, 1)
	// The context ends while the run is checked.
	ctx, cancel := context.WithCancel(bg)
	e.fail = func(_ int, b []byte, at int64) error {
		if at+int64(len(b)) == l.info.Bytes {
			cancel()
		}
		return nil
	}
	if err := i.Copy(ctx, e); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	err = i.Copy(bg, e)
	if !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), "run 3 of 3") || !strings.Contains(fmt.Sprint(err), "block") {
		t.Errorf("%v", err)
	}
	i.Close()
	if names := runFiles(t, dir); len(names) != 0 {
		t.Errorf("files %v", names)
	}
	if state, err := to.Stack(1).State(); err != nil || state != (State{}) {
		t.Errorf("it stands at %+v, %v", state, err)
	}
}

// changed is an export that says something else of itself.
type changed struct {
	Source
	m Manifest
}

func (c *changed) Manifest() *Manifest { return &c.m }

// What does not fit is refused, and nothing is written.
func TestImportRefuses(t *testing.T) {
	from, to, dir := pair(t)
	e := export(t, from, 1)
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   error
		says   string
	}{
		"shards":  {func(m *Manifest) { m.Shards = 8 }, ErrForeign, "one of 8 shards, and this store has 4"},
		"shard":   {func(m *Manifest) { m.Shard = 2 }, ErrForeign, "shard 2, and shard 1"},
		"format":  {func(m *Manifest) { m.Format = 9 }, ErrForeign, "format 9"},
		"events":  {func(m *Manifest) { m.Streams.Events = time.Unix(1, 0) }, ErrForeign, "EVENTS"},
		"counter": {func(m *Manifest) { m.Dictionary = Dictionary{{"user", []string{"like"}}} }, ErrDictionary, `counter 0 is "user" there and "post" here`},
		"column":  {func(m *Manifest) { m.Dictionary = Dictionary{{"post", []string{"view"}}} }, ErrDictionary, `column 0 of "post" is "view" there and "like" here`},
		"more":    {func(m *Manifest) { m.Dictionary = Dictionary{{"post", []string{"like", "view"}}} }, ErrDictionary, "never counted"},
		"other":   {func(m *Manifest) { m.Dictionary = append(slices.Clone(m.Dictionary), DictionaryCounter{Name: "user"}) }, ErrDictionary, "never counted"},
		"twice":   {func(m *Manifest) { m.Dictionary = Dictionary{{"post", []string{"like", "like"}}} }, ErrCorrupt, "twice"},
		"runs":    {func(m *Manifest) { m.Runs = slices.Repeat(m.Runs, runsImportMax) }, ErrCorrupt, "runs"},
		"bytes":   {func(m *Manifest) { m.Runs = slices.Clone(m.Runs); m.Runs[0].Bytes = 1 << 60 }, ErrCorrupt, "run 1"},
		"place":   {func(m *Manifest) { m.State.Applied = pipeline.PositionMax + 1 }, ErrCorrupt, "position"},
	} {
		t.Run(name, func(t *testing.T) {
			other := &changed{e, *e.Manifest()}
			c.change(&other.m)
			i := beginImport(t, to, 1)
			defer i.Close()
			err := i.Copy(bg, other)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if names := runFiles(t, dir); len(names) != 0 {
				t.Errorf("files %v", names)
			}
		})
	}
	if _, err := from.Export(5); err == nil {
		t.Error("shard 5 of 4 was exported")
	}
	if _, err := from.Import(5); err == nil {
		t.Error("shard 5 of 4 was imported")
	}
	for _, bad := range []struct {
		run int
		at  int64
	}{{-1, 0}, {3, 0}, {0, -1}, {0, 1 << 40}} {
		if _, err := e.Source.Read(bg, bad.run, make([]byte, 10), bad.at); err == nil {
			t.Errorf("run %d at %d was read", bad.run, bad.at)
		}
	}
}

// Of another DELTAS the sequence means nothing, and positions are the same.
func TestImportOfAnotherDeltas(t *testing.T) {
	from, to, _ := pair(t)
	if err := from.SetStreams(Streams{Deltas: time.Unix(7, 0)}); err != nil {
		t.Fatal(err)
	}
	imported(t, to, export(t, from, 1))
	if state, err := to.Stack(1).State(); err != nil || state != (State{Applied: 3, Time: 3}) {
		t.Errorf("it stands at %+v, %v", state, err)
	}
}

// Nothing else may use a shard until its import is over.
func TestImportInUse(t *testing.T) {
	from, to, _ := pair(t)
	i := beginImport(t, to, 1)
	if _, err := to.Import(1); !errors.Is(err, ErrInUse) {
		t.Errorf("a second import: %v", err)
	}
	e := export(t, from, 1)
	if err := i.Copy(bg, e); err != nil {
		t.Fatal(err)
	}
	count(t, to, 1, 9)
	if err := i.Commit(); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a checkpoint: %v", err)
	}
	if err := to.Drop(1); !errors.Is(err, ErrInUse) {
		t.Errorf("a drop: %v", err)
	}
	i.Close()
	wantCounted(t, to, 1, 1)
	c := to.Begin()
	sink := c.Shard(1)
	countTo(sink)
	sink.State(State{Applied: 10})
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Import(1); !errors.Is(err, ErrInUse) {
		t.Errorf("before a checkpoint is published: %v", err)
	}
	to.Stack(1).Publish()
	imported(t, to, e)
	wantCounted(t, to, 1, 3)
}

// None begins while a shard is imported, and a merge that was under way comes to
// nothing: the shard has other runs, or the same ones above others.
func TestImportBesideMerges(t *testing.T) {
	from, to, dir := pair(t)
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, to, 1, at+1)
	}
	i := beginImport(t, to, 1)
	if did, err := to.MergeOnce(nil); did || err != nil {
		t.Errorf("a merge: %v, %v", did, err)
	}
	i.Close()
	for _, have := range []pipeline.Position{3, RunsWanted + 3} {
		state, _ := from.Stack(1).State()
		for at := state.Applied; at < have; at++ {
			count(t, from, 1, at+1)
		}
		// All there are: what is merged is whole rows.
		m := &merge{stack: to.Stack(1), view: to.Stack(1).View(), last: true}
		m.runs = m.view.layers.all
		imported(t, to, export(t, from, 1))
		if _, err := m.do(); !errors.Is(err, errStopped) {
			t.Errorf("%v", err)
		}
		m.view.Close()
		to.files.sweep()
		wantCounted(t, to, 1, int64(have))
		if n := len(runFiles(t, dir)); n != int(have) {
			t.Errorf("%d files", n)
		}
	}
}

// Damage in a run that an import has replaced meanwhile is none of the shard's,
// whoever was reading it: a merge, although the shard has others of its runs
// still, or Verify.
func TestImportBesideDamage(t *testing.T) {
	from, to, dir := pair(t)
	for at := range pipeline.Position(3) {
		count(t, to, 1, at+1)
	}
	names := runFiles(t, dir)
	merge := &merge{stack: to.Stack(1), view: to.Stack(1).View(), last: true}
	merge.runs = merge.view.layers.all
	flip(t, dir, names[0], 1000)
	asked := 0
	to.Verify(func() bool {
		if asked++; asked == 2 { // it has its view
			imported(t, to, export(t, from, 1))
		}
		return true
	}, func(d Damage) { t.Errorf("verified: %v", d) })
	if list := to.Stack(1).list(); !slices.Contains(list, merge.runs[0]) || slices.Equal(list, merge.runs) {
		t.Fatalf("of the runs not only some are others: %v of %v", list, merge.runs)
	}
	_, err := merge.do()
	if !isCorrupt(err) || merge.refuse(err) {
		t.Errorf("a merge: %v", err)
	}
	merge.view.Close()
	wantCounted(t, to, 1, 3)
	closeStore(t, to)
}

// Also where the checksums of its runs are known from before they were damaged.
func TestImportMendsWhatWasExported(t *testing.T) {
	from, to, dir := pair(t)
	for at := range pipeline.Position(3) {
		count(t, to, 1, at+1)
	}
	e := export(t, to, 1)
	for run := range e.Manifest().Runs {
		if _, err := e.Sum(bg, run); err != nil {
			t.Fatal(err)
		}
	}
	e.close()
	flip(t, dir, runFiles(t, dir)[1], 1000)
	for at := pipeline.Position(4); ; at++ { // until a merge finds it
		if _, err := to.MergeOnce(nil); isCorrupt(err) {
			break
		}
		count(t, to, 1, at)
		count(t, from, 1, at)
	}
	state, _ := from.Stack(1).State()
	imported(t, to, export(t, from, 1))
	wantCounted(t, to, 1, int64(state.Applied))
	closeStore(t, to)
}

// Runs that change the same keys have the same index, and are not the same.
func TestImportTellsRunsApart(t *testing.T) {
	var stores [2]*Store
	for i := range stores {
		stores[i], _ = byHand(t, t.TempDir(), nil)
		defer closeStore(t, stores[i])
		checkpoint(t, stores[i], 1, 1, func(to Sink) {
			for id := range uint64(troubleRows) {
				to.Change(0, id+1, []pipeline.Delta{pipeline.Add(int64(i + 1))})
			}
		})
	}
	e := export(t, stores[1], 1)
	if a, b := e.Manifest().Runs[0], export(t, stores[0], 1).Manifest().Runs[0]; a != b {
		t.Fatalf("%+v and %+v", a, b)
	}
	imported(t, stores[0], e)
	wantCounted(t, stores[0], 1, 2)
}

// "A store that holds nothing yet takes it as it is, another one adds the names
// that it lacks."
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	from := open(t, t.TempDir(), "post: like view", "user: seen")
	defer closeStore(t, from)
	id := uint64(1)
	for pipeline.ShardOf(id, 4) != 1 {
		id++
	}
	write(t, from, "post", id, 5, 7)
	theirs := from.Meta().Dictionary
	e := export(t, from, 1)

	to := open(t, dir, "user: seen", "post: view")
	i := beginImport(t, to, 1)
	if err := i.Copy(bg, e); !errors.Is(err, ErrDictionary) {
		t.Errorf("not adopted: %v", err)
	}
	i.Close()
	if err := to.Adopt(theirs); err != nil {
		t.Fatal(err)
	}
	imported(t, to, e)
	want := cells{fmt.Sprintf("post.like %d", id): 5, fmt.Sprintf("post.view %d", id): 7}
	if got := scanned(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	closeStore(t, to)
	to = open(t, dir, "user: seen", "post: view")
	defer closeStore(t, to)
	if got := scanned(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restart %v, want %v", got, want)
	}

	// It holds something now.
	if err := to.Adopt(Dictionary{{"post", []string{"view"}}}); !errors.Is(err, ErrDictionary) {
		t.Errorf("other numbers: %v", err)
	}
	more := append(slices.Clone(theirs), DictionaryCounter{"page", []string{"hit"}})
	if err := to.Adopt(more); err != nil {
		t.Fatal(err)
	}
	if _, ok := to.Schema().Find("page.hit"); !ok || fmt.Sprint(to.Meta().Dictionary) != fmt.Sprint(more) {
		t.Errorf("%v", to.Meta().Dictionary)
	}
	if got := scanned(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("with more names %v, want %v", got, want)
	}
	if err := to.Adopt(Dictionary{{"a", nil}, {"a", nil}}); !isCorrupt(err) {
		t.Errorf("a name twice: %v", err)
	}
}

// Rows that are numbered by an adopted dictionary are not stored before it is,
// also if to store it failed at first; one that cannot be adopted changes nothing.
func TestAdoptFails(t *testing.T) {
	theirs := Dictionary{{"user", []string{"seen"}}, {"post", []string{"view", "like"}}}
	for _, lands := range []bool{false, true} {
		dir := t.TempDir()
		f := &faulty{err: errFull, only: "Commit", torn: lands}
		f.left.Store(100)
		s, _ := byHand(t, dir, func(e Engine) Engine { f.Engine = e; return f })
		var many Dictionary
		for i := range countersMax + 1 {
			many = append(many, DictionaryCounter{fmt.Sprint("c", i), []string{"x"}})
		}
		if err := s.Adopt(many); err == nil || len(s.Schema().Counters) != 1 {
			t.Fatalf("too many counters: %v", err)
		}
		f.left.Store(0)
		if err := s.Adopt(theirs); !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		c := s.Begin()
		sink := c.Shard(1)
		countTo(sink)
		sink.State(State{Applied: 1})
		if err := c.Commit(); !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		f.left.Store(100)
		checkpoint(t, s, pipeline.ShardOf(7, 4), 1, func(to Sink) { to.Row(0, 7, []int64{5, 0}) })
		closeStore(t, s)
		s, _ = byHand(t, dir, nil)
		if got := scanned(t, s); len(got) != 1 || got["post.like 7"] != 5 || s.Meta().Dictionary.find("user") != 0 {
			t.Errorf("it lands: %v; it has %v, by %v", lands, got, s.Meta().Dictionary)
		}
		closeStore(t, s)
	}
}
