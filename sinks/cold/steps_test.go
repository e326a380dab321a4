package cold

import (
	"errors"
	"fmt"
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

// steps are what changes a shard of so many checkpoints, each of which adds 1 to its rows, and
// how many it comes to.
var steps = map[string]struct {
	was, becomes pipeline.Position
	do           func(s *Store, from Source) error
}{
	"import into nothing":   {0, 3, importFrom},
	"import over another's": {7, 3, importFrom},
	"checkpoint":            {2, 3, func(s *Store, _ Source) error { return addOne(s) }},
	"merge":                 {RunsWanted + 1, RunsWanted + 1, func(s *Store, _ Source) error { _, err := s.MergeOnce(); return err }},
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

// "A kill leaves the shard as it was, or as imported, and files that nothing lists, which the
// next start removes": at every step of all that changes a shard, with the step not begun, or
// done by half, or done and nobody heard of it.
func TestKilledAtEveryStep(t *testing.T) {
	from, _ := byHand(t, t.TempDir(), nil)
	defer closeStore(t, from)
	for range 3 {
		if err := addOne(from); err != nil {
			t.Fatal(err)
		}
	}
	e := export(t, from, 1)
	defer e.close()
	for what, c := range steps {
		before := t.TempDir()
		s, _ := byHand(t, before, nil)
		for at := pipeline.Position(1); at <= c.was; at++ {
			if err := addOne(s); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		for _, torn := range []bool{false, true} {
			n := int64(0)
			for ; ; n++ {
				m := &mortal{torn: torn}
				m.left.Store(n)
				dir := copied(t, before, ".vlog", ".mem", "DISCARD")
				s, _ := byHand(t, dir, func(e Engine) Engine { m.Engine = e; return m })
				err := c.do(s, e)
				if err != nil && !errors.Is(err, errPower) {
					t.Fatalf("%s, killed at step %d: %v", what, n, err)
				}
				whole := m.left.Swap(-1) >= 0
				s.files.close() // it ends without another step
				if err := m.Engine.Close(); err != nil {
					t.Fatal(err)
				}
				wantAfterKill(t, fmt.Sprintf("%s, killed at step %d, torn %v", what, n, torn), dir, c.was, c.becomes, err == nil)
				if whole {
					break
				}
			}
			if n < 1 {
				t.Errorf("%s has no steps", what)
			}
		}
	}
}

// wantAfterKill opens what a kill left: the rows say where the shard stands, as it was or as it
// was to become, the files are those that are listed, and it goes on.
func wantAfterKill(t *testing.T, what, dir string, was, becomes pipeline.Position, done bool) {
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
