package archive

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The segment that was read last is kept for a while, and only that one: where its
// file is not there any more, it can be read meanwhile.
func TestKeeping(t *testing.T) {
	m := odd(rand.New(rand.NewPCG(3, 4)), 100, 1)
	path := t.TempDir()
	add(t, path, m, m.messages[50].Sequence)
	add(t, path, m, m.end())
	d, err := OpenDirectory(path)
	if err != nil || len(d.Segments()) != 2 {
		t.Fatalf("%d segments, %v", len(d.Segments()), err)
	}
	from := func(i int) pipeline.Position { return pipeline.EndOf(m.messages[i].Sequence - 1) }
	some := func(d *Directory, i int) ([]pipeline.Message, error) {
		s, err := d.Source(from(i))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Next(t.Context())
	}
	synctest.Test(t, func(t *testing.T) {
		k := d.Keeping()
		reads := func(i, to int) {
			t.Helper()
			if run, err := some(k, i); err != nil || !slices.EqualFunc(run, m.messages[i:to], equal) {
				t.Errorf("from %d: %d messages, %v", i, len(run), err)
			}
		}
		if k.Bytes() != 0 {
			t.Errorf("%d bytes before anything is read", k.Bytes())
		}
		reads(40, 51)
		if bytes := k.Bytes(); bytes < 51*messageBytes || bytes > 51*(messageBytes+64<<10) || d.Bytes() != 0 {
			t.Errorf("a segment of 51 messages takes %d bytes", bytes)
		}
		for _, s := range d.Segments() {
			if err := os.Rename(filepath.Join(path, s.name(bodiesEnd)), filepath.Join(path, s.name(".away"))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := some(d, 40); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("one that keeps nothing reads it: %v", err)
		}
		for range 3 { // longer than it is kept after one reading
			reads(0, 51)
			reads(17, 51)
			time.Sleep(keptFor * 2 / 3)
		}
		time.Sleep(keptFor)
		if k.Bytes() != 0 {
			t.Errorf("%d bytes are kept for ever", k.Bytes())
		}
		if _, err := some(k, 0); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is kept for ever: %v", err)
		}
		back := func(i int) {
			s := d.Segments()[i]
			if err := os.Rename(filepath.Join(path, s.name(".away")), filepath.Join(path, s.name(bodiesEnd))); err != nil {
				t.Fatal(err)
			}
		}
		back(0)
		reads(5, 51)
		back(1)
		reads(60, 100)
		if err := os.Remove(filepath.Join(path, d.Segments()[0].name(bodiesEnd))); err != nil {
			t.Fatal(err)
		}
		if _, err := some(k, 5); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("two are kept: %v", err)
		}
		time.Sleep(keptFor)
	})
}

// Segments are read one at a time: who has given up by then reads none, and lets
// those after it have their turn.
func TestKeepingReadsNothingForWhoHasGivenUp(t *testing.T) {
	k := new(kept)
	read := k.reads(func(context.Context, *Segment) ([]pipeline.Message, error) {
		t.Error("a segment is read")
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	k.mu.Lock() // another segment is read
	done := make(chan error)
	go func() {
		_, err := read(ctx, &Segment{First: 1})
		done <- err
	}()
	cancel()
	k.mu.Unlock()
	if err := <-done; !errors.Is(err, context.Canceled) || k.first != 0 {
		t.Errorf("%v, %d", err, k.first)
	}
}
