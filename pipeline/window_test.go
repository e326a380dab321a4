package pipeline

import (
	"bytes"
	"errors"
	"reflect"
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
		w.To = w.From + Position(rapid.Uint64Range(1, 1<<40).Draw(t, "length"))
		minute, at := int64(0), w.From
		for range rapid.IntRange(0, 3).Draw(t, "marks") {
			minute += rapid.Int64Range(1, 1<<30).Draw(t, "minute")
			at += Position(rapid.Uint64Range(1, 100).Draw(t, "at"))
			w.Marks = append(w.Marks, TimeMark{minute, at})
		}
		w.Columns = rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,8}\.[a-z]{1,8}`), 0, 4).Draw(t, "columns")
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
		if got.Header != w.Header || !reflect.DeepEqual(got.Marks, w.Marks) || len(got.Columns) != len(w.Columns) {
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

func FuzzDecodeWindow(f *testing.F) {
	f.Add(AppendWindow(nil, &Window{Header: Header{From: 1, To: 2}, Sections: [][]byte{AppendChange(nil, 1, 2, Add(3))}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum would stop nearly all: give it the right one too.
		decodeAll(b)
		if len(b) > 4 {
			if w, err := DecodeWindow(b); err == nil {
				again := AppendWindow(nil, w)
				if _, err := DecodeWindow(again); err != nil {
					t.Fatalf("re-encoded: %v", err)
				}
			}
		}
	})
}

func decodeAll(b []byte) {
	r := ReadSection(b, 0)
	for _, ok := r.Next(); ok; _, ok = r.Next() {
	}
	DecodeHeader(b)
	DecodeWindow(appendChecksum(bytes.Clone(b), 0))
}
