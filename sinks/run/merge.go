package run

// Merger goes over the entries of several runs, each key once, merged.
type Merger struct{}

// NewMerger merges runs, the newest first; iterators stand where it begins (at
// the start, or where Seek put them). last says that nothing is older: changes
// become whole rows; rows of zeros, deletions, and what drop (it may be nil)
// says are left out.
func NewMerger(newest []*Iterator, last bool, drop func(key *Key, value []byte) bool) *Merger {
	panic("soon")
}

// Next comes to the next entry; false at the end, or after an error.
func (m *Merger) Next() bool { panic("soon") }

// Key is the entry's key, valid until Next; its Name may be kept.
func (m *Merger) Key() *Key { panic("soon") }

// Value is the entry's merged value, valid until Next.
func (m *Merger) Value() []byte { panic("soon") }

// Gone says that the entry is a deletion.
func (m *Merger) Gone() bool { panic("soon") }

// Err is what ended the merge early.
func (m *Merger) Err() error { panic("soon") }

// Failed is the index of the run that Err comes from.
func (m *Merger) Failed() int { panic("soon") }
