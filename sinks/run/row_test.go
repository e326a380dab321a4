package run

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

func apply(t fataler, cells []int64, row []byte) []int64 {
	t.Helper()
	cells = slices.Clone(cells)
	if err := ApplyRow(row, places, cells); err != nil {
		t.Fatalf("%x: %v", row, err)
	}
	return cells
}

func cells() *rapid.Generator[[]int64] {
	return rapid.SliceOfN(rapid.Int64Range(-pipeline.Limit, pipeline.Limit), len(columns), len(columns))
}

// A row is written and read as what it is.
func TestRowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := cells().Draw(t, "base")
		whole := slices.Clone(base)
		whole[rapid.IntRange(0, len(whole)-1).Draw(t, "zero")] = 0
		b := AppendWhole([]byte("head"), columns, whole)
		if got := apply(t, base, b[4:]); !slices.Equal(got, whole) || string(b[:4]) != "head" || !IsWhole(b[4:]) {
			t.Fatalf("%x: %v, want %v", b, got, whole)
		}
		change := rapid.SliceOfN(deltas(), len(columns), len(columns)).Draw(t, "change")
		b = AppendChange([]byte("head"), columns, change)
		want := slices.Clone(base)
		for i := range want {
			want[i] = change[i].Apply(want[i])
		}
		if got := apply(t, base, b[4:]); !slices.Equal(got, want) || IsWhole(b[4:]) {
			t.Fatalf("%x: %v, want %v", b, got, want)
		}
		// A column to pass over.
		passed := slices.Clone(places)
		passed[columns[2]] = -1
		want[2] = base[2]
		got := slices.Clone(base)
		if err := ApplyRow(b[4:], passed, got); err != nil || !slices.Equal(got, want) {
			t.Fatalf("passing over: %v, want %v (%v)", got, want, err)
		}
	})
}

// "Runs merge to the same bytes in any grouping of neighbours": bytes,
// even.
func TestMergeRowsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rows(), 1, 6).Draw(t, "oldest first")
		base := cells().Draw(t, "base")
		want := base
		for _, row := range list {
			want = apply(t, want, row)
		}
		var group func(list [][]byte) []byte
		group = func(list [][]byte) []byte {
			if len(list) == 1 {
				return list[0]
			}
			cut := rapid.IntRange(1, len(list)-1).Draw(t, "cut")
			b, err := MergeRows(nil, group(list[cut:]), group(list[:cut]))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		one, other := group(list), group(list)
		if got := apply(t, base, one); !slices.Equal(got, want) {
			t.Fatalf("%x: %v, want %v", one, got, want)
		}
		if !bytes.Equal(one, other) {
			t.Fatalf("%x grouped otherwise: %x", one, other)
		}
		// The last level.
		settled, zero, err := Settle([]byte("head"), one)
		end := apply(t, make([]int64, len(columns)), one)
		if err != nil || zero != !slices.ContainsFunc(end, func(v int64) bool { return v != 0 }) {
			t.Fatalf("settled %v: %v, %v", end, zero, err)
		}
		if !zero && !bytes.Equal(settled[4:], AppendWhole(nil, columns, end)) || zero && len(settled) != 4 {
			t.Fatalf("settled %v: %x", end, settled)
		}
	})
}

// Small rows are small.
func TestRowBytes(t *testing.T) {
	numbers := []int{0, 1, 2}
	if b := AppendWhole(nil, numbers, []int64{5, 0, 60}); len(b) != 3 {
		t.Errorf("a whole row: %x", b)
	}
	if b := AppendChange(nil, numbers, []pipeline.Delta{pipeline.Add(1), pipeline.Identity, pipeline.Identity}); len(b) != 2 {
		t.Errorf("a like: %x", b)
	}
	if b := AppendChange(nil, numbers, slices.Repeat([]pipeline.Delta{pipeline.Identity}, 3)); len(b) != 1 || says(b) {
		t.Errorf("nothing: %x", b)
	}
	limit := slices.Repeat([]pipeline.Delta{pipeline.Add(-pipeline.Limit).Then(pipeline.Take(1))}, 3)
	if b := AppendChange(nil, numbers, limit); len(b) > 1+3*deltaMax {
		t.Errorf("the largest change: %x", b)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		numbers []uint64
		bad     bool
	}{
		{kind: Follower},
		{kind: Follower, numbers: []uint64{1}, bad: true},
		{kind: Post, numbers: []uint64{1<<64 - 1}},
		{kind: Post, numbers: []uint64{0}, bad: true},
		{kind: Post, bad: true},
		{kind: Cursor, numbers: []uint64{1<<63 - 1}},
		{kind: Cursor, numbers: []uint64{1 << 63}, bad: true},
		{kind: Marks, numbers: []uint64{1, 0, 2, 3}},
		{kind: Marks, numbers: []uint64{1, 0, 2}, bad: true},
		{kind: Second, numbers: []uint64{1, 2}, bad: true},
	} {
		got, err := ReadNumbers(c.kind, AppendNumbers(nil, c.numbers...))
		if c.bad != errors.Is(err, ErrCorrupt) || err == nil && !slices.Equal(got[:len(c.numbers)], c.numbers) {
			t.Errorf("%v %d: %d, %v", c.kind, c.numbers, got, err)
		}
	}
}

func FuzzRow(f *testing.F) {
	f.Add([]byte{2 | 1<<2, 4}, []byte{0 | 1<<2, 2})
	f.Add(AppendChange(nil, []int{0}, []pipeline.Delta{pipeline.Take(5)}), []byte{1 | 1<<2, 1, 6})
	f.Fuzz(func(t *testing.T, newer, older []byte) {
		numbers := make([]int, 16)
		for i := range numbers {
			numbers[i] = i
		}
		read := func(row []byte) ([]int64, bool) {
			cells := make([]int64, len(numbers))
			err := ApplyRow(row, numbers, cells)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return cells, err == nil
		}
		want, ok := read(older)
		if _, newerOK := read(newer); !newerOK || !ok {
			checkRow(newer)
			checkRow(older)
			MergeRows(nil, newer, older)
			return
		}
		if checkRow(newer) != nil || checkRow(older) != nil {
			t.Fatalf("%x, %x: %v, %v", newer, older, checkRow(newer), checkRow(older))
		}
		if err := ApplyRow(newer, numbers, want); err != nil {
			t.Fatal(err)
		}
		merged, err := MergeRows(nil, newer, older)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := read(merged); !ok || !slices.Equal(got, want) {
			t.Fatalf("%x over %x: %x, %v, want %v", newer, older, merged, got, want)
		}
		// A row has one way to be written only, but for the lengths of numbers.
		again, err := MergeRows(nil, merged, []byte{formAdds})
		if err != nil || !bytes.Equal(again, merged) {
			t.Fatalf("%x again: %x, %v", merged, again, err)
		}
	})
}

// A like that is taken back between two checkpoints is a change of few bytes.
func TestBounds(t *testing.T) {
	d := pipeline.Add(1).Then(pipeline.Add(-1))
	if b := AppendChange(nil, []int{0}, []pipeline.Delta{d}); len(b) != 5 {
		t.Errorf("%+v: %x", d, b)
	}
	for _, v := range []int64{0, 1, -1, pipeline.Limit, -pipeline.Limit, pipeline.Limit - 1, pipeline.Limit / 2, pipeline.Limit/2 + 1, -pipeline.Limit / 2, -pipeline.Limit/2 - 1} {
		r := rowReader{body: appendBound(nil, v)}
		if got, err := r.bound(); got != v || err != nil || len(r.body) > 0 {
			t.Errorf("%d: %d, %v", v, got, err)
		}
	}
}
