package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// What comes back from the past: a node's directory as it was earlier, or a backup
// that was made earlier, onto a system that has gone on.

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

// backups is where the run's are.
func (s *soak) backups() string { return filepath.Join(s.dir, "backups") }

// commandWithin bounds a backup or a restore.
const commandWithin = 2 * time.Minute

func (s *soak) long(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
	defer cancel()
	out, err := s.nodes[0].Command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tidemark %v: %w: %s", args, err, out)
	}
	return err
}

// restoreNode makes a backup the first time. Later a node loses its directory, gets what
// was counted then, and joins those that have gone on. Every other time another backup is
// made after it.
func (s *soak) restoreNode() *fault {
	if s.noServer() || s.unwell != nil {
		return nil
	}
	if _, err := os.Stat(s.backups()); errors.Is(err, os.ErrNotExist) {
		if err := s.long("backup", s.backups()); err != nil {
			s.note("no backup: %v", err)
			return nil
		}
		return &fault{what: "a backup is made"}
	}
	n := s.victim()
	if n == nil {
		return nil
	}
	n.held = true
	n.kill()
	if err := errors.Join(emptied(n.data), s.long("restore", s.backups(), "--data-dir", n.data, "--config", n.Config())); err != nil {
		s.fail("%v cannot be restored: %v", n, err)
	}
	counts := s.counting()
	return &fault{what: n.String(), hold: s.between(0, 3*time.Second), until: counts, soon: patience, end: func() {
		s.up(n)
		n.held = false
		if s.random.IntN(2) == 0 {
			if err := s.long("backup", s.backups()); err != nil {
				s.note("no further backup: %v", err)
			}
		}
	}}
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
