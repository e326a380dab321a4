package run

// Merger goes over the entries of several runs, each key once, merged: a newer
// entry replaces an older one, but for changes of rows, which are composed. Under
// the mark that a set was emptied nothing older is left.
type Merger struct {
	sources []source // the newest first
	live    []uint32 // sources by key, then age; those that have ended are not there
	used    int      // so many of the first ones have the key of the entry
	last    bool
	drop    func(key *Key, value []byte) bool

	emptied    Key    // the last mark
	emptiedAge uint32 // of the newest run that has it; no entry of an older one is left

	value   []byte
	gone    bool
	room    [2][]byte // of merged values, in turn
	settled []byte
	err     error
	failed  int
}

// source is one of the runs that are merged.
type source struct {
	*Iterator
	key *Key
}

// NewMerger merges runs, the newest first; iterators stand where it begins (at
// the start, or where Seek put them). last says that nothing is older: changes
// become whole rows; rows of zeros, deletions, and what drop (it may be nil)
// says are left out.
func NewMerger(newest []*Iterator, last bool, drop func(key *Key, value []byte) bool) *Merger {
	m := &Merger{last: last, drop: drop, used: len(newest)}
	for age, i := range newest {
		m.sources = append(m.sources, source{i, i.Key()})
		m.live = append(m.live, uint32(age))
	}
	return m
}

// Next comes to the next entry; false at the end, or after an error.
func (m *Merger) Next() bool {
	for m.err == nil && m.advance() {
		if m.merge() && m.stays() {
			return true
		}
	}
	return false
}

// advance moves what is used up to its next entry, each into its place among
// those after it, which are in order. The large run of a merge moves most, and
// mostly stays where it is.
func (m *Merger) advance() bool {
	for ; m.used > 0; m.used-- {
		at := m.used - 1
		age := m.live[at]
		s := &m.sources[age]
		if !s.Next() {
			if m.err = s.Err(); m.err != nil {
				m.failed = int(age)
				return false
			}
			m.live = append(m.live[:at], m.live[at+1:]...)
			continue
		}
		for ; at+1 < len(m.live) && m.before(m.live[at+1], age); at++ {
			m.live[at] = m.live[at+1]
		}
		m.live[at] = age
	}
	if len(m.live) == 0 {
		return false
	}
	first := m.at(0).key
	for m.used = 1; m.used < len(m.live) && m.at(m.used).key.equal(first); m.used++ {
	}
	return true
}

// at is the n-th source in order.
func (m *Merger) at(n int) *source { return &m.sources[m.live[n]] }

// before is the order of sources: by key, the newest first.
func (m *Merger) before(a, b uint32) bool {
	k, o := m.sources[a].key, m.sources[b].key
	if k.A != o.A && k.head() == o.head() {
		return k.A < o.A
	}
	c := k.Compare(o)
	return c < 0 || c == 0 && a < b
}

// merge has value and gone be those of the entries with the first key.
func (m *Merger) merge() bool {
	newest := m.at(0)
	m.value, m.gone = newest.Value(), newest.Gone()
	if newest.key.Kind != Row {
		return true
	}
	for n := 1; n < m.used && !IsWhole(m.value); n++ {
		merged, err := MergeRows(m.room[n&1][:0], m.value, m.at(n).Value())
		if err != nil {
			m.blame(err)
			return false
		}
		m.room[n&1], m.value = merged, merged
	}
	return true
}

// blame finds the run whose value is damaged.
func (m *Merger) blame(err error) {
	guilty := m.live[0]
	for n, age := range m.live[:m.used] {
		if wrong := checkRow(m.at(n).Value()); wrong != nil {
			guilty, err = age, wrong
			break
		}
	}
	m.err, m.failed = m.sources[guilty].Damage(err), int(guilty)
}

// outlived says of an entry of a set that the set was emptied after it.
func (m *Merger) outlived() bool {
	key, age := m.Key(), m.live[0]
	if key.IsMark() { // it comes before all others of the set
		m.emptied, m.emptiedAge = *key, age
		return false
	}
	return age > m.emptiedAge && key.A == m.emptied.A && key.head() == m.emptied.head()
}

// stays is false for an entry that need not be in the merged run.
func (m *Merger) stays() bool {
	if forms[m.Key().Kind].set && m.outlived() {
		return false
	}
	if !m.last {
		// A change that changes nothing; a whole row of zeros replaces.
		return m.Key().Kind != Row || says(m.value) || IsWhole(m.value)
	}
	if m.gone {
		return false
	}
	if m.Key().Kind == Row {
		if IsWhole(m.value) {
			return says(m.value) && !m.drops()
		}
		settled, zero, err := Settle(m.settled[:0], m.value)
		if err != nil {
			m.blame(err)
			return false
		}
		m.settled, m.value = settled, settled
		return !zero && !m.drops()
	}
	return !m.drops()
}

func (m *Merger) drops() bool { return m.drop != nil && m.drop(m.Key(), m.value) }

// Key is the entry's key, valid until Next; its Name may be kept.
func (m *Merger) Key() *Key { return m.at(0).key }

// Value is the entry's merged value, valid until Next.
func (m *Merger) Value() []byte { return m.value }

// Gone says that the entry is a deletion.
func (m *Merger) Gone() bool { return m.gone }

// Err is what ended the merge early, as the errors of Open.
func (m *Merger) Err() error { return m.err }

// Failed is the index, among the iterators, of the run that Err is about.
func (m *Merger) Failed() int { return m.failed }
