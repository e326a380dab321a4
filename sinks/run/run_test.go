package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// entry is what a run is made of, for the twins: sorted slices and maps.
type entry struct {
	key   Key
	value []byte
	gone  bool
}

func byKey(a, b entry) int { return a.key.Compare(&b.key) }

// ids are small, huge and everything between.
func ids() *rapid.Generator[uint64] {
	return rapid.OneOf(
		rapid.SampledFrom([]uint64{1, 127, 128, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}),
		rapid.Uint64Range(1, 12),
		rapid.Uint64Min(1),
	)
}

func keys() *rapid.Generator[Key] {
	return rapid.Custom(func(t *rapid.T) Key {
		k := Key{Kind: Kind(rapid.IntRange(1, int(kinds)-1).Draw(t, "kind")), A: ids().Draw(t, "A")}
		if forms[k.Kind].counted {
			k.Counter = rapid.SampledFrom([]uint8{0, 1, 254, 255}).Draw(t, "counter")
		}
		if forms[k.Kind].pair {
			k.B = ids().Draw(t, "B")
			if k.Kind == Post {
				k.B = max(k.B&uint64(pipeline.PositionMax), 1)
			}
		}
		if forms[k.Kind].triple && rapid.Bool().Draw(t, "C is there") {
			k.C = ids().Draw(t, "C")
		}
		if forms[k.Kind].set && rapid.IntRange(0, 3).Draw(t, "mark") == 0 {
			k = k.Emptied()
		}
		if forms[k.Kind].named {
			k.Name = rapid.SampledFrom([]string{"", "a", "ab", "b", strings.Repeat("x", 64)}).Draw(t, "name")
		}
		return k
	})
}

// deltas are those of lists of additions, settings and takings.
func deltas() *rapid.Generator[pipeline.Delta] {
	return rapid.Custom(func(t *rapid.T) pipeline.Delta {
		d := pipeline.Identity
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			n := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(pipeline.Limit-2, pipeline.Limit), rapid.Int64Min(0)).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				d = d.Then(pipeline.Add(n))
			case 1:
				d = d.Then(pipeline.Add(-n))
			case 2:
				d = d.Then(pipeline.Set(n - 2))
			default:
				d = d.Then(pipeline.Take(n))
			}
		}
		return d
	})
}

// columns of the rows of tests: in no order, some beyond 256.
var columns = []int{3, 0, 300, 5, 4, 11, 12, 130}

// places is the way back.
var places = func() []int {
	p := slices.Repeat([]int{-1}, 301)
	for cell, number := range columns {
		p[number] = cell
	}
	return p
}()

func rows() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "whole") {
			cells := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Min(-pipeline.Limit)), len(columns), len(columns)).Draw(t, "cells")
			return AppendWhole(nil, columns, cells)
		}
		if rapid.Bool().Draw(t, "sums") {
			// What is common has a way of its own.
			n := rapid.OneOf(rapid.Int64Range(-1, 2), rapid.Int64Range(-1, 2), rapid.Int64Range(-pipeline.Limit, pipeline.Limit))
			sums := slices.Repeat([]pipeline.Delta{pipeline.Identity}, len(columns))
			for i := range sums[:rapid.IntRange(0, len(sums)).Draw(t, "columns")] {
				sums[i] = pipeline.Add(n.Draw(t, "n"))
			}
			return AppendChange(nil, columns, sums)
		}
		return AppendChange(nil, columns, rapid.SliceOfN(deltas(), len(columns), len(columns)).Draw(t, "deltas"))
	})
}

