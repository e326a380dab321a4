package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
)

// memory is EVENTS as a slice: the dumb twin.
type memory struct {
	pipeline.Events
	messages []pipeline.Message
	begins   uint64 // what was before is trimmed
}

func (m *memory) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	if from.Next() < m.begins {
		return nil, pipeline.ErrGap
	}
	at := slices.IndexFunc(m.messages, func(x pipeline.Message) bool { return x.Sequence >= from.Next() })
	if at < 0 {
		at = len(m.messages)
	}
	return &memorySource{m.messages[at:]}, nil
}

type memorySource struct{ left []pipeline.Message }

func (s *memorySource) Next(context.Context) ([]pipeline.Message, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	n := min(len(s.left), 1+len(s.left)/3)
	out := s.left[:n]
	s.left = s.left[n:]
	return out, nil
}

func (s *memorySource) Close() error { return nil }

// odd are messages of every shape, some sequences left out, from a sequence on.
func odd(r *rand.Rand, n int, first uint64) *memory {
	m := new(memory)
	for i, seq := 0, first; i < n; i++ {
		body := make([]byte, r.IntN(50))
		for j := range body {
			body[j] = byte(r.IntN(256))
		}
		x := pipeline.Message{Sequence: seq, Time: r.Int64N(1 << 42), Subject: "events.like", Data: [][]byte{nil, {'\n'}, body, []byte("{\"actor\":1}\n{\"actor\":2}")}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			x.Header = map[string][]string{"Nats-Msg-Id": {fmt.Sprint(i)}, "X": {"<&>", "ü"}}
		}
		m.messages = append(m.messages, x)
		if seq == math.MaxUint64>>10 {
			break
		}
		seq += 1 + uint64(r.IntN(2)*r.IntN(5))
	}
	return m
}

func drain(t *testing.T, s pipeline.Source) (out []pipeline.Message) {
	t.Helper()
	defer s.Close()
	for {
		messages, err := s.Next(t.Context())
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, messages...)
	}
}

func equal(a, b pipeline.Message) bool {
	return a.Sequence == b.Sequence && a.Time == b.Time && a.Subject == b.Subject && bytes.Equal(a.Data, b.Data) && fmt.Sprint(a.Header) == fmt.Sprint(b.Header)
}

var created = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func (m *memory) end() uint64 { return m.messages[len(m.messages)-1].Sequence }

