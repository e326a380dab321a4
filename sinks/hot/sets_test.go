package hot

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// fact is one that Sets holds.
type fact struct {
	second int64
	there  bool
}

// setsTwin is Sets beside maps: of each set its members.
type setsTwin struct {
	*Sets
	sets map[uint64]map[pipeline.Member]fact
}

// id and member are few enough to meet again, some of them all in one place.
func (m *setsTwin) draw(t *rapid.T) (id uint64, of pipeline.Member) {
	few := rapid.Uint64Range(1, 9)
	id = rapid.OneOf(few, ids()).Draw(t, "id")
	of.A = rapid.OneOf(few, ids(), rapid.Map(few, func(n uint64) uint64 {
		return unmix(0xabcd<<48+n) - pipeline.Mix(id) // as the index mixes
	})).Draw(t, "a")
	of.A = max(of.A, 1)
	if m.form.Wide {
		of.B = rapid.OneOf(rapid.Uint64Range(0, 3), ids()).Draw(t, "b")
	}
	return id, of
}

func (m *setsTwin) check(t *rapid.T, id uint64, of pipeline.Member) {
	want, has := m.sets[id][of]
	second, there, known := m.Get(id, of)
	if has && (!known || there != want.there || there && m.form.Kept && second != want.second) || !has && there {
		t.Fatalf("Get(%d, %v): %d, %v, %v; want %v, %v", id, of, second, there, known, want, has)
	}
}

func drawForm(t *rapid.T) SetsForm {
	return SetsForm{Wide: rapid.Bool().Draw(t, "wide"), Emptied: rapid.Bool().Draw(t, "emptied"), Kept: rapid.Bool().Draw(t, "kept")}
}

func (m *setsTwin) empty(id uint64) {
	m.Empty(id)
	for of := range m.sets[id] {
		m.sets[id][of] = fact{}
	}
}

// Sets against maps.
func TestSetsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &setsTwin{NewSets(drawForm(t)), map[uint64]map[pipeline.Member]fact{}}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "members") {
					id, of := m.draw(t)
					is := fact{rapid.Int64Range(0, 1<<secondBits-1).Draw(t, "second"), rapid.Bool().Draw(t, "there")}
					m.Put(id, of, is.second, is.there)
					if m.sets[id] == nil {
						m.sets[id] = map[pipeline.Member]fact{}
					}
					m.sets[id][of] = is
				}
			},
			"forget": func(t *rapid.T) {
				id, of := m.draw(t)
				m.Forget(id, of)
				delete(m.sets[id], of)
			},
			"empty": func(t *rapid.T) {
				if !m.form.Emptied {
					return
				}
				id, _ := m.draw(t)
				for range rapid.SampledFrom([]int{1, 1, 2, eraMax + 3}).Draw(t, "times") {
					m.empty(id)
					if rapid.Bool().Draw(t, "and put") {
						m.Put(id, pipeline.Member{A: 1}, 7, true)
						if m.sets[id] == nil {
							m.sets[id] = map[pipeline.Member]fact{}
						}
						m.sets[id][pipeline.Member{A: 1}] = fact{7, true}
					}
				}
			},
			"clean": func(*rapid.T) {
				if m.form.Emptied {
					m.clean()
				}
			},
			"get": func(t *rapid.T) {
				id, of := m.draw(t)
				m.check(t, id, of)
			},
			"evict": func(t *rapid.T) { m.evict(t) },
			"":      func(t *rapid.T) { checkIndex(t, &m.index) },
		})
		for id, set := range m.sets {
			for of := range set {
				m.check(t, id, of)
			}
		}
	})
}

// evict forgets some, none of which is to be kept.
func (m *setsTwin) evict(t *rapid.T) {
	members := rapid.IntRange(-1, 40).Draw(t, "members")
	known := m.Known()
	if evicted := m.Evict(members); evicted != known-m.Known() || evicted > max(members, 0) {
		t.Fatalf("%d evicted, of %d known %d are left", evicted, known, m.Known())
	}
	for id, set := range m.sets {
		for of := range set {
			if _, ok := m.index.find(key(id, of)); ok {
				continue
			}
			delete(set, of)
		}
	}
}

// Sets that are emptied cost no more than their members did: many sets, and one set
// many times.
func TestSetsAreEmptied(t *testing.T) {
	m := NewSets(SetsForm{Emptied: true})
	for id := uint64(1); id <= 3*emptiedMax; id++ {
		m.Put(id, pipeline.Member{A: 5}, 0, true)
		m.Empty(id)
	}
	for i := range uint64(3 * eraMax) {
		m.Put(7, pipeline.Member{A: 100 + i}, 0, true)
		m.Empty(7)
		m.Empty(7)
	}
	m.Put(7, pipeline.Member{A: 99}, 0, true)
	if len(m.emptied) > emptiedMax {
		t.Errorf("%d sets are in the map", len(m.emptied))
	}
	for id := uint64(1); id <= 3*emptiedMax; id++ {
		if _, there, _ := m.Get(id, pipeline.Member{A: 5}); there {
			t.Fatalf("the member of set %d is there", id)
		}
	}
	if _, there, known := m.Get(7, pipeline.Member{A: 99}); !there || !known {
		t.Error("the one that came last is not there")
	}
}

// What was read since the hand passed stays; and memory is given back.
func TestSetsEvictUnused(t *testing.T) {
	m := NewSets(SetsForm{})
	m.Evict(0) // from now on use is recorded
	const members = 100_000
	of := func(i uint64) (uint64, pipeline.Member) { return i%1000 + 1, pipeline.Member{A: i} }
	for i := uint64(1); i <= members; i++ {
		id, member := of(i)
		m.Put(id, member, 0, i%2 == 0)
	}
	full := m.Bytes()
	t.Logf("%.1f bytes a member", float64(full)/members)
	for i := uint64(10); i <= members; i += 10 {
		m.Get(of(i))
	}
	if got := m.Evict(members * 9 / 10); got != members*9/10 {
		t.Fatalf("%d evicted", got)
	}
	wrong := 0
	for i := uint64(1); i <= members; i++ {
		_, there, known := m.Get(of(i))
		if known != (i%10 == 0) {
			wrong++
		}
		if known && there != (i%2 == 0) {
			t.Fatalf("member %d: %v", i, there)
		}
	}
	if wrong > members/1000 { // A few pass under the hand twice.
		t.Errorf("%d members are not as their use was", wrong)
	}
	if m.Bytes() > full/5 {
		t.Errorf("%d bytes of %d after nine tenths are gone", m.Bytes(), full)
	}
	if got := m.Evict(math.MaxInt); got != members/10 || m.Known() != 0 {
		t.Errorf("%d evicted, %d known", got, m.Known())
	}
}
