package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// What comes back from the past, to a system that has gone on.

// suspend: a node stands still for much longer than others take it for away, wakes up
// with all it had in hand, and may be asked at once.
func (s *soak) suspend() *fault {
	everyone := s.everyone()
	n := everyone[s.random.IntN(len(everyone))]
	if !n.running() || s.noServer() {
		return nil
	}
	n.held = true
	n.Signal(syscall.SIGSTOP)
	counts := s.counting()
	f := &fault{what: n.String(), hold: s.between(10*time.Second, s.longest(70*time.Second)), soon: patience}
	f.end = func() {
		n.Signal(syscall.SIGCONT)
		n.held = false
		if !s.noServer() && !s.wait(counts, patience) {
			s.fail("%v was suspended, and not all are past where EVENTS ended then, %v after\n%s", n, patience, s.readiness())
		}
	}
	return f
}

// olderDirectory keeps a copy of a node's directory the first time, and puts it back
// the next.
func (s *soak) olderDirectory() *fault {
	n := s.victim()
	if n == nil || s.diskIsFull() {
		return nil
	}
	n.held = true
	n.kill()
	kept := filepath.Join(s.dir, n.name, "kept")
	what := "a copy is kept of " + n.String()
	if _, err := os.Stat(kept); err == nil {
		what = n.String()
		if err := errors.Join(emptied(n.data), copied(kept, n.data), os.RemoveAll(kept)); err != nil {
			s.fail("%v: %v", n, err)
		}
	} else if err := copied(n.data, kept); err != nil {
		s.fail("%v: %v", n, err)
	}
	return &fault{what: what, hold: s.between(0, 3*time.Second), end: func() {
		s.up(n)
		n.held = false
	}}
}

// emptied removes what is in a directory.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// copied copies what is in a directory into another one.
func copied(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}
