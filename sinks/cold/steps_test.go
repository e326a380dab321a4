package cold

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

var (
	errPower = errors.New("the power is off")
	errFull  = full(&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
)

// faulty is an engine that does so many more things to the disk, and then fails.
type faulty struct {
	Engine
	err    error
	only   string // counts these alone
	once   bool   // it goes on after that
	torn   bool   // what fails is done by half, or done, and nobody heard of it
	left   atomic.Int64
	failed string // what was the first to fail
}

// step says whether the next thing fails; half of that one is to be done.
func (f *faulty) step(what string) (half bool, err error) {
	if f.only != "" && what != f.only {
		return false, nil
	}
	left := f.left.Add(-1)
	if left == -1 {
		f.failed = what
	}
	if left >= 0 || left < -1 && f.once {
		return false, nil
	}
	return f.torn && (left == -1 || f.only != ""), f.err
}

func (f *faulty) Room(bytes int64) error {
	if _, err := f.step("Room"); err != nil {
		return err
	}
	return f.Engine.Room(bytes)
}

func (f *faulty) Create(name string) (NewFile, error) {
	if _, err := f.step("Create"); err != nil {
		return nil, err
	}
	file, err := f.Engine.Create(name)
	return &faultyFile{file, f}, err
}

func (f *faulty) Commit(writes []Write) error {
	half, err := f.step("Commit")
	if err == nil || half {
		err = errors.Join(f.Engine.Commit(writes), err)
	}
	return err
}

func (f *faulty) Remove(name string) error {
	if _, err := f.step("Remove"); err != nil {
		return err
	}
	return f.Engine.Remove(name)
}

type faultyFile struct {
	NewFile
	f *faulty
}

func (n *faultyFile) Write(b []byte) (int, error) {
	half, err := n.f.step("Write")
	if half {
		n.NewFile.Write(b[:len(b)/2])
	}
	if err != nil {
		return 0, err
	}
	return n.NewFile.Write(b)
}

func (n *faultyFile) Seal() error {
	_, err := n.f.step("Seal")
	if err != nil && n.f.once { // "After an error it is gone."
		n.NewFile.Abort()
	}
	if err != nil {
		return err
	}
	return n.NewFile.Seal()
}

func (n *faultyFile) Abort() {
	if _, err := n.f.step("Abort"); err == nil {
		n.NewFile.Abort()
	}
}

// changing is what changes a shard of so many checkpoints, each of which adds 1 to its rows,
// and how many it comes to.
var changing = map[string]struct {
	was, becomes pipeline.Position
	do           func(s *Store, from Source) error
}{
	"import into nothing":   {0, 3, importFrom},
	"import over another's": {7, 3, importFrom},
	"checkpoint":            {2, 3, func(s *Store, _ Source) error { return addOne(s) }},
	"merge":                 {RunsWanted + 1, RunsWanted + 1, func(s *Store, _ Source) error { _, err := s.MergeOnce(nil); return err }},
	"drop":                  {2, 0, func(s *Store, _ Source) error { return s.Drop(1) }},
}

func importFrom(s *Store, from Source) error {
	i, err := s.Import(1)
	if err != nil {
		return err
	}
	defer i.Close()
	if err := i.Copy(bg, from); err != nil {
		return err
	}
	return i.Commit()
}

func addOne(s *Store) error {
	state, err := s.Stack(1).State()
	if err != nil {
		return err
	}
	c := s.Begin()
	to := c.Shard(1)
	countTo(to)
	to.State(State{Applied: state.Applied + 1})
	if err := c.Commit(); err != nil {
		return err
	}
	s.Stack(1).Publish()
	return nil
}

// attempt is something that changes a shard and may have failed.
type attempt struct {
	t            *testing.T
	what         string
	dir          string
	store        *Store
	faulty       *faulty
	err          error
	again        func() error
	was, becomes pipeline.Position
}

// atEveryStep has all that changes a shard fail at each of its steps, once or from then on. test
// ends the store.
func atEveryStep(t *testing.T, fails error, once bool, test func(a *attempt)) {
	from, _ := byHand(t, t.TempDir(), nil)
	t.Cleanup(func() { closeStore(t, from) })
	for range 3 {
		if err := addOne(from); err != nil {
			t.Fatal(err)
		}
	}
	e := export(t, from, 1)
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := t.TempDir()
			s, _ := byHand(t, before, nil)
			for range c.was {
				if err := addOne(s); err != nil {
					t.Fatal(err)
				}
			}
			closeStore(t, s)
			for _, torn := range []bool{false, true} {
				for step, whole := int64(0), false; !whole; step++ {
					f := &faulty{err: fails, once: once, torn: torn}
					f.left.Store(step)
					dir := copied(t, before, ".vlog", ".mem", "DISCARD")
					s, _ := byHand(t, dir, func(e Engine) Engine { f.Engine = e; return f })
					again := func() error { return c.do(s, e) }
					err := again()
					if err != nil && !errors.Is(err, fails) {
						t.Fatalf("step %d: %v", step, err)
					}
					whole = f.left.Load() >= 0
					test(&attempt{t, fmt.Sprintf("step %d: %s, torn %v", step, f.failed, torn), dir, s, f, err, again, c.was, c.becomes})
				}
			}
		})
	}
}

