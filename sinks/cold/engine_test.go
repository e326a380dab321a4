package cold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/sim"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// engines all keep the contract of cold.Engine: what the simulation finds on
// its disk is true of Badger and files as far as these tests go. What they
// return opens one, and opens it again.
var engines = map[string]func(t *testing.T) (open func() cold.Engine){
	"badger": func(t *testing.T) func() cold.Engine {
		dir := t.TempDir()
		return func() cold.Engine {
			e, err := cold.OpenBadger(dir, cold.SmallOptions())
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	},
	"sim": func(*testing.T) func() cold.Engine {
		disk := new(sim.Disk)
		return func() cold.Engine { return sim.NewServer().NewClient(0, nil).Mount(context.Background(), disk) }
	},
}

func onEngines(t *testing.T, test func(t *testing.T, open func() cold.Engine)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// changes are "key=value", or "-key" for one that goes.
func changes(all ...string) (writes []cold.Write) {
	for _, c := range all {
		if key, gone := strings.CutPrefix(c, "-"); gone {
			writes = append(writes, cold.Write{Key: []byte(key)})
			continue
		}
		key, value, _ := strings.Cut(c, "=")
		writes = append(writes, cold.Write{Key: []byte(key), Value: []byte(value)})
	}
	return writes
}

func commit(t *testing.T, e cold.Engine, all ...string) {
	t.Helper()
	if err := e.Commit(changes(all...)); err != nil {
		t.Fatal(err)
	}
}

func held(t *testing.T, e cold.Engine, prefix string) (found []string) {
	t.Helper()
	err := e.Scan([]byte(prefix), func(key, value []byte) error {
		found = append(found, fmt.Sprintf("%s=%s", key, value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func seal(t *testing.T, e cold.Engine, name, holds string) {
	t.Helper()
	f, err := e.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, holds); err != nil {
		t.Fatal(err)
	}
	if err := f.Seal(); err != nil {
		t.Fatal(err)
	}
}

// "Scan visits the keys with a prefix, ascending, until visit fails: its error
// is returned as it is." "Get … nil when there is nothing."
func TestEngineKeys(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() cold.Engine) {
		e := open()
		commit(t, e, "ab=1", "a=2", "b=3")
		commit(t, e, "a=4", "-b", "c=", "-never")
		same(t, "all", held(t, e, ""), []string{"a=4", "ab=1", "c="})
		same(t, "of a", held(t, e, "a"), []string{"a=4", "ab=1"})
		enough := errors.New("enough")
		if err := e.Scan(nil, func(_, _ []byte) error { return enough }); err != enough {
			t.Error(err)
		}
		for key, want := range map[string]string{"a": "4", "c": ""} {
			if b, err := e.Get([]byte(key)); err != nil || b == nil || string(b) != want {
				t.Errorf("%s is %q, %v", key, b, err)
			}
		}
		if b, err := e.Get([]byte("b")); b != nil || err != nil {
			t.Error(b, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open()
		defer e.Close()
		same(t, "opened again", held(t, e, ""), []string{"a=4", "ab=1", "c="})
	})
}

// "Its name must be new." "After an error it is gone." "One that is open can
// be read until it is closed."
func TestEngineFiles(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() cold.Engine) {
		e := open()
		defer func() { e.Close() }()
		list := func() []string {
			names, err := e.Files()
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		same(t, "at first", list(), nil)
		seal(t, e, "b", "hello")
		seal(t, e, "a", "")
		f, err := e.Create("c")
		if err != nil {
			t.Fatal(err)
		}
		f.Write(bytes.Repeat([]byte("x"), 100_000))
		same(t, "one is being written", list(), []string{"a", "b", "c"})
		f.Abort()
		same(t, "given up", list(), []string{"a", "b"})
		if _, err := e.Create("a"); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		if _, err := e.Open("c"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open()
		same(t, "opened again", list(), []string{"a", "b"})
		b, err := e.Open("b")
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := e.Remove("b"); err != nil {
			t.Fatal(err)
		}
		same(t, "removed", list(), []string{"a"})
		got := make([]byte, 9)
		if n, err := b.ReadAt(got, 1); n != 4 || err != io.EOF || string(got[:n]) != "ello" || b.Size() != 5 {
			t.Errorf("%d bytes, %v: %q of %d", n, err, got[:n], b.Size())
		}
	})
}

// "After Close all of them return an error that wraps ErrClosed."
func TestEngineClosed(t *testing.T) {
	onEngines(t, func(t *testing.T, open func() cold.Engine) {
		e := open()
		seal(t, e, "a", "hello")
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		_, get := e.Get([]byte("a"))
		_, create := e.Create("b")
		_, look := e.Open("a")
		_, files := e.Files()
		for what, err := range map[string]error{
			"Get": get, "Create": create, "Open": look, "Files": files, "Remove": e.Remove("a"),
			"Scan":   e.Scan(nil, func(_, _ []byte) error { return nil }),
			"Commit": e.Commit(changes("a=1")),
		} {
			if !errors.Is(err, cold.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// "After a kill those that were not sealed too, whole, torn or not at all."
func TestSimFilesTorn(t *testing.T) {
	seen := map[int]bool{}
	for i := range 100 {
		disk := new(sim.Disk)
		ctx, kill := context.WithCancel(context.Background())
		e := sim.NewServer().NewClient(0, nil).Mount(ctx, disk)
		seal(t, e, "sealed", "hello")
		f, err := e.Create("open")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(f, "%06d", i)
		kill()
		if _, err := f.Write([]byte("more")); !errors.Is(err, cold.ErrClosed) {
			t.Fatal(err)
		}
		f.Abort()
		e = sim.NewServer().NewClient(0, nil).Mount(context.Background(), disk)
		if got, err := e.Open("sealed"); err != nil || got.Size() != 5 {
			t.Fatal(err)
		}
		got, err := e.Open("open")
		if err != nil {
			seen[-1] = true
			continue
		}
		seen[int(got.Size())] = true
	}
	for _, size := range []int{-1, 3, 6} {
		if !seen[size] {
			t.Errorf("never so: %d; only %v", size, seen)
		}
	}
}
