package hot

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// listsTwin is Lists as plain maps and sorted slices: words, a ByA list, a
// ByBoth list.
type listsTwin struct {
	*Lists
	rows map[uint64]*listsRow
}

type listsRow struct {
	words []uint64
	lists [2][]Pair
}

func (r *listsRow) find(list int, a uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(r.lists[list], a, func(p Pair, a uint64) int { return cmp.Compare(p.A, a) })
}

func (r *listsRow) findB(b uint64) (a uint64, ok bool) {
	for _, p := range r.lists[1] {
		if p.B == b {
			return p.A, true
		}
	}
	return 0, false
}

func (l *listsTwin) ids() []uint64 {
	var ids []uint64
	for id := range l.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (l *listsTwin) make(id uint64) {
	if l.rows[id] == nil {
		l.rows[id] = &listsRow{words: make([]uint64, l.words)}
	}
	l.Make(id)
}

func (l *listsTwin) known(t *rapid.T) uint64 {
	if len(l.rows) == 0 { // rapid fails a run whose actions are all skipped, which is what a fuzzer finds first
		l.make(1)
	}
	return rapid.SampledFrom(l.ids()).Draw(t, "known")
}

func (l *listsTwin) set(id uint64, list int, p Pair) {
	row := l.rows[id]
	at, ok := row.find(list, p.A)
	switch _, listed := row.findB(p.B); {
	case list == 1 && (ok || listed):
		return
	case ok:
		row.lists[list][at] = p
	default:
		row.lists[list] = slices.Insert(row.lists[list], at, p)
	}
	l.Set(id, list, p)
}

func (l *listsTwin) delete(t *rapid.T, id uint64, list int, a uint64) {
	row := l.rows[id]
	at, ok := row.find(list, a)
	if ok {
		row.lists[list] = slices.Delete(row.lists[list], at, at+1)
	}
	if got := l.Delete(id, list, a); got != ok {
		t.Fatalf("Delete(%d, %d, %d) is %v", id, list, a, got)
	}
}

// pairs are n pairs with ascending A, no B twice.
func somePairs(seed uint64, n int) (list []Pair) {
	random := rand.New(rand.NewPCG(seed, 1))
	a, step := random.Uint64N(1000), 1+random.Uint64N(1<<random.Uint64N(40))
	for i := range n {
		a += 1 + random.Uint64N(step)
		list = append(list, Pair{a, uint64(i)<<random.Uint64N(20) ^ seed<<40})
	}
	slices.SortFunc(list, func(a, b Pair) int { return cmp.Compare(a.B, b.B) })
	list = slices.CompactFunc(list, func(a, b Pair) bool { return a.B == b.B })
	slices.SortFunc(list, func(a, b Pair) int { return cmp.Compare(a.A, b.A) })
	return list
}

// numbers are of all sizes, many of them equal.
func numbers() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64Range(0, 5000), rapid.Uint64())
}

func (l *listsTwin) taken(t *rapid.T, keep func(uint64) bool) (count int) {
	for id := range l.rows {
		if l.Has(id) {
			continue
		}
		if keep(id) {
			t.Fatalf("%d was to be kept", id)
		}
		count++
		delete(l.rows, id)
	}
	return count
}

func (l *listsTwin) evict(t *rapid.T) {
	size := rapid.OneOf(rapid.IntRange(-1, 300), rapid.IntRange(0, 500_000)).Draw(t, "bytes")
	keep := func(id uint64) bool { return id%3 == 0 }
	before := l.index.rows()*l.index.least + l.slab.live
	evicted := l.Evict(size, keep)
	if count := l.taken(t, keep); evicted != count {
		t.Fatalf("%d ids are gone, Evict says %d", count, evicted)
	}
	if before-l.index.rows()*l.index.least-l.slab.live >= size {
		return
	}
	for id := range l.rows { // The hand went round twice, so it passed each.
		if !keep(id) {
			t.Fatalf("less than %d bytes evicted, but %d stayed", size, id)
		}
	}
}

func (l *listsTwin) dropBelow(t *rapid.T) {
	limit := rapid.Uint64Range(0, 12).Draw(t, "limit")
	keep := func(id uint64) bool { return l.rows[id].words[0] > limit }
	want := 0
	for id := range l.rows {
		if !keep(id) {
			want++
		}
	}
	dropped := l.DropBelow(0, limit)
	if count := l.taken(t, keep); count != want || dropped != want {
		t.Fatalf("%d ids are gone, DropBelow says %d, want %d", count, dropped, want)
	}
}

