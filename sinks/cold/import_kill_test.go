package cold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

var errPower = errors.New("the power is off")

// mortal is an engine that does so many more things to the disk, and then none.
type mortal struct {
	Engine
	left atomic.Int64
	torn bool // what it cannot finish is there by half
}

func (m *mortal) step() error {
	if m.left.Add(-1) < 0 {
		return errPower
	}
	return nil
}

func (m *mortal) Create(name string) (NewFile, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	f, err := m.Engine.Create(name)
	return &mortalFile{f, m}, err
}

func (m *mortal) Commit(writes []Write) error {
	if err := m.step(); err != nil {
		if m.left.Load() == -1 && m.torn { // done, and nobody heard of it
			m.Engine.Commit(writes)
		}
		return err
	}
	return m.Engine.Commit(writes)
}

func (m *mortal) Remove(name string) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Engine.Remove(name)
}

type mortalFile struct {
	NewFile
	m *mortal
}

func (f *mortalFile) Write(b []byte) (int, error) {
	if err := f.m.step(); err != nil {
		if f.m.left.Load() == -1 && f.m.torn {
			f.NewFile.Write(b[:len(b)/2])
		}
		return 0, err
	}
	return f.NewFile.Write(b)
}

func (f *mortalFile) Seal() error {
	if err := f.m.step(); err != nil {
		return err
	}
	return f.NewFile.Seal()
}

func (f *mortalFile) Abort() {
	if f.m.step() == nil {
		f.NewFile.Abort()
	}
}

// "A kill leaves the shard as it was, or as imported, and files that nothing
// lists, which the next start removes": at every step, of an import into a shard
// that is empty and of one into a shard that has older runs.
func TestImportCutAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, older := range []pipeline.Position{0, 2} {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprint("older ", older, ", torn ", torn), func(t *testing.T) {
				from, _ := byHand(t, t.TempDir(), nil)
				defer closeStore(t, from)
				var exports [4]*source // by position; they stay as they are
				for at := range pipeline.Position(3) {
					count(t, from, 1, at+1)
					exports[at+1] = export(t, from, 1)
					defer exports[at+1].close()
				}
				cut := 0
				for steps := int64(0); ; steps++ {
					if cutImport(t, exports[:], steps, older, torn) {
						break
					}
					cut++
				}
				if cut < 5 {
					t.Errorf("%d steps", cut)
				}
			})
		}
	}
}

// cutImport imports with so many steps; done says that they were enough.
func cutImport(t *testing.T, exports []*source, steps int64, older pipeline.Position, torn bool) (done bool) {
	e := exports[3]
	dir := t.TempDir()
	m := &mortal{torn: torn}
	m.left.Store(1 << 40)
	to, real := byHand(t, dir, func(e Engine) Engine { m.Engine = e; return m })
	if older > 0 { // and something of the shard's own, which must go
		imported(t, to, exports[older])
		older += 5
		checkpoint(t, to, 1, older, func(to Sink) {
			for id := range uint64(troubleRows) {
				to.Change(0, id+1, []pipeline.Delta{pipeline.Add(5)})
			}
		})
	}
	m.left.Store(steps)
	i := beginImport(t, to, 1)
	err := i.Copy(bg, e)
	if err == nil {
		err = i.Commit()
	}
	if err != nil && !errors.Is(err, errPower) {
		t.Fatalf("step %d: %v", steps, err)
	}
	done = m.left.Load() >= 0
	// It ends without another step.
	m.left.Store(-1)
	i.Discard()
	to.files.close()
	if err := real.(*mortal).Engine.Close(); err != nil {
		t.Fatal(err)
	}
	to, engine := byHand(t, dir, nil)
	defer closeStore(t, to)
	state, failed := to.Stack(1).State()
	if failed != nil || state.Applied != older && state.Applied != 3 || err == nil && state.Applied != 3 {
		t.Fatalf("step %d, the import said %v: the shard stands at %+v, %v", steps, err, state, failed)
	}
	wantCounted(t, to, 1, int64(state.Applied))
	if _, err := allListed(to, engine); err != nil {
		t.Fatalf("step %d: %v", steps, err)
	}
	// And again, to its end.
	imported(t, to, e)
	wantCounted(t, to, 1, 3)
	return done
}

// importDir is where the victim of TestImportKilled keeps what it imports from.
func importDir(dir string) string { return filepath.Join(dir, "from") }

// importVictim checkpoints into one store and imports into another, and prints
// what is committed there, until it is killed.
func importVictim(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	from, err := Open(importDir(dir), spec(fatal{}, "post: like"), testOptions())
	die(err)
	to, err := Open(filepath.Join(dir, "to"), spec(fatal{}, "post: like"), testOptions())
	die(err)
	for {
		at := pipeline.Position(0)
		for shard := range from.meta.Shards {
			state, err := from.Stack(pipeline.Shard(shard)).State()
			die(err)
			at = state.Applied + 1
			c := from.Begin()
			sink := c.Shard(pipeline.Shard(shard))
			for id := range uint64(victimRows) {
				sink.Change(0, id+1, []pipeline.Delta{pipeline.Add(1)})
			}
			sink.State(State{Applied: at})
			die(c.Commit())
			from.Stack(pipeline.Shard(shard)).Publish()
			e, err := from.Export(pipeline.Shard(shard))
			die(err)
			i, err := to.Import(pipeline.Shard(shard))
			die(err)
			die(i.Copy(bg, e))
			die(i.Commit())
			i.Close()
			e.Close()
		}
		fmt.Println(uint64(at)) // of the last shard, which is not ahead of others
	}
}

// kill -9 at any moment of imports.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	to := filepath.Join(dir, "to")
	moved, removed := 0, 0
	committed := uint64(0)
	round := 0
	for ; round < *kills || round < killsMore**kills && (moved == 0 || removed == 0); round++ {
		last, after := killed(t, importEnv, dir, round)
		if last > committed {
			moved++
		}
		committed = max(committed, last)
		before, err := os.ReadDir(filepath.Join(to, runsDir))
		if err != nil {
			t.Fatal(err)
		}
		engine, err := openBadger(to, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		s, err := OpenOn(engine, spec(t, "post: like"), testOptions().Shards, "n")
		if err != nil {
			t.Fatal(err)
		}
		for shard := range s.meta.Shards {
			at, err := countVictim(s, pipeline.Shard(shard))
			if err != nil || at < committed || at > committed+uint64(round)+2 {
				t.Fatalf("round %d, killed %v after %d: shard %d stands at %d, %v", round, after, committed, shard, at, err)
			}
		}
		names, err := allListed(s, engine)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		closeStore(t, s)
		if len(before) > names {
			removed++
		}
	}
	t.Logf("after %d rounds and %d kills files that nothing listed were there %d times", committed, round, removed)
	if moved == 0 || removed == 0 {
		t.Errorf("no kill hit a process at work: %d moved on, %d left a file", moved, removed)
	}
}
