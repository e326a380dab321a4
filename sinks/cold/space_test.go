package cold

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// filling is an engine whose disk is full once a file was sealed.
type filling struct {
	Engine
	armed, full bool
}

func (f *filling) Create(name string) (NewFile, error) {
	n, err := f.Engine.Create(name)
	return &fillingFile{n, f}, err
}

func (f *filling) Room(bytes int64) error {
	if f.full {
		return ErrDiskFull
	}
	return f.Engine.Room(bytes)
}

func (f *filling) Commit(writes []Write) error {
	if f.full {
		return ErrDiskFull
	}
	return f.Engine.Commit(writes)
}

type fillingFile struct {
	NewFile
	f *filling
}

func (n *fillingFile) Seal() error {
	err := n.NewFile.Seal()
	n.f.full = n.f.armed
	return err
}

// A commit for which there is no room has not happened: its file goes, or it
// would take what the next one needs.
func TestNoRoomToCommit(t *testing.T) {
	dir := t.TempDir()
	f := new(filling)
	s, _ := byHand(t, dir, func(e Engine) Engine { f.Engine = e; return f })
	defer closeStore(t, s)
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 0, at+1)
	}
	before := len(runFiles(t, dir))
	f.armed = true
	c := s.Begin()
	to := c.Shard(0)
	countTo(to)
	to.State(State{Applied: 100})
	if err := c.Commit(); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a checkpoint: %v", err)
	}
	if n := len(runFiles(t, dir)); n != before {
		t.Errorf("after a checkpoint: %d files, and %d before", n, before)
	}
	f.full = false
	if did, err := s.MergeOnce(); did || !errors.Is(err, ErrDiskFull) {
		t.Errorf("a merge: %v, %v", did, err)
	}
	if n := len(runFiles(t, dir)); n != before {
		t.Errorf("after a merge: %d files, and %d before", n, before)
	}
	f.armed, f.full = false, false
	count(t, s, 0, 100)
	wantCounted(t, s, 0, RunsWanted+2)
}

// What a checkpoint writes must have room before it is written.
func TestCheckpointWaitsForRoom(t *testing.T) {
	var c *cramped
	s, _ := byHand(t, t.TempDir(), func(e Engine) Engine { c = &cramped{e, 1000}; return c })
	defer closeStore(t, s)
	checkpoint(t, s, 0, 1, func(to Sink) { to.Row(0, 1, []int64{1}) })
	k := s.Begin()
	to := k.Shard(0)
	countTo(to)
	to.State(State{Applied: 2})
	if err := k.Commit(); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a checkpoint of %d rows: %v", troubleRows, err)
	}
}

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
	mergeAll := func(s *Store) {
		t.Helper()
		for range 100 {
			did, err := s.MergeOnce()
			if err != nil {
				t.Fatal(err)
			}
			if !did {
				return
			}
		}
		t.Error("merges have no end")
	}
	if did, err := s.MergeOnce(); !did || err != nil { // of shard 0
		t.Fatal(did, err)
	}
	closeStore(t, s) // what is dead is found at a start too
	s, _ = byHand(t, dir, nil)
	mergeAll(s)
	check(s, "after merging")
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	defer closeStore(t, s)
	check(s, "after a start")
}
