package cold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// unreadable is an engine that cannot open, or cannot read, one file.
type unreadable struct {
	Engine
	name       string
	open, read error
}

func (u *unreadable) Open(name string) (File, error) {
	if name == u.name && u.open != nil {
		return nil, u.open
	}
	f, err := u.Engine.Open(name)
	if name == u.name {
		f = unreadableFile{f, u}
	}
	return f, err
}

type unreadableFile struct {
	File
	u *unreadable
}

func (f unreadableFile) ReadAt(b []byte, at int64) (int, error) {
	if f.u.read != nil {
		return 0, f.u.read
	}
	return f.File.ReadAt(b, at)
}

// While the runs of one shard cannot be read, those of others are merged.
func TestUnreadableShardWaitsAlone(t *testing.T) {
	dir := t.TempDir()
	u := &unreadable{name: fileName(2)}
	s, _ := byHand(t, dir, func(e Engine) Engine { u.Engine = e; return u })
	defer closeStore(t, s)
	for at := range pipeline.Position(RunsWanted + 3) {
		count(t, s, 0, at+1)
	}
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 1, at+1)
	}
	u.read = syscall.EIO
	for range 4 {
		s.MergeOnce(nil)
	}
	if n := s.Stack(1).runs(); n > RunsWanted {
		t.Errorf("shard 1 has %d runs", n)
	}
	if _, err := s.Stack(0).State(); err != nil {
		t.Errorf("shard 0: %v", err)
	}
	u.read = nil
	for range 2 {
		if _, err := s.MergeOnce(nil); err != nil {
			t.Error(err)
		}
	}
	if n := s.Stack(0).runs(); n > RunsWanted {
		t.Errorf("shard 0 has %d runs", n)
	}
	wantCounted(t, s, 0, RunsWanted+3)
}

// What cannot be opened for want of descriptors, say, is no damage: nobody is
// told to count everything again.
func TestNotReadIsNotDamaged(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	count(t, s, 0, 1)
	count(t, s, 1, 1)
	closeStore(t, s)
	u := &unreadable{name: fileName(1), open: &os.PathError{Op: "open", Path: fileName(1), Err: syscall.EMFILE}}
	s, _ = byHand(t, dir, func(e Engine) Engine { u.Engine = e; return u })
	_, err := s.Stack(0).State()
	if !errors.Is(err, syscall.EMFILE) || isCorrupt(err) || strings.Contains(fmt.Sprint(err), "replay") || !strings.Contains(fmt.Sprint(err), fileName(1)) {
		t.Errorf("shard 0: %v", err)
	}
	wantCounted(t, s, 1, 1)
	closeStore(t, s)

	u.open = nil
	s, _ = byHand(t, dir, func(e Engine) Engine { u.Engine = e; return u })
	defer closeStore(t, s)
	u.read = syscall.EIO
	s.Verify(func() bool { return true }, func(d Damage) { t.Errorf("verifying: %v", d) })
	u.read = nil
	wantCounted(t, s, 0, 1)
}

// Files of which more are asked for than may be open.
func TestSizeWhileOthersAreOpened(t *testing.T) {
	s, _ := byHand(t, t.TempDir(), nil)
	defer closeStore(t, s)
	s.OpenAtMost(1)
	for at := range pipeline.Position(4) {
		count(t, s, 0, at+1)
	}
	v := s.Stack(0).View()
	defer v.Close()
	var wait sync.WaitGroup
	for _, l := range v.layers.all {
		wait.Go(func() {
			for range 2000 {
				if size, err := l.file.size(); err != nil || size != l.info.Bytes {
					t.Errorf("%s has %d bytes, %v", l.file.name(), size, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// unremovable is an engine whose files cannot be removed.
type unremovable struct{ Engine }

func (unremovable) Remove(string) error { return syscall.EPERM }

// A file that nothing lists and that cannot be removed takes room, and no more:
// the store opens, and writes beside it.
func TestUnlistedFileThatStays(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	count(t, s, 0, 1)
	closeStore(t, s)
	if err := os.WriteFile(filepath.Join(dir, runsDir, fileName(7)), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = byHand(t, dir, func(e Engine) Engine { return unremovable{e} })
	defer closeStore(t, s)
	count(t, s, 0, 2)
	wantCounted(t, s, 0, 2)
	if names := runFiles(t, dir); len(names) != 3 || names[2] != fileName(8) {
		t.Errorf("files %v", names)
	}
}

// A file that somebody removed while the store runs is damage of its shard, and
// the merges of others go on.
func TestFileRemovedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	defer closeStore(t, s)
	s.OpenAtMost(1)
	for at := range pipeline.Position(RunsWanted + 3) {
		count(t, s, 0, at+1)
	}
	name := runFiles(t, dir)[1]
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 1, at+1)
	}
	if err := os.Remove(filepath.Join(dir, runsDir, name)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		s.MergeOnce(nil)
	}
	if n := s.Stack(1).runs(); n > RunsWanted {
		t.Errorf("shard 1 has %d runs", n)
	}
	if _, err := s.Stack(0).State(); !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), name) || !strings.Contains(fmt.Sprint(err), "missing") {
		t.Errorf("shard 0: %v", err)
	}
	wantCounted(t, s, 1, RunsWanted+1)
}