// blobs are all blocks and spines of a list.
func (l *Lists) blobs(root place) (all []blob) {
	if root == 0 {
		return nil
	}
	all = append(all, root.blob())
	if root.isSpine() {
		s := l.spine(root)
		for i := range s.blocks() {
			all = append(all, s.block(i))
		}
		all = append(all, l.blobs(s.reverse())...)
	}
	return all
}

func (l *listsTwin) check(t *rapid.T) {
	checkIndex(t, &l.index)
	if l.Count() != len(l.rows) {
		t.Fatalf("%d ids, want %d", l.Count(), len(l.rows))
	}
	var ids []uint64
	l.Each(func(id uint64) { ids = append(ids, id) })
	if slices.Sort(ids); !slices.Equal(ids, l.ids()) {
		t.Fatalf("Each: %v, want %v", ids, l.ids())
	}
	if l.Free() < 0 || l.Free() > l.Bytes()-l.index.bytes() {
		t.Fatalf("%d bytes free of %d", l.Free(), l.Bytes())
	}
	var blobs []blob
	l.index.each(func(s *segment, at int) {
		row := s.row(at)
		for i := range l.kinds {
			blobs = append(blobs, l.blobs(place(rowWord(row, l.Lists.words+i)))...)
		}
	})
	blobs = slices.DeleteFunc(blobs, func(b blob) bool { return b == 0 })
	checkSlab(t, &l.slab, blobs)
}

func (l *listsTwin) checkRow(t *rapid.T, id, near uint64) {
	row, want := l.rows[id], l.rows[id] != nil
	if l.Has(id) != want {
		t.Fatalf("Has(%d) is %v", id, !want)
	}
	if !want {
		row = &listsRow{words: make([]uint64, l.words)}
	}
	for i := range l.words {
		if word, ok := l.Word(id, i); ok != want || word != row.words[i] {
			t.Fatalf("Word(%d, %d): %d, %v; want %v", id, i, word, ok, row)
		}
	}
	for list := range l.kinds {
		l.checkList(t, id, list, row, near)
	}
}

func (l *listsTwin) checkList(t *rapid.T, id uint64, list int, row *listsRow, near uint64) {
	want := row.lists[list]
	if got := l.Pairs(id, list, nil); !slices.Equal(got, want) {
		t.Fatalf("Pairs(%d, %d): %v, want %v", id, list, got, want)
	}
	if got := l.Len(id, list); got != len(want) {
		t.Fatalf("Len(%d, %d): %d, want %d", id, list, got, len(want))
	}
	if first, ok := l.First(id, list); ok != (len(want) > 0) || ok && first != want[0] {
		t.Fatalf("First(%d, %d): %v, %v, want %v", id, list, first, ok, want)
	}
	keys := []uint64{0, near, math.MaxUint64}
	for i := 0; i < len(want); i += 1 + len(want)/7 {
		keys = append(keys, want[i].A-1, want[i].A, want[i].A+1)
	}
	for _, key := range keys {
		at, listed := row.find(list, key)
		if b, ok := l.Find(id, list, key); ok != listed || ok && b != want[at].B || !ok && b != 0 {
			t.Fatalf("Find(%d, %d, %d): %d, %v", id, list, key, b, ok)
		}
		below, above := want[:at], want[at:]
		if listed {
			above = above[1:]
		}
		var got []Pair
		l.Ascend(id, list, key, func(p Pair) bool { got = append(got, p); return true })
		if !slices.Equal(got, above) {
			t.Fatalf("Ascend(%d, %d, %d): %v, want %v", id, list, key, got, above)
		}
		most := len(above)/2 + 1
		if n := l.CountAbove(id, list, key, most); n != min(len(above), most) {
			t.Fatalf("CountAbove(%d, %d, %d, %d): %d of %d", id, list, key, most, n, len(above))
		}
		if n := l.CountAbove(id, list, key, math.MaxInt); n != len(above) {
			t.Fatalf("CountAbove(%d, %d, %d): %d of %d", id, list, key, n, len(above))
		}
		got = got[:0]
		var buffer []Pair
		l.Descend(id, list, key, &buffer, func(p Pair) bool { got = append(got, p); return len(got) <= len(below)/2 })
		slices.Reverse(got)
		if want := below[len(below)-min(len(below), len(below)/2+1):]; !slices.Equal(got, want) {
			t.Fatalf("Descend(%d, %d, %d): %v, want %v", id, list, key, got, want)
		}
	}
	if list == 1 {
		for i := 0; i < len(want); i += 1 + len(want)/7 {
			if a, ok := l.FindB(id, 1, want[i].B); !ok || a != want[i].A {
				t.Fatalf("FindB(%d, %d): %d, %v, want %v", id, want[i].B, a, ok, want[i])
			}
		}
		a, ok := l.FindB(id, 1, near)
		if is, want := row.findB(near); ok != want || a != is {
			t.Fatalf("FindB(%d, %d): %d, %v", id, near, a, ok)
		}
	}
}

