package check

import "sync/atomic"

// ExplainStats are figures since the start, for any goroutine.
type ExplainStats struct {
	Searches atomic.Uint64 // explanations
	Messages atomic.Uint64 // read for them

	// Parts of the log that explanations came to: by what was done with them.
	PassedOver atomic.Uint64 // the filter did not have what was looked for
	Read       atomic.Uint64 // the filter had it, and it was there
	Vain       atomic.Uint64 // the filter had it, and it was not
	Unfiltered atomic.Uint64 // there was no filter

	Made    atomic.Uint64 // filters
	Damaged atomic.Uint64 // filters that were not as they were written

	Base  atomic.Uint64 // position up to which messages had been removed at the last look; 0: it was whole
	Below atomic.Uint64 // pages that came down to it
}

// note notes a part of which messages were read that its filter named.
func (s *ExplainStats) note(found bool) {
	if found {
		s.Read.Add(1)
	} else {
		s.Vain.Add(1)
	}
}
