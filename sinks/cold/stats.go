package cold

import (
	"sync/atomic"
	"time"
)

// Stats counts what a store does, for metrics.
type Stats struct {
	CheckpointBytes atomic.Uint64 // of runs that checkpoints wrote
	CheckpointNanos atomic.Uint64 // that commits of checkpoints took, sorting included
	MergeBytes      atomic.Uint64 // of runs that merges wrote; over CheckpointBytes: the write amplification, less 1
	MergeNanos      atomic.Uint64 // that merges took, with their rests
	Merges          atomic.Uint64 // done
	MergeErrors     atomic.Uint64 // failed
	ExportBytes     atomic.Uint64 // of runs that exports were read for
	ImportBytes     atomic.Uint64 // of runs that imports copied
	Reads           atomic.Uint64 // from files: of a block, or of several where all is gone over
	Lookups         atomic.Uint64 // of keys in runs that their filters let through
	LookupsNothing  atomic.Uint64 // and that found nothing there
}

func (s *Stats) noteCheckpoint(written []*layer, took time.Duration) {
	for _, l := range written {
		if l != nil {
			s.CheckpointBytes.Add(uint64(l.info.Bytes))
		}
	}
	s.CheckpointNanos.Add(uint64(took))
}

// noteLookups counts lookups of which some found something.
func (s *Stats) noteLookups(looked, found int) {
	if looked > 0 {
		s.Lookups.Add(uint64(looked))
		s.LookupsNothing.Add(uint64(looked - found))
	}
}

// Runs is how many runs all shards have, and how many one has at most.
func (s *Store) Runs() (all, most int) {
	for _, k := range s.stacks {
		n := k.runs()
		all, most = all+n, max(most, n)
	}
	return all, most
}

// RunBytes is how many bytes the runs take on disk.
func (s *Store) RunBytes() (bytes int64) {
	s.layers(func(l *layer) { bytes += l.info.Bytes })
	return bytes
}

// Memory is how many bytes of memory the runs' indexes and filters take, of
// those too that only views still have. It costs next to nothing.
func (s *Store) Memory() (bytes int) { return int(s.files.memory.Load()) }

// layers visits the runs of all stacks.
func (s *Store) layers(visit func(*layer)) {
	for _, k := range s.stacks {
		k.mu.Lock()
		for _, l := range k.pending {
			visit(l)
		}
		for _, l := range k.visible.all {
			visit(l)
		}
		k.mu.Unlock()
	}
}
