package run

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fold is the merging law over maps: what lists (the newest first) say.
func fold(t fataler, newest [][]entry, last bool, drop func(*Key, []byte) bool) []entry {
	t.Helper()
	all := map[Key]entry{}
	for _, list := range slices.Backward(newest) {
		for _, e := range list {
			if older, ok := all[e.key]; ok && e.key.Kind == Row {
				merged, err := MergeRows(nil, e.value, older.value)
				if err != nil {
					t.Fatalf("%v: %v", &e.key, err)
				}
				e.value = merged
			}
			if e.key.IsMark() { // first in its list
				maps.DeleteFunc(all, func(k Key, _ entry) bool { return k.Emptied() == e.key })
			}
			all[e.key] = e
		}
	}
	var list []entry
	for _, e := range all {
		if e.key.Kind == Row && last {
			settled, zero, err := Settle(nil, e.value)
			if err != nil {
				t.Fatalf("%v: %v", &e.key, err)
			}
			if zero {
				continue
			}
			e.value = settled
		}
		nothing := e.key.Kind == Row && bytes.Equal(e.value, []byte{formAdds})
		if nothing || last && (e.gone || drop(&e.key, e.value)) {
			continue
		}
		list = append(list, e)
	}
	slices.SortFunc(list, byKey)
	return list
}

func mergeRuns(t fataler, newest [][]entry, last bool, drop func(*Key, []byte) bool) []entry {
	t.Helper()
	var its []*Iterator
	for _, list := range newest {
		its = append(its, open(t, list).Iterator(&Scratch{Ahead: 64 << 10}))
	}
	m := NewMerger(its, last, drop)
	var list []entry
	for m.Next() {
		list = append(list, entry{cloneKey(m.Key()), slices.Clone(m.Value()), m.Gone()})
	}
	if m.Err() != nil || m.Next() {
		t.Fatalf("merging: %v", m.Err())
	}
	return list
}

// sets are entries of a few sets, so that marks find something.
func sets(most int) *rapid.Generator[[]entry] {
	one := rapid.Custom(func(t *rapid.T) entry {
		k := Key{Kind: rapid.SampledFrom([]Kind{Member, Pair, Kept}).Draw(t, "kind"), Counter: rapid.Uint8Range(0, 1).Draw(t, "set")}
		k.A, k.B = rapid.Uint64Range(1, 2).Draw(t, "A"), rapid.Uint64Range(0, 3).Draw(t, "B")
		if k.B > 0 && k.Kind != Member {
			k.C = rapid.Uint64Range(0, 1).Draw(t, "C")
		}
		e := entry{key: k, gone: k.IsMark() || rapid.IntRange(0, 3).Draw(t, "gone") == 0}
		if k.Kind == Kept && !e.gone {
			e.value = AppendNumbers(nil, rapid.Uint64Range(0, 9).Draw(t, "second"))
		}
		return e
	})
	return rapid.Custom(func(t *rapid.T) []entry {
		list := rapid.SliceOfN(one, 0, most).Draw(t, "entries")
		slices.SortStableFunc(list, byKey)
		return slices.CompactFunc(list, func(a, b entry) bool { return a.key == b.key })
	})
}

// Merging runs in any grouping of neighbours is what folding their entries is.
func TestMergerTwin(t *testing.T) {
	old := func(k *Key, _ []byte) bool { return k.Kind == Post && k.B < 200 }
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SampledFrom([]*rapid.Generator[[]entry]{entries(40), sets(20)}).Draw(t, "of what")
		newest := rapid.SliceOfN(lists, 0, 6).Draw(t, "newest first")
		last := rapid.Bool().Draw(t, "last")
		want := fold(t, newest, last, old)
		if got := mergeRuns(t, newest, last, old); !slices.EqualFunc(got, want, same) {
			t.Fatalf("at once: %v, want %v", got, want)
		}
		for len(newest) > 1 {
			at := rapid.IntRange(0, len(newest)-2).Draw(t, "from")
			to := rapid.IntRange(at+2, len(newest)).Draw(t, "to")
			merged := mergeRuns(t, newest[at:to], last && to == len(newest), old)
			newest = slices.Concat(newest[:at], [][]entry{merged}, newest[to:])
		}
		if len(newest) == 1 {
			if got := mergeRuns(t, newest, last, old); !slices.EqualFunc(got, want, same) {
				t.Fatalf("piece by piece: %v, want %v", got, want)
			}
		}
	})
}

// A merge says which run is damaged, and where.
func TestMergerBlames(t *testing.T) {
	good := AppendWhole(nil, []int{0}, []int64{1})
	change := []byte{formAdds | 1<<formBits, 2}
	runs := [][]entry{
		{{key: Key{Kind: Row, A: 5}, value: change}},
		{{key: Key{Kind: Row, A: 5}, value: []byte{3}}}, // of no form
		{{key: Key{Kind: Row, A: 4}, value: good}, {key: Key{Kind: Row, A: 5}, value: good}},
	}
	var its []*Iterator
	for _, list := range runs {
		its = append(its, open(t, list).Iterator(&Scratch{}))
	}
	m := NewMerger(its, true, nil)
	n := 0
	for ; m.Next(); n++ {
	}
	var damage *Damage
	if n != 1 || !errors.Is(m.Err(), ErrCorrupt) || !errors.As(m.Err(), &damage) || damage.Block != 0 || m.Failed() != 1 {
		t.Fatalf("after %d entries: %v in run %d", n, m.Err(), m.Failed())
	}
}
