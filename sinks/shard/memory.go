package shard

// cacheShare is how much of a shard's memory the cache of read rows may take,
// as one part in so many.
const cacheShare = 8

// cacheBytesMin is what the cache of read rows may take in any case.
const cacheBytesMin = 16 << 10

// boundCacheLocked makes room in the cache of read rows for some that came.
func (s *Shard) boundCacheLocked(counter, came int) {
	cache := s.cache[counter]
	if most := s.residentBytesLocked() / cacheShare; cache.Bytes() > max(most, cacheBytesMin) {
		cache.Evict(max(came, cache.Rows()/16))
	}
}

// Bytes is the memory of what the shard holds, as of its last change. It may
// be called from any goroutine.
func (s *Shard) Bytes() int { return int(s.bytes.Load()) }

func (s *Shard) residentBytesLocked() int {
	// What is free within the slabs serves the next ones, and is given back once it is much.
	n := s.users.Bytes() - s.users.Free() + s.outboxes.Bytes() - s.outboxes.Free() + s.newest.Bytes() + s.setBytesLocked() + s.following.Bytes() + s.cursorNames.bytes()
	for i := range s.rows {
		n += s.rows[i].Bytes() + s.cache[i].Bytes()
	}
	return n
}

func (s *Shard) measureLocked() {
	dirty := len(s.changed.list)
	for _, t := range s.rows {
		dirty += t.Dirty()
	}
	s.dirty.Store(int64(dirty))
	s.bytes.Store(int64(s.residentBytesLocked() + s.changed.bytes() + s.flight.bytes()))
}