func entries(most int) *rapid.Generator[[]entry] {
	one := rapid.Custom(func(t *rapid.T) entry {
		e := entry{key: keys().Draw(t, "key")}
		switch {
		case e.key.Kind == Row:
			e.value = rows().Draw(t, "row")
		case e.key.IsMark() || rapid.IntRange(0, 4).Draw(t, "gone") == 0:
			e.gone = true
		default:
			for range forms[e.key.Kind].numbers {
				e.value = AppendNumbers(e.value, rapid.Uint64Range(1, math.MaxInt64).Draw(t, "number"))
			}
		}
		return e
	})
	return rapid.Custom(func(t *rapid.T) []entry {
		list := rapid.SliceOfN(one, 0, most).Draw(t, "entries")
		// A few owners with so much that blocks and parts are many.
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			kind := rapid.SampledFrom([]Kind{Follower, Member, Pair}).Draw(t, "long kind")
			for i := range uint64(20_000) {
				k := Key{Kind: kind, A: 5, B: 1 + i*i}
				if kind == Pair {
					k.B, k.C = 1+i/50, i*i
				}
				list = append(list, entry{key: k})
			}
		}
		slices.SortStableFunc(list, byKey)
		return slices.CompactFunc(list, func(a, b entry) bool { return a.key.Compare(&b.key) == 0 })
	})
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func write(t fataler, list []entry) ([]byte, Info) {
	t.Helper()
	var b bytes.Buffer
	// A writer that has written, and stopped in the middle, is as good as new.
	w := NewWriter(io.Discard)
	used := []Key{{Kind: Cursor, A: math.MaxUint64, Name: "z"}, {Kind: Second, A: 1}, {Kind: Second}}
	for i := range used {
		w.Add(&used[i], nil, false)
	}
	w.Reset(&b)
	for i := range list {
		if err := w.Add(&list[i].key, list[i].value, list[i].gone); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	info, err := w.Close()
	if err != nil || info.Bytes != int64(b.Len()) || info.Entries != len(list) {
		t.Fatalf("closed with %+v, %v after %d bytes, %d entries", info, err, b.Len(), len(list))
	}
	return b.Bytes(), info
}

func open(t fataler, list []entry) *Run {
	t.Helper()
	b, info := write(t, list)
	// Runs lie anywhere in files.
	r, err := Open(bytes.NewReader(append([]byte("before"), append(b, "after"...)...)), 6, info)
	if err != nil {
		t.Fatalf("opened: %v", err)
	}
	return r
}

func take(i *Iterator) entry {
	return entry{cloneKey(i.Key()), slices.Clone(i.Value()), i.Gone()}
}

func same(a, b entry) bool {
	return a.key == b.key && bytes.Equal(a.value, b.value) && a.gone == b.gone
}

// A run has what was written, by key, in order, and from any key on.
func TestRunTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := entries(60).Draw(t, "list")
		r := open(t, list)
		scratch := &Scratch{Ahead: rapid.SampledFrom([]int{0, 20_000, 1 << 18}).Draw(t, "ahead")}
		it := r.Iterator(scratch)
		for n, want := range list {
			if !it.Next() || !same(take(it), want) {
				t.Fatalf("entry %d: %v %x, want %v %x (%v)", n, it.Key(), it.Value(), &want.key, want.value, it.Err())
			}
		}
		for range 2 {
			if it.Next() || it.Err() != nil {
				t.Fatalf("there is more: %v, %v", it.Key(), it.Err())
			}
		}

		// Present and absent keys, up and down.
		wanted := rapid.SliceOfN(keys(), 0, 20).Draw(t, "wanted")
		for range min(len(list), 20) {
			wanted = append(wanted, list[rapid.IntRange(0, len(list)-1).Draw(t, "present")].key)
		}
		if rapid.Bool().Draw(t, "ascending") {
			slices.SortFunc(wanted, func(a, b Key) int { return a.Compare(&b) })
		}
		var other Scratch
		for _, k := range wanted {
			at, found := slices.BinarySearchFunc(list, entry{key: k}, byKey)
			value, gone, ok, err := r.Get(&k, &other)
			if err != nil || ok != found || ok && !same(entry{k, value, gone}, list[at]) {
				t.Fatalf("%v: %x, %v, %v, %v", &k, value, gone, ok, err)
			}
			if found && !r.May(&k) {
				t.Fatalf("%v may not be there, but is", &k)
			}
			if found && k.Kind != Row && !r.MayOwn(&k) {
				t.Fatalf("%v has no owner", &k)
			}
			if rapid.Bool().Draw(t, "forget") {
				other.Forget()
			}
			it.Seek(&k)
			for n := range rapid.IntRange(0, 3).Draw(t, "go on") {
				more := it.Next()
				if more != (at+n < len(list)) || more && !same(take(it), list[at+n]) {
					t.Fatalf("%d after %v: %v, %v", n, &k, it.Key(), it.Err())
				}
			}
		}
	})
}

