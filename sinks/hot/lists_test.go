package hot

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Lists against a map of slices.
func TestListsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, twin := NewLists(), map[uint64][]Pair{}
		ids := rapid.SliceOfN(rapid.Uint64Min(1), 1, 40).Draw(t, "ids")
		pairs := 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "id")
			list := twin[id]
			if len(list) == 0 || rapid.IntRange(0, 2).Draw(t, "do") > 0 {
				at, p := rapid.IntRange(0, len(list)).Draw(t, "at"), Pair{rapid.Uint64Min(1).Draw(t, "a"), rapid.Uint64().Draw(t, "b")}
				l.Insert(id, at, p)
				twin[id] = slices.Insert(list, at, p)
				pairs++
			} else {
				at := rapid.IntRange(0, len(list)-1).Draw(t, "at")
				n := rapid.IntRange(1, len(list)-at).Draw(t, "n")
				l.Remove(id, at, n)
				twin[id] = slices.Delete(list, at, at+n)
				pairs -= n
			}
		}
		for _, id := range ids {
			want := twin[id]
			if got := l.Get(id); !slices.Equal(got, want) {
				t.Fatalf("list of %d: %v, want %v", id, got, want)
			}
			last := uint64(0)
			if len(want) > 0 {
				last = want[len(want)-1].A
			}
			if got := l.Last(id); got != last {
				t.Fatalf("last of %d: %d, want %d", id, got, last)
			}
		}
		if l.Pairs() != pairs {
			t.Fatalf("%d pairs, want %d", l.Pairs(), pairs)
		}
	})
}

// Lists larger than a chunk, and many of them.
func TestListsLarge(t *testing.T) {
	l := NewLists()
	const long = 3*slabPairs + 5
	for i := range long {
		l.Insert(1, i, Pair{uint64(i + 1), 7})
		l.Insert(uint64(2+i%1000), 0, Pair{uint64(i), 9})
	}
	if got := l.Get(1); len(got) != long || got[long-1].A != long || l.Last(1) != long {
		t.Fatalf("%d pairs", len(got))
	}
	for i, p := range l.Get(1) {
		if p != (Pair{uint64(i + 1), 7}) {
			t.Fatalf("pair %d is %v", i, p)
		}
	}
	l.Remove(1, 0, long-1)
	if got := l.Get(1); len(got) != 1 || got[0].A != long {
		t.Fatalf("%v", got)
	}
}

// Edges against a map.
func TestEdgesTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, twin := NewEdges(), map[Pair]bool{}
		id := rapid.Uint64Range(1, 9)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			p := Pair{id.Draw(t, "a"), id.Draw(t, "b")}
			if rapid.Bool().Draw(t, "add") {
				if got := s.Add(p.A, p.B); got == twin[p] {
					t.Fatalf("Add(%v) says %v", p, got)
				}
				twin[p] = true
			} else {
				if got := s.Remove(p.A, p.B); got != twin[p] {
					t.Fatalf("Remove(%v) says %v", p, got)
				}
				delete(twin, p)
			}
		}
		for a := uint64(1); a < 10; a++ {
			for b := uint64(1); b < 10; b++ {
				if s.Has(a, b) != twin[Pair{a, b}] {
					t.Fatalf("Has(%d, %d) is %v", a, b, s.Has(a, b))
				}
			}
		}
		if s.Count() != len(twin) {
			t.Fatalf("%d edges, want %d", s.Count(), len(twin))
		}
	})
}