// Lists against maps (STYLE 21).
func TestListsTwin(t *testing.T) { rapid.Check(t, checkLists) }

func FuzzLists(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkLists)) }

func checkLists(t *rapid.T) {
	words := rapid.IntRange(1, 3).Draw(t, "words")
	l := &listsTwin{Lists: NewLists(words, ByA, ByBoth), rows: map[uint64]*listsRow{}}
	list := rapid.IntRange(0, 1)
	t.Repeat(map[string]func(*rapid.T){
		"make": func(t *rapid.T) { l.make(ids().Draw(t, "id")) },
		"set": func(t *rapid.T) {
			l.set(l.known(t), list.Draw(t, "list"), Pair{numbers().Draw(t, "a"), numbers().Draw(t, "b")})
		},
		"setMany": func(t *rapid.T) {
			id, list, step := l.known(t), list.Draw(t, "list"), rapid.IntRange(-3, 3).Draw(t, "step")
			pairs := somePairs(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 700).Draw(t, "n"))
			switch {
			case step < 0:
				slices.Reverse(pairs)
			case step == 0:
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
			}
			for _, p := range pairs {
				l.set(id, list, p)
			}
		},
		"delete": func(t *rapid.T) { l.delete(t, l.known(t), list.Draw(t, "list"), numbers().Draw(t, "a")) },
		"deleteMany": func(t *rapid.T) {
			id, list := l.known(t), list.Draw(t, "list")
			pairs := slices.Clone(l.rows[id].lists[list])
			from := rapid.IntRange(0, len(pairs)).Draw(t, "from")
			to, every := rapid.IntRange(from, len(pairs)).Draw(t, "to"), rapid.IntRange(1, 3).Draw(t, "every")
			for i := from; i < to; i += every {
				l.delete(t, id, list, pairs[i].A)
			}
		},
		"fill": func(t *rapid.T) {
			id, list := l.known(t), list.Draw(t, "list")
			pairs := somePairs(rapid.Uint64().Draw(t, "seed"), rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 2000)).Draw(t, "n"))
			l.rows[id].lists[list] = pairs
			l.Fill(id, list, pairs)
		},
		"setWord": func(t *rapid.T) {
			id, i := l.known(t), rapid.IntRange(0, words-1).Draw(t, "i")
			word := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64()).Draw(t, "word")
			l.SetWord(id, i, word)
			l.rows[id].words[i] = word
		},
		"drop": func(t *rapid.T) {
			id := ids().Draw(t, "id")
			l.Drop(id)
			delete(l.rows, id)
		},
		"dropKnown": func(t *rapid.T) {
			id := l.known(t)
			l.Drop(id)
			delete(l.rows, id)
		},
		"evict":     l.evict,
		"dropBelow": l.dropBelow,
		"raze": func(t *rapid.T) { // though it is not due
			if l.slab.condemn() {
				l.vacate()
			}
		},
		"look": func(t *rapid.T) {
			l.checkRow(t, rapid.OneOf(ids(), rapid.Just(l.known(t))).Draw(t, "id"), numbers().Draw(t, "near"))
		},
		"": l.check,
	})
	for id := range l.rows {
		l.checkRow(t, id, 5)
	}
}

// What was not used since the hand passed is evicted.
func TestListsEvictUnused(t *testing.T) {
	l := NewLists(1, ByA)
	l.Evict(0, nil) // from now on use is recorded
	for id := uint64(1); id <= 1000; id++ {
		l.Make(id)
		l.Set(id, 0, Pair{id, id})
	}
	for id := uint64(1); id <= 1000; id += 2 {
		switch id % 8 {
		case 1:
			l.Pairs(id, 0, nil)
		case 3:
			l.Find(id, 0, 1)
		default:
			l.Word(id, 0)
		}
		l.Has(id + 1) // does not count
	}
	if got := l.Evict(500*(24+8), func(uint64) bool { return false }); got != 500 {
		t.Fatalf("%d evicted", got)
	}
	wrong := 0
	l.Each(func(id uint64) { wrong += int(1 - id%2) })
	if wrong > 5 { // A few rows pass under the hand twice.
		t.Errorf("%d stayed, though they were not used", wrong)
	}
	if got := l.Evict(math.MaxInt, func(uint64) bool { return true }); got != 0 {
		t.Errorf("%d evicted that were to be kept", got)
	}
	if got := l.Evict(math.MaxInt, func(uint64) bool { return false }); got != 500 || l.Count() != 0 {
		t.Errorf("%d of 500 evicted, %d left", got, l.Count())
	}
}