func add(t *testing.T, path string, m *memory, last uint64) *Directory {
	t.Helper()
	d, err := OpenDirectory(path)
	if err == nil {
		err = d.Add(t.Context(), created, 1, last, func(from pipeline.Position) (pipeline.Source, error) { return m.Open(t.Context(), from) }, func(*Segment) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What is archived, in several goes, and what is left in EVENTS read like EVENTS.
func TestArchiveTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := odd(r, 1+r.IntN(300), 1)
		path := filepath.Join(t.TempDir(), "archive")
		last := uint64(0)
		for range 3 {
			last = all.messages[r.IntN(len(all.messages))].Sequence
			add(t, path, all, last)
		}
		d := add(t, path, all, 0)
		_, last, _ = d.Extent()
		trimmed := &memory{messages: all.messages[slices.IndexFunc(all.messages, func(m pipeline.Message) bool { return m.Sequence == last }):], begins: last}
		if r.IntN(2) == 0 {
			trimmed.messages, trimmed.begins = trimmed.messages[1:], last+1
		}
		joined := &Joined{Archive: d, Events: trimmed}
		for range 5 {
			from := pipeline.At(r.Uint64N(all.end()+1), r.IntN(pipeline.PackMax))
			want, err := all.Open(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			got, err := joined.Open(t.Context(), from)
			if err != nil {
				t.Fatalf("seed %d: from %d: %v", seed, from, err)
			}
			if g, w := drain(t, got), drain(t, want); !slices.EqualFunc(g, w, equal) {
				t.Fatalf("seed %d: from %d: %d messages, want %d", seed, from, len(g), len(w))
			}
		}
	}
}

// Large bodies, and very many small ones, make several segments; sequences at the
// end of what there is.
func TestSegmentsAreBounded(t *testing.T) {
	large := new(memory)
	for i := range 20 {
		large.messages = append(large.messages, pipeline.Message{Sequence: uint64(i + 1), Subject: "events.pack", Data: make([]byte, 1<<20)})
	}
	small := new(memory)
	for i := range segmentMessagesMax + 10 {
		small.messages = append(small.messages, pipeline.Message{Sequence: uint64(i + 1), Subject: "events.like"})
	}
	headers := new(memory) // which make a large index
	for i := range 40 {
		headers.messages = append(headers.messages, pipeline.Message{
			Sequence: uint64(i + 1), Subject: "events.like", Header: map[string][]string{"X": {strings.Repeat("<", 1<<20)}},
		})
	}
	for name, c := range map[string]struct {
		*memory
		segments int
	}{"large": {large, 2}, "small": {small, 2}, "headers": {headers, 0}, "one": {&memory{messages: large.messages[:1]}, 1}} {
		d := add(t, t.TempDir(), c.memory, c.end())
		if n := len(d.Segments()); c.segments > 0 && n != c.segments {
			t.Errorf("%s: %d segments", name, n)
		}
		for _, s := range d.Segments() {
			if s.Index.Decoded > segmentBytesMax+2<<20 {
				t.Errorf("%s: messages %d to %d have an index of %d bytes", name, s.First, s.Last, s.Index.Decoded)
			}
		}
		source, err := d.Source(0)
		if err != nil {
			t.Fatal(err)
		}
		if got := drain(t, source); !slices.EqualFunc(got, c.messages, equal) {
			t.Errorf("%s: %d messages of %d", name, len(got), len(c.messages))
		}
	}
}

// "A backup or an archive with a changed byte, with a missing or
// doubled file, or of another cluster or format is found and named."
func TestArchiveDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := odd(r, 300, 1)
	path := t.TempDir()
	add(t, path, all, all.messages[100].Sequence)
	add(t, path, all, all.messages[200].Sequence)
	d := add(t, path, all, all.end())
	if len(d.Segments()) != 3 {
		t.Fatal(len(d.Segments()))
	}
	whole := func() error {
		d, err := OpenDirectory(path)
		if err == nil {
			err = d.Verify(t.Context(), func(*Segment) {})
		}
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil || whole() != nil {
		t.Fatal(err, whole())
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		file := filepath.Join(path, e.Name())
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		harmed := [][]byte{nil, was[:len(was)-1], append(slices.Clone(was), '\n')}
		for _, at := range []int{0, len(was) / 3, len(was) - 1, r.IntN(len(was))} {
			turned := slices.Clone(was)
			turned[at] ^= byte(1 << r.IntN(8))
			harmed = append(harmed, turned)
		}
		for i, bytes := range harmed {
			if err := os.WriteFile(file, bytes, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := whole(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("harm %d of %s, %d bytes: %v", i, e.Name(), len(bytes), err)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := whole(); err == nil && !strings.HasSuffix(e.Name(), "301.json") && !isLast(d, e.Name()) {
			t.Errorf("%s is gone, and nothing is said", e.Name())
		}
		if err := os.WriteFile(file, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A doubled segment, under another name, and a foreign one.
	second := d.Segments()[1]
	b, err := os.ReadFile(filepath.Join(path, second.name(sealedEnd)))
	if err != nil {
		t.Fatal(err)
	}
	double := filepath.Join(path, "events-00000000000000000999.json")
	if err := os.WriteFile(double, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := whole(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "999.json") {
		t.Errorf("doubled: %v", err)
	}
	os.Remove(double)
	foreign := slices.Clone(d.Segments())
	foreign[1].Events = created.Add(1)
	if err := Chain(foreign); err == nil {
		t.Error("a segment of another EVENTS")
	}
	foreign[1].Format = 7
	if err := Chain(foreign); err == nil || !strings.Contains(err.Error(), "version 7") {
		t.Errorf("another format: %v", err)
	}
	if err := Chain([]Segment{d.Segments()[0], d.Segments()[0]}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("twice: %v", err)
	}
	if err := whole(); err != nil {
		t.Error(err)
	}
}

// isLast: the end of an archive that is gone was never there.
func isLast(d *Directory, name string) bool {
	s := d.Segments()[len(d.Segments())-1]
	return name == s.name(sealedEnd)
}

// A process that is killed leaves files that say nothing, which the next one
// replaces; two at once are refused; another EVENTS, and a gap, are.
func TestAddAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	all := odd(r, 100, 1)
	path := t.TempDir()
	add(t, path, all, all.messages[40].Sequence)
	d := add(t, path, all, all.end())
	last := d.Segments()[1]
	if err := os.Remove(filepath.Join(path, last.name(sealedEnd))); err != nil { // written last
		t.Fatal(err)
	}
	for _, name := range []string{last.name(bodiesEnd), last.name(indexEnd) + kit.NewEnd} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d = add(t, path, all, all.end())
	if err := d.Verify(t.Context(), func(*Segment) {}); err != nil || len(d.Segments()) != 2 {
		t.Fatal(err)
	}
	never := func(pipeline.Position) (pipeline.Source, error) { t.Error("read"); return nil, io.EOF }
	if err := d.Add(t.Context(), created.Add(time.Second), 1, all.end()+5, never, nil); err == nil {
		t.Error("another EVENTS was taken")
	}
	if err := d.Add(t.Context(), created, all.end()+2, all.end()+5, never, nil); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("a gap: %v", err)
	}
	lock := flock.New(filepath.Join(path, lockName))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := d.Add(t.Context(), created, 1, all.end()+5, never, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("two at once: %v", err)
	}
}

// Unseal refuses whatever Seal did not make.
func FuzzUnseal(f *testing.F) {
	b, err := Seal(Segment{Format: 1, First: 1, Last: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(nil))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Segment
		if err := Unseal(b, &s); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		_ = s.Check()
	})
}

// A segment that nobody could read is not written.
func TestUnreadableIsNotPut(t *testing.T) {
	b := new(builder)
	if err := b.begin(1, created, 1); err != nil {
		t.Fatal(err)
	}
	b.index.bytes = decodedBytesMax + 1
	err := b.flush(1, func(Segment, []byte, []byte) error {
		t.Error("it was written")
		return nil
	})
	if !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}