func TestWriterRefuses(t *testing.T) {
	row := AppendWhole(nil, []int{0}, []int64{1})
	for what, list := range map[string][]entry{
		"bare":   {{key: Key{Kind: Follower, A: 1, B: 1}, value: []byte{1}}},
		"order":  {{key: Key{Kind: Follower, A: 2, B: 1}}, {key: Key{Kind: Follower, A: 1, B: 1}}},
		"twice":  {{key: Key{Kind: Cursor, A: 2, Name: "b"}}, {key: Key{Kind: Cursor, A: 2, Name: "b"}}},
		"kind":   {{key: Key{Kind: kinds, A: 1}}},
		"id 0":   {{key: Key{Kind: Row}, value: row}},
		"B":      {{key: Key{Kind: Row, A: 1, B: 1}, value: row}},
		"gone":   {{key: Key{Kind: Row, A: 1}, gone: true}},
		"empty":  {{key: Key{Kind: Row, A: 1}}},
		"name":   {{key: Key{Kind: Cursor, A: 1, Name: strings.Repeat("x", 65)}}},
		"value":  {{key: Key{Kind: Row, A: 1}, value: make([]byte, ValueBytesMax+1)}},
		"place":  {{key: Key{Kind: Post, A: 1, B: 1 << 63}}},
		"number": {{key: Key{Kind: Post, A: 1}}},
		"C":      {{key: Key{Kind: Member, A: 1, B: 1, C: 1}}},
		"member": {{key: Key{Kind: Pair, A: 1, C: 1}, gone: true}},
		"mark":   {{key: Key{Kind: Kept, A: 1}}},
		"set":    {{key: Key{Kind: Following, Counter: 1, A: 1, B: 1}}},
		"pairs":  {{key: Key{Kind: Pair, A: 1, B: 1, C: 2}}, {key: Key{Kind: Pair, A: 1, B: 1, C: 1}}},
	} {
		w := NewWriter(&bytes.Buffer{})
		var err error
		for i := range list {
			err = w.Add(&list[i].key, list[i].value, list[i].gone)
		}
		if err == nil {
			t.Errorf("%s: added", what)
		}
		if _, again := w.Close(); err != nil && !errors.Is(again, err) {
			t.Errorf("%s: closed after %v: %v", what, err, again)
		}
	}
}

// An owner with so much that it spans parts is in the filter of each of them.
func TestLongOwner(t *testing.T) {
	const posts = 60_000
	var list []entry
	for i := range uint64(posts) {
		list = append(list, entry{key: Key{Kind: Post, A: 7, B: (i + 1) << 10}, value: AppendNumbers(nil, i+1)})
	}
	list = append(list, entry{key: Key{Kind: Post, A: 9, B: 1}, value: []byte{1}})
	r := open(t, list)
	if len(r.index.parts) < 2 {
		t.Fatalf("%d parts", len(r.index.parts))
	}
	var s Scratch
	for i := range list {
		if _, _, found, err := r.Get(&list[i].key, &s); !found || err != nil {
			t.Fatalf("%v: %v", &list[i].key, err)
		}
	}
	may := func(kind Kind, owner uint64) bool { return r.MayOwn(&Key{Kind: kind, A: owner}) }
	if !may(Post, 7) || !may(Post, 9) || may(Post, 10) || may(Following, 7) {
		t.Fatal("owners")
	}
}

// Of keys that are not there, the filters let one in fifty pass at most.
func TestFilters(t *testing.T) {
	var list []entry
	row := AppendWhole(nil, []int{0, 1}, []int64{1, 2})
	for i := range uint64(50_000) {
		list = append(list, entry{key: Key{Kind: Row, A: (i + 1) * 128}, value: row})
	}
	for i := range uint64(50_000) {
		list = append(list, entry{key: Key{Kind: Following, A: 1 + i/10*128, B: 1 + i%10*64}, value: []byte{1}})
	}
	for i := range uint64(50_000) {
		list = append(list, entry{key: Key{Kind: Pair, Counter: 3, A: 1 + i/10*128, B: 1 + i%10*64, C: i}})
	}
	r := open(t, list)
	rows, edges, owners, members, sets := 0, 0, 0, 0, 0
	for i := range uint64(40_000) {
		if r.May(&Key{Kind: Row, A: i*128 + 64}) {
			rows++
		}
		if r.May(&Key{Kind: Following, A: 1 + i/10*128, B: 2 + i%10*64}) {
			edges++
		}
		if r.MayOwn(&Key{Kind: Following, A: 65 + i/10*128}) {
			owners++
		}
		if r.May(&Key{Kind: Pair, Counter: 3, A: 1 + i/10*128, B: 1 + i%10*64, C: i + 1}) {
			members++
		}
		if r.MayOwn(&Key{Kind: Pair, Counter: 3, A: 65 + i/10*128}) {
			sets++
		}
	}
	if rows > 800 || edges > 800 || owners > 800 || members > 800 || sets > 800 {
		t.Fatalf("of 40,000 absent ones pass %d rows, %d edges, %d owners, %d members, %d sets", rows, edges, owners, members, sets)
	}
	for i := range list {
		if k := &list[i].key; !r.May(k) || k.Kind != Row && !r.MayOwn(k) {
			t.Fatalf("%v does not pass", k)
		}
	}
}

