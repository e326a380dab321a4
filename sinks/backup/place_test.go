package backup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

// Every place keeps the promises of Place.
func TestPlaces(t *testing.T) {
	nc := natstest.Connect(t, natstest.Server(t))
	for name, to := range map[string]string{"directory": filepath.Join(t.TempDir(), "a", "b"), "bucket": "nats:BACK_ups-1"} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if _, err := OpenPlace(ctx, to, nc, false); err == nil {
				t.Fatal("it is not there, and was opened")
			}
			p, err := OpenPlace(ctx, to, nc, true)
			if err != nil || p.String() != to {
				t.Fatal(p, err)
			}
			list := func(prefix string, want int) {
				t.Helper()
				if got, err := p.List(ctx, prefix); err != nil || len(got) != want {
					t.Errorf("%s: %v %v, want %d", prefix, got, err, want)
				}
			}
			list("", 0)
			if _, err := p.Get(ctx, "objects/a"); !errors.Is(err, ErrMissing) {
				t.Errorf("what is not there: %v", err)
			}
			if err := p.Delete(ctx, "objects/a"); err != nil {
				t.Error(err)
			}
			large := bytes.Repeat([]byte("0123456789"), 100_000)
			for name, b := range map[string][]byte{"objects/a": large, "objects/b": {}, "backups/x.json": []byte("x")} {
				if err := p.Put(ctx, name, newBytesReader(b)); err != nil {
					t.Fatal(err)
				}
				if got, err := read(ctx, p, name, int64(len(b))); err != nil || !bytes.Equal(got, b) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
			}
			list("objects/", 2)
			list("", 3)
			if _, err := read(ctx, p, "objects/a", 10); !errors.Is(err, ErrCorrupt) {
				t.Errorf("larger than it may be: %v", err)
			}
			// A reader that fails stores nothing, and leaves what was there.
			broken := func() io.Reader { return io.MultiReader(strings.NewReader("half"), failing{}) }
			if err := p.Put(ctx, "objects/c", broken()); !errors.Is(err, errBroken) {
				t.Errorf("a reader that fails: %v", err)
			}
			list("objects/", 2)
			if err := p.Put(ctx, "objects/b", newBytesReader([]byte("again"))); err != nil {
				t.Fatal(err)
			}
			if got, err := read(ctx, p, "objects/b", 10); err != nil || string(got) != "again" {
				t.Errorf("%s %v", got, err)
			}
			if err := p.Delete(ctx, "objects/a"); err != nil {
				t.Error(err)
			}
			list("objects/", 1)
			unlock, err := p.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other, err := OpenPlace(ctx, to, nc, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Lock(t.Context()); !errors.Is(err, ErrInUse) {
				t.Errorf("locked twice: %v", err)
			}
			// With the lock, too.
			if err := p.Put(ctx, "backups/m.json", newBytesReader(bytes.Repeat([]byte("manifest"), 50_000))); err != nil {
				t.Fatal(err)
			}
			if got, err := read(ctx, other, "backups/m.json", 1<<20); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("manifest"), 50_000)) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			for range 2 {
				if err := p.Delete(ctx, "backups/m.json"); err != nil {
					t.Error(err)
				}
			}
			if _, err := read(ctx, other, "backups/m.json", 1<<20); !errors.Is(err, ErrMissing) {
				t.Errorf("it is deleted: %v", err)
			}
			unlock()
			if unlock, err = other.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			unlock()
		})
	}
	if _, err := OpenPlace(t.Context(), "nats:X", nil, true); err == nil {
		t.Error("an object store without a server")
	}
	if _, err := OpenPlace(t.Context(), "", nil, true); err == nil {
		t.Error("no place")
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

// What a process that was killed left unfinished the next one removes.
func TestLockSweeps(t *testing.T) {
	to := t.TempDir()
	p, err := OpenPlace(t.Context(), to, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"objects/a", "backups/b.json"} {
		if err := p.Put(t.Context(), name, strings.NewReader("whole")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"objects/a.new", "objects/c.new", "backups/d.json.new"} {
		if err := os.WriteFile(filepath.Join(to, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := p.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	left, err := filepath.Glob(filepath.Join(to, "*", "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%v %v", left, err)
	}
}
