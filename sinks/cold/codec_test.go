package cold

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

func TestCellsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "columns")
		numbers, places := make([]uint64, n), rapid.Permutation(seq(n)).Draw(t, "places")
		for number, place := range places {
			numbers[place] = uint64(number)
		}
		cells := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()), n, n).Draw(t, "cells")
		b := appendCells(nil, numbers, cells)
		got := make([]int64, n)
		if err := decodeCells(b, places, got); err != nil || !slices.Equal(got, cells) {
			t.Fatalf("%v, %v; want %v", got, err, cells)
		}
		if zero := !slices.ContainsFunc(cells, func(v int64) bool { return v != 0 }); zero != (len(b) == 0) {
			t.Fatalf("row %v takes %d bytes; a row of zeros, and no other, is empty", cells, len(b))
		}
		if len(b) > 0 {
			err := decodeCells(b[:len(b)-1], places, make([]int64, n))
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("a row cut short gave %v", err)
			}
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := State{pipeline.Position(rapid.Uint64().Draw(t, "applied")), rapid.Uint64().Draw(t, "sequence"), rapid.Int64().Draw(t, "time")}
		b := want.encode()
		if got, err := decodeState(b); err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := decodeState(b[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a state cut short gave %v", err)
		}
	})
}

// "integers in keys are big-endian, so that keys sort as numbers do": by
// shard, kind, counter, id.
func TestKeysSort(t *testing.T) {
	type row struct {
		shard   pipeline.Shard
		counter uint8
		id      uint64
	}
	number := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 300))
	rows := rapid.Custom(func(t *rapid.T) row {
		return row{
			pipeline.Shard(rapid.Uint16().Draw(t, "shard") % 600),
			uint8(number.Draw(t, "counter")), number.Draw(t, "id"),
		}
	})
	compare := func(a, b row) int {
		for _, c := range [][2]uint64{{uint64(a.shard), uint64(b.shard)}, {uint64(a.counter), uint64(b.counter)}, {a.id, b.id}} {
			if c[0] != c[1] {
				if c[0] < c[1] {
					return -1
				}
				return 1
			}
		}
		return 0
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rows.Draw(t, "a"), rows.Draw(t, "b")
		ka, kb := rowKey(a.shard, a.counter, a.id), rowKey(b.shard, b.counter, b.id)
		if bytes.Compare(ka, kb) != compare(a, b) {
			t.Fatalf("%+v is %x, %+v is %x", a, ka, b, kb)
		}
		if counter, id, err := parseRowKey(ka); counter != a.counter || id != a.id || err != nil {
			t.Fatalf("%x is %d, %d, %v", ka, counter, id, err)
		}
		if !bytes.HasPrefix(ka, shardKey(a.shard, kindRow)) || bytes.HasPrefix(ka, shardKey(a.shard, kindState)) {
			t.Fatalf("%x is not among its shard's rows", ka)
		}
		if a.shard < b.shard && bytes.Compare(ka, shardKey(b.shard, kindState)) >= 0 {
			t.Fatalf("row %x is not before the state of shard %d", ka, b.shard)
		}
	})
	if _, _, err := parseRowKey(shardKey(1, kindRow)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a short key gave %v", err)
	}
}

func FuzzDecodeCells(f *testing.F) {
	f.Add(appendCells(nil, []uint64{2, 0, 1}, []int64{1, -1, math.MaxInt64}))
	f.Add([]byte{3, 2})
	f.Add(bytes.Repeat([]byte{0xff}, 12))
	f.Fuzz(func(t *testing.T, b []byte) {
		places, numbers := []int{1, 2, 0}, []uint64{2, 0, 1}
		cells := make([]int64, 3)
		if err := decodeCells(b, places, cells); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		again := make([]int64, 3)
		if err := decodeCells(appendCells(nil, numbers, cells), places, again); err != nil || !slices.Equal(again, cells) {
			t.Fatalf("%v, %v; want %v", again, err, cells)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(State{1 << 40, 1 << 20, 1700000000000}.encode())
	f.Add(bytes.Repeat([]byte{0xff}, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeState(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		if again, err := decodeState(s.encode()); err != nil || again != s {
			t.Fatalf("%+v, %v; want %+v", again, err, s)
		}
	})
}