// The bytes of a run are those that docs/formats.md draws; a change here is a
// change of format.
func TestRunGolden(t *testing.T) {
	b, info := write(t, []entry{
		{key: Key{Kind: Row, Counter: 2, A: 64}, value: AppendWhole(nil, []int{0, 1, 5}, []int64{1, 0, -1})},
		{key: Key{Kind: Row, Counter: 2, A: 192}, value: AppendChange(nil, []int{0, 1, 2}, []pipeline.Delta{pipeline.Add(3), pipeline.Set(0), pipeline.Take(2)})},
		{key: Key{Kind: Post, A: 7, B: 1024}, value: []byte{9}},
		{key: Key{Kind: Post, A: 7, B: 2048}, gone: true},
		{key: Key{Kind: Cursor, A: 7, Name: "go"}, value: []byte{8}},
		{key: Key{Kind: Member, Counter: 1, A: 64}, gone: true},
		{key: Key{Kind: Member, Counter: 1, A: 64, B: 9}},
		{key: Key{Kind: Pair, Counter: 3, A: 7, B: 40, C: 5}},
		{key: Key{Kind: Pair, Counter: 3, A: 7, B: 40, C: 9}, gone: true},
		{key: Key{Kind: Kept, Counter: 2, A: 64, B: 9, C: 5}, value: []byte{8}},
		{key: Key{Kind: Kept, Counter: 2, A: 64, B: 9, C: 6}, value: []byte{8}},
		{key: Key{Kind: Kept, Counter: 2, A: 64, B: 10}, value: []byte{8}},
	})
	want := strings.NewReplacer(" ", "").Replace(strings.Join([]string{
		"01 02 0200",           // rows of counter 2: two
		"40   08 8601 02 01",   // id 64, whole: column 0 is 1, 5 is -1
		"8001 12 1d 0006 0100", // id 64 + 128, a change: column 0 + 3, 1 = 0,
		"02 08 00 0a",          // 2 by a delta
		"04 0200",              // posts: two
		"07 8008 02 09",        // of author 7 at 1024: 9
		"00 8008 01",           // of the same, 1024 later: gone
		"06 0100",              // cursors: one
		"07 02676f 02 08",      // of user 7 in go: 8
		"09 01 0200",           // members of set 1: two
		"8102 00",              // the set of id 64 was emptied;
		"26",                   // 9 is in it
		"0a 03 0200",           // members of set 3, pairs: two
		"1c 28 05",             // (40, 5) is in that of id 7,
		"03 04",                // (40, 9) is not
		"0b 02 0300",           // members of set 2, which forgets: three
		"40 09 05 02 08",       // of id 64: (9, 5), since 8;
		"00 00 01 02 08",       // (9, 6);
		"00 01 00 02 08",       // (10, 0)
		"0467d995",             // checksum
		"01 01",                // index: one part, one block
		"53 01 02 40",          // of 83 bytes, from row 64 of counter 2 on
		"13 d6fe5708001560f0610961ac06fa81b0bf8e 06", // filter: 18 bytes, 6 probes
		"df067877", // checksum
	}, ""))
	if got := fmt.Sprintf("%x", b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if want := (Info{Entries: 12, Blocks: 1, Bytes: 113, IndexAt: 83, Checksum: 0x777806df}); info != want {
		t.Errorf("%+v, want %+v", info, want)
	}
}

// cloneKey is a key that shares nothing.
func cloneKey(key *Key) Key {
	c := *key
	c.Name = strings.Clone(key.Name)
	return c
}