// Bytes go down after evicting 90 %, and when lists change size for long, they
// stay within what slab says: 5/4 · 4/3 · strings and a chunk.
func TestListsGiveBack(t *testing.T) {
	skipRaced(t)
	l := NewLists(1, ByBoth)
	random := rand.New(rand.NewPCG(1, 2))
	const ids = 20_000
	for id := uint64(1); id <= ids; id++ {
		l.Make(id)
		l.Fill(id, 0, somePairs(id, 5+random.IntN(50)))
	}
	full := l.Bytes()
	if got := l.Evict(math.MaxInt, func(id uint64) bool { return id%10 == 0 }); got != ids*9/10 {
		t.Fatalf("%d evicted", got)
	}
	if l.Bytes() > full/5 {
		t.Errorf("%d bytes of %d after nine tenths are gone", l.Bytes(), full)
	}
	for round := range 8 { // Sizes wander: blocks of one size are never used again.
		strings := 0
		for id := uint64(10); id <= ids; id += 10 {
			l.Fill(id, 0, somePairs(id, 10*round+random.IntN(10)))
			row, _ := l.index.find1(id)
			for _, b := range l.blobs(place(rowWord(row, 1))) {
				strings += l.slab.length(b)
			}
		}
		if limit := strings*5/3 + chunkBytes + chunkBytes/4; l.slab.size() > limit {
			t.Fatalf("round %d: %d bytes for strings of %d, at most %d", round, l.slab.size(), strings, limit)
		}
	}
}

// Who follows very many people is held like anybody else, in little more than what the pairs
// take, and given back.
func TestListsLong(t *testing.T) {
	skipRaced(t)
	for _, shape := range []string{"ascending", "descending", "random"} {
		const n = uint64(200_000)
		l := NewLists(1, ByA)
		for id := uint64(2); id <= 5000; id++ {
			l.Make(id)
			l.Set(id, 0, Pair{id, id})
		}
		before := l.Bytes()
		l.Make(1)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			a := i + 1
			switch shape {
			case "descending":
				a = n - i
			case "random":
				a = 1 + random.Uint64N(1<<30)
			}
			l.Set(1, 0, Pair{a, 1 << 30})
		}
		if got := l.Len(1, 0); got != int(n) && shape != "random" || got < int(n)*99/100 {
			t.Fatalf("%s: %d pairs of %d", shape, got, n)
		}
		if took, most := l.Bytes()-before, 15*int(n); took > most {
			t.Errorf("%s: %d bytes for %d pairs, at most %d", shape, took, n, most)
		}
		list := l.Pairs(1, 0, nil)
		for i, p := range list {
			if i%2 == 0 {
				l.Delete(1, 0, p.A)
			}
		}
		if got := l.Len(1, 0); got != len(list)/2 {
			t.Fatalf("%s: %d pairs of %d left", shape, got, len(list)/2)
		}
		if evicted := l.Evict(math.MaxInt, func(id uint64) bool { return id != 1 }); evicted != 1 || l.Bytes() > before+2*chunkBytes {
			t.Fatalf("%s: %d evicted, %d bytes of %d", shape, evicted, l.Bytes(), before)
		}
	}
}

// Gather is Word 0 of every id, 0 when it is not there.
func TestGatherTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.IntRange(1, 20).Draw(t, "words")
		tables := make([]*Lists, rapid.SampledFrom([]int{1, 2, 3, 5, 8, 64}).Draw(t, "tables"))
		for i := range tables {
			tables[i] = NewLists(words, ByA)
		}
		table := func(id uint64) *Lists { return tables[pipeline.ShardOf(id, len(tables))] }
		put := func(id uint64) {
			table(id).Make(id)
			table(id).SetWord(id, 0, id^0xff)
		}
		for id := range uint64(rapid.IntRange(0, 5000).Draw(t, "rows")) {
			put(2*id + 1)
		}
		for _, id := range rapid.SliceOfN(ids(), 0, 200).Draw(t, "ids") {
			put(id)
		}
		var list []Pair
		for _, id := range rapid.SliceOfN(ids(), 0, 300).Draw(t, "asked") {
			list = append(list, Pair{A: id})
		}
		for id := range uint64(rapid.IntRange(0, 300).Draw(t, "more")) {
			list = append(list, Pair{A: 1 + id*7})
		}
		out := make([]uint64, len(list))
		Gather(tables, list, out)
		for i, p := range list {
			if want, _ := table(p.A).Word(p.A, 0); out[i] != want {
				t.Fatalf("%d: %d, want %d", p.A, out[i], want)
			}
		}
	})
}
