package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func windows() *rapid.Generator[*Window] {
	return rapid.Custom(func(t *rapid.T) *Window {
		w := &Window{Header: Header{
			From:   Position(rapid.Uint64Range(0, 1<<60).Draw(t, "from")),
			Rules:  rapid.Uint64().Draw(t, "rules"),
			Events: rapid.Uint64Range(0, 1<<20).Draw(t, "events"),
			Time:   rapid.Int64Range(0, 1<<50).Draw(t, "time"),
		}}
		w.To = w.From + Position(rapid.Uint64Range(300, 1<<40).Draw(t, "length"))
		minute, at := int64(0), w.From
		for range rapid.IntRange(0, 3).Draw(t, "marks") {
			minute += rapid.Int64Range(1, 1<<30).Draw(t, "minute")
			at += Position(rapid.Uint64Range(1, 100).Draw(t, "at"))
			w.Marks = append(w.Marks, TimeMark{minute, at})
		}
		w.Columns = rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,8}\.[a-z]{1,8}`), 0, 4).Draw(t, "columns")
		if rapid.Bool().Draw(t, "authors are said") {
			w.Authors = rapid.SliceOfN(rapid.Uint64(), 0, 4).Draw(t, "authors")
		}
		w.Sections = rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 1, 5).Draw(t, "sections")
		return w
	})
}

func TestWindowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := windows().Draw(t, "window")
		b := AppendWindow(nil, w)
		got, err := DecodeWindow(b)
		if err != nil {
			t.Fatal(err)
		}
		if got.Header != w.Header || !reflect.DeepEqual(got.Marks, w.Marks) || len(got.Columns) != len(w.Columns) ||
			(got.Authors == nil) != (w.Authors == nil) || !slices.Equal(got.Authors, w.Authors) {
			t.Fatalf("got %+v, want %+v", got, w)
		}
		for i := range w.Sections {
			if !bytes.Equal(got.Sections[i], w.Sections[i]) {
				t.Fatalf("section %d: %x, want %x", i, got.Sections[i], w.Sections[i])
			}
		}
		if h, err := DecodeHeader(b); err != nil || h != w.Header {
			t.Fatalf("header %+v, %v", h, err)
		}
		// One flipped bit anywhere is noticed.
		bit := rapid.IntRange(0, len(b)*8-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeWindow(b); !errors.Is(err, ErrWindow) {
			t.Fatalf("a flipped bit gave %v", err)
		}
	})
}

// A node of an earlier version says what it met; it must not take the window for one
// that no router wrote.
func TestWindowOfALaterVersion(t *testing.T) {
	w := &Window{Header: Header{From: 1, To: 9}, Columns: []string{"post.like"}, Sections: [][]byte{{1}, nil}, Version: FormatWindows.Newest + 1}
	b := AppendWindow(nil, w)
	want := fmt.Sprintf("version %d, and this program reads versions %d to %d", w.Version, FormatWindows.Oldest, FormatWindows.Newest)
	if _, err := DecodeWindow(b); !errors.Is(err, ErrWindowVersion) || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q: %v", want, err)
	}
	if _, err := DecodeHeader(b); !errors.Is(err, ErrWindowVersion) {
		t.Errorf("the header: %v", err)
	}
}

func TestSectionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Change
		var b []byte
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			c := Change{
				Column: rapid.IntRange(0, 1000).Draw(t, "column"),
				ID:     rapid.Uint64().Draw(t, "id"),
				Delta:  group(t, rapid.SliceOfN(steps(), 1, 4).Draw(t, "steps")),
			}
			want = append(want, c)
			b = AppendChange(b, c.Column, c.ID, c.Delta)
		}
		r := ReadSection(b, 0)
		for i, w := range want {
			if got, ok := r.Next(); !ok || got != w {
				t.Fatalf("change %d: %+v, %v; want %+v", i, got, ok, w)
			}
		}
		if _, ok := r.Next(); ok || r.Err() != nil {
			t.Fatalf("more than was written, or %v", r.Err())
		}
	})
}

// Whatever a message of DELTAS holds: a window whose header, marks and columns
// can be used, and which is the same when it is written again, or ErrWindow.
func FuzzDecodeWindow(f *testing.F) {
	seed := func(w *Window) { f.Add(AppendWindow(nil, w)) }
	seed(&Window{Header: Header{From: 1, To: 2}, Sections: [][]byte{AppendChange(nil, 1, 2, Add(3))}})
	seed(&Window{
		Header:   Header{From: 1024, To: 4095, Rules: 1 << 63, Events: 7, Time: 1_700_000_000_123},
		Marks:    []TimeMark{{0, 1025}, {1_700_000_000, 2048}},
		Columns:  []string{"post.like", ""},
		Authors:  []uint64{1, 1 << 63},
		Sections: [][]byte{nil, {1}, []byte("three")},
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := DecodeWindow(b); err != nil && !errors.Is(err, ErrWindow) {
			t.Fatal(err)
		}
		// The checksum would stop nearly all: give it the right one.
		body := b[:max(len(b)-4, 0)]
		w, err := DecodeWindow(appendChecksum(bytes.Clone(body), 0))
		if err != nil {
			if !errors.Is(err, ErrWindow) {
				t.Fatal(err)
			}
			return
		}
		if h, err := DecodeHeader(b); err != nil || h != w.Header || h.To <= h.From {
			t.Fatalf("header %+v, %v; want %+v", h, err, w.Header)
		}
		last := TimeMark{-1 << 63, w.From}
		for _, m := range w.Marks {
			if m.Second <= last.Second || m.Position <= last.Position || m.Position > w.To {
				t.Fatalf("marks %v of (%d, %d]", w.Marks, w.From, w.To)
			}
			last = m
		}
		encoded := AppendWindow(nil, w)
		if again, err := DecodeWindow(encoded); err != nil || len(encoded) > len(body)+4 || !reflect.DeepEqual(again, w) {
			t.Fatalf("%+v, %v, %d of %d bytes; want %+v", again, err, len(encoded), len(body)+4, w)
		}
	})
}

// Whatever a section holds: changes and operations that are the same when they
// are written again, and in no more bytes, or ErrWindow behind some of them.
func FuzzSection(f *testing.F) {
	const from = Position(5000)
	section := AppendChange(nil, 0, 1, Add(-3))
	section = AppendChange(section, 1, 1<<63, Set(0))
	section = AppendChange(section, 300, 2, Take(4))
	for _, o := range []Operation{
		{Op: OpFollow, ID: 1, Other: 2, Position: 5001},
		{Op: OpFollowed, ID: 2, Other: 1},
		{Op: OpUnfollow, ID: 1, Other: 2},
		{Op: OpUnfollowed, ID: 2, Other: 1},
		{Op: OpPost, ID: 1, Other: 100, Position: 5002},
		{Op: OpUnpost, ID: 1, Other: 100},
		{Op: OpRead, ID: 7, Position: 5003, Mark: 4000, Looked: LookedAll | LookedFeed, Channels: []string{"system", "a"}},
		{Op: OpNotice, ID: 9, Position: 5004, Channels: []string{"system"}},
		{Op: OpWithdraw, ID: 9, Channels: []string{"system"}},
		{Op: OpAdd, ID: 50, Column: 2, Member: Member{A: 7}, By: 1, Position: 5005},
		{Op: OpAdd, ID: 50, Column: 300, Member: Member{A: 7, B: 9}, By: -Limit, Position: 5005},
		{Op: OpTake, ID: 50, Column: 2, Member: Member{1 << 63, 1 << 63}, By: 0, Position: 5006},
		{Op: OpEmpty, ID: 50, Column: 2},
	} {
		f.Add(AppendOperation(nil, from, &o))
		section = AppendOperation(section, from, &o)
	}
	f.Add(section)
	f.Add([]byte{byte(OpAdd)<<2 | formOp, 50, 2<<2 | hasB | hasBy, 7, 0, 2, 1}) // written shorter: there is no B, and By is 1
	f.Add([]byte{byte(OpEmpty)<<2 | formOp, 50, 2<<2 | hasB})
	f.Add(AppendChange(nil, 1, 1, Delta{1 << 62, -Limit, Limit})) // no change has this shape
	f.Fuzz(func(t *testing.T, b []byte) {
		r := ReadSection(b, from)
		var changes []Change
		var operations []Operation
		var again []byte
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			changes = append(changes, c)
			if c.Op == OpCell {
				again = AppendChange(again, c.Column, c.ID, c.Delta)
				continue
			}
			o := r.Operation
			o.Channels = slices.Clone(o.Channels)
			operations = append(operations, o)
			again = AppendOperation(again, from, &o)
		}
		if err := r.Err(); err != nil && !errors.Is(err, ErrWindow) {
			t.Fatal(err)
		}
		if len(again) > len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(again))
		}
		r = ReadSection(again, from)
		for _, want := range changes {
			got, ok := r.Next()
			if !ok || got != want {
				t.Fatalf("%+v, %v; want %+v", got, r.Err(), want)
			}
			if got.Op != OpCell {
				got, want := r.Operation, operations[0]
				if !slices.Equal(got.Channels, want.Channels) {
					t.Fatalf("channels %q, want %q", got.Channels, want.Channels)
				}
				got.Channels, want.Channels = nil, nil
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%+v, want %+v", got, want)
				}
				operations = operations[1:]
			}
		}
		if _, ok := r.Next(); ok || r.Err() != nil {
			t.Fatalf("more than was written, or %v", r.Err())
		}
	})
}
