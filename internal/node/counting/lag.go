package counting

import (
	"sync"
	"time"
)

// sightings remember where the end of EVENTS was when, to tell how long ago
// it was where this node is now.
type sightings struct {
	mu     sync.Mutex
	seen   []sighting // ascending; the first one is the oldest not yet applied
	caught bool       // has been at the end once since the start
}

type sighting struct {
	at   time.Time
	last uint64 // sequence
}

// sightingsMax bounds them; beyond it the newest are not kept, which makes a
// lag of hours no shorter.
const sightingsMax = 4096

// see notes the end of the stream and how far this node has applied.
func (s *sightings) see(now time.Time, last, applied uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.seen); last > applied && n < sightingsMax && (n == 0 || s.seen[n-1].last < last) {
		s.seen = append(s.seen, sighting{now, last})
	}
	s.trimLocked(applied)
}

func (s *sightings) trimLocked(applied uint64) {
	for len(s.seen) > 0 && s.seen[0].last <= applied {
		s.seen = s.seen[1:]
	}
	if len(s.seen) == 0 {
		s.caught = true
	}
}

// lag is how long ago the oldest event not yet applied was seen waiting; caught
// reports whether this node has been at the end of the log since it started.
func (s *sightings) lag(now time.Time, applied uint64) (lag time.Duration, caught bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimLocked(applied)
	if len(s.seen) == 0 {
		return 0, s.caught
	}
	return now.Sub(s.seen[0].at), s.caught
}
