package cold

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A shard that rarely changes does not keep the files of those that do.
func TestDeadSpace(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	const rows = 60_000
	for n := range uint64(RunsWanted + 1) {
		c := s.Begin()
		for shard := range pipeline.Shard(2) {
			to := c.Shard(shard)
			switch {
			case shard == 0:
				for id := range uint64(rows) {
					to.Row(0, 1+id<<20, []int64{int64(n + 1)})
				}
			case n < 3:
				to.Change(0, 7, []pipeline.Delta{pipeline.Add(1)})
			}
			to.State(State{Applied: pipeline.Position(n + 1)})
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		s.Stack(0).Publish()
		s.Stack(1).Publish()
	}
	check := func(s *Store, say string) {
		t.Helper()
		bytes, names := int64(0), runFiles(t, dir)
		for _, name := range names {
			info, err := os.Stat(filepath.Join(dir, runsDir, name))
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Size()
		}
		if live := s.RunBytes(); bytes > 2*live+deadMin {
			t.Errorf("%s: %d files have %d bytes, and the runs in them %d", say, len(names), bytes, live)
		}
		v := s.Stack(1).View()
		defer v.Close()
		var cell [1]int64
		if err := v.Rows(0, []uint64{7}, cell[:]); err != nil || cell[0] != 3 {
			t.Errorf("%s: the row is %d, %v", say, cell[0], err)
		}
	}
	if did, err := s.MergeOnce(nil); !did || err != nil { // of shard 0
		t.Fatal(did, err)
	}
	closeStore(t, s) // what is dead is found at a start too
	s, _ = byHand(t, dir, nil)
	mergeAll(t, s)
	check(s, "after merging")
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	defer closeStore(t, s)
	check(s, "after a start")
}