// "A kill leaves the shard as it was, or as imported, and files that nothing lists, which the
// next start removes": at every step of all that changes a shard, with the step not begun, or
// done by half, or done and nobody heard of it.
func TestKilledAtEveryStep(t *testing.T) {
	atEveryStep(t, errPower, false, func(a *attempt) {
		t := a.t
		a.faulty.left.Store(-1) // it ends without another step
		a.store.files.close()
		if err := a.faulty.Engine.Close(); err != nil {
			t.Fatal(err)
		}
		wantOpened(t, a.what, a.dir, a.was, a.becomes, a.err == nil)
	})
}

// "A checkpoint that fails leaves no temporary file, and nothing is lost"; a merge, an import and
// a drop too. What had no room to be committed surely is not: its file goes, or it would take
// what the next one needs.
func TestFullDisk(t *testing.T) {
	if !errors.Is(errFull, ErrDiskFull) {
		t.Fatal(errFull)
	}
	atEveryStep(t, errFull, true, func(a *attempt) {
		t, s := a.t, a.store
		if a.err != nil {
			wantCounted(t, s, 1, int64(a.was))
			s.files.sweep()
			if _, err := allListed(s, a.faulty); err != nil && a.faulty.failed == "Room" && a.was > 0 { // an import goes on
				t.Errorf("%s: %v", a.what, err)
			}
			if a.faulty.failed == "Commit" { // what landed is there when it is killed now, as a whole
				wantOpened(t, a.what+", killed then", copied(t, a.dir, ".vlog"), a.was, a.becomes, false)
			}
			if err := a.again(); err != nil {
				t.Errorf("%s, and once more: %v", a.what, err)
			}
		}
		wantCounted(t, s, 1, int64(a.becomes))
		memory := 0
		s.layers(func(l *layer) { memory += l.run.Memory() })
		if got := s.Memory(); got != memory {
			t.Errorf("%s: it counts %d bytes of memory, and has %d", a.what, got, memory)
		}
		closeStore(t, s)
		wantOpened(t, a.what, a.dir, a.becomes, a.becomes, true)
	})
}

// wantOpened opens what is left: the rows say where the shard stands, as it was or as it was to
// become, the files are those that are listed, and it goes on.
func wantOpened(t *testing.T, what, dir string, was, becomes pipeline.Position, done bool) {
	t.Helper()
	s, engine := byHand(t, dir, nil)
	defer closeStore(t, s)
	state, err := s.Stack(1).State()
	if err != nil || state.Applied != becomes && (done || state.Applied != was) {
		t.Fatalf("%s: the shard stands at %+v, %v; it was at %d and was to become %d", what, state, err, was, becomes)
	}
	wantCounted(t, s, 1, int64(state.Applied))
	if _, err := allListed(s, engine); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := addOne(s); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	wantCounted(t, s, 1, int64(state.Applied)+1)
}
