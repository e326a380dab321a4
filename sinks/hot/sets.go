package hot

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Sets holds facts about members of sets, each set an id's: that one is in it,
// or that it is not. A member that is not in here is not known.
//
//	row  member's words │ flags │ log second       (and of the id what the row's place does not tell)
//
// To empty a set does not go over its members: their rows have the era in which
// they were put, and those of an era before the set's own are of members that are
// gone. The eras of sets that were emptied are in a small map; when that is full,
// or an era's last number is reached, one pass over all rows looks for those that
// are out of date, has their members be not there, and all sets begin again with era 0.
//
// One goroutine writes, and keeps readers out by its owner's lock. Get may run
// side by side with itself.
type Sets struct {
	index   index
	form    SetsForm
	emptied map[uint64]epoch // sets of which rows may be out of date
}

// SetsForm says what is kept of each member.
type SetsForm struct {
	Wide    bool // members have two words, not one
	Emptied bool // sets may be emptied
	Kept    bool // with the log second in which the member came
}

// epoch is where a set stands that was emptied.
type epoch struct {
	era uint8
	put bool // something was put into it since
}

// The flags of a row: whether the member is there, and the era.
const (
	memberThere = 1
	memberEra   = 1 // the era's first bit
	eraBits     = 7
	eraMax      = 1<<eraBits - 1
	secondBits  = 40
	// emptiedMax is how many sets may be in the map.
	emptiedMax = 4096
)

// NewSets makes one that knows nothing.
func NewSets(form SetsForm) *Sets {
	words, bits := 2, 1
	if form.Wide {
		words = 3
	}
	if form.Emptied || form.Kept {
		bits += eraBits
	}
	if form.Kept {
		bits += secondBits
	}
	return &Sets{index: *newIndex(words, bits, 0), form: form}
}

// Known is the number of members known to be there or not.
func (m *Sets) Known() int { return m.index.rows() }

// Bytes is all memory taken.
func (m *Sets) Bytes() int { return m.index.bytes() + len(m.emptied)*emptiedBytes }

// emptiedBytes is what an entry of the map takes, about.
const emptiedBytes = 24

// flags is where in a row they are.
func (m *Sets) flags() int { return 8 * (m.index.words - 1) }

// key is a member's. A narrow one has no second word.
func key(id uint64, of pipeline.Member) keyWords { return keyWords{id, of.A, of.B} }

// era is that of a set.
func (m *Sets) era(id uint64) uint8 {
	if len(m.emptied) == 0 {
		return 0
	}
	return m.emptied[id].era
}

// Get is what is known of a member, and marks it as used. second is the log second
// in which it came, where that is kept.
func (m *Sets) Get(id uint64, of pipeline.Member) (second int64, there, known bool) {
	row, ok := m.index.use(key(id, of))
	if !ok {
		return 0, false, false
	}
	flags := row[m.flags()]
	if m.form.Emptied && flags>>memberEra != m.era(id) {
		return 0, false, true
	}
	if m.form.Kept {
		second = m.second(row)
	}
	return second, flags&memberThere != 0, true
}

func (m *Sets) second(row []byte) int64 {
	at := row[m.flags()+1 : m.flags()+1+8] // the row's capacity has 8 bytes more
	return int64(binary.LittleEndian.Uint64(at) & (1<<secondBits - 1))
}

// Put makes a member known. id and of.A are not 0.
func (m *Sets) Put(id uint64, of pipeline.Member, second int64, there bool) {
	k := key(id, of)
	row, ok := m.index.find(k)
	if !ok {
		row = m.index.insert(k)
	}
	at := m.flags()
	flags := byte(0)
	if there {
		flags = memberThere
	}
	switch {
	case m.form.Emptied || m.form.Kept:
		row[at] = flags | m.eraPut(id)<<memberEra
	default: // the other bits of the byte are not the owner's
		row[at] = row[at]&^memberThere | flags
	}
	if m.form.Kept {
		for i := range secondBits / 8 {
			row[at+1+i] = byte(second >> (8 * i))
		}
	}
}

// eraPut is a set's era for a row that is put into it.
func (m *Sets) eraPut(id uint64) uint8 {
	if len(m.emptied) == 0 {
		return 0
	}
	e, ok := m.emptied[id]
	if ok && !e.put {
		e.put = true
		m.emptied[id] = e
	}
	return e.era
}

// Forget makes a member unknown.
func (m *Sets) Forget(id uint64, of pipeline.Member) {
	m.index.remove(key(id, of))
}

// Empty makes all members of a set that are known here members that are not there.
// Of those that are not known nothing changes.
func (m *Sets) Empty(id uint64) {
	e, ok := m.emptied[id]
	if ok && !e.put {
		return
	}
	if !ok && len(m.emptied) >= emptiedMax || e.era == eraMax {
		m.clean()
		e = epoch{}
	}
	if m.emptied == nil {
		m.emptied = make(map[uint64]epoch)
	}
	m.emptied[id] = epoch{era: e.era + 1}
}

// clean has all sets begin again. What is out of date stays known, as not there: the
// owner may have seen that it is known, and rely on it.
func (m *Sets) clean() {
	at := m.flags()
	m.index.each(func(s *segment, slot int) {
		row := s.row(slot)
		if row[at]>>memberEra != m.era(m.index.id(s, slot)) {
			row[at] = 0
		}
		row[at] &= memberThere
	})
	m.emptied = nil
}

// Evict forgets members that were not used since the clock hand last passed, until it has
// forgotten so many or the hand went round twice. It returns how many. Before the first
// call, which may be for 0 members, use is not recorded.
func (m *Sets) Evict(members int) (evicted int) {
	return m.index.sweepFor(func(_ *segment, _ int, used bool) bool { return !used }, 2*m.index.slots+evictSlack, members)
}
