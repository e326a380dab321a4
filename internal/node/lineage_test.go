package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// "A restored system continues backups into the place that it was
// restored from", by itself; "Two systems restored from one backup do not both write into
// one place".
func TestBackupsAfterRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	to := filepath.Join(t.TempDir(), "backups")
	random := rand.New(rand.NewPCG(3, 4))
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	first := s.backup(to, 0)

	// Everything is lost, and restored; twice, as of the same.
	one, two := alone(t, c), alone(t, c)
	one.Backup.To, one.Backup.Every, one.Backup.Keep = to, time.Hour, 3
	for _, r := range []*config.Config{one, two} {
		if _, err := restoreTo(t, r, RestoreOptions{From: to}); err != nil {
			t.Fatal(err)
		}
	}
	restored := s.Start(one)
	goesOn := siteOn(t, restored.nc)
	goesOn.Ready(restored)
	var last *backup.Manifest
	s.Until("it backs up by itself", func() error {
		all, err := Backups(t.Context(), to, nil)
		if err != nil || len(all) < 2 {
			return errors.Join(err, fmt.Errorf("%d backups", len(all)))
		}
		last = all[0]
		return nil
	})
	if last.Events.Equal(first.Events) || len(last.Before) != 1 || !last.Before[0].Events.Equal(first.Events) {
		t.Errorf("the newest is of the EVENTS created at %v, which goes on from %v", last.Events, last.Before)
	}
	other := siteOn(t, s.Start(two).nc)
	if _, err := upkeep.Backup(t.Context(), other.NC, upkeep.BackupOptions{To: to, Logger: silent}); !errors.Is(err, backup.ErrForeign) {
		t.Errorf("the second system of the same backup: %v", err)
	}
	if _, err := upkeep.Backup(t.Context(), s.NC, upkeep.BackupOptions{To: to, Logger: silent}); !errors.Is(err, backup.ErrForeign) || !strings.Contains(err.Error(), "restored from a backup of this one") {
		t.Errorf("the system that was not lost: %v", err)
	}

	// Lost again: what goes on from that has both before it.
	want := everything(t, goesOn.NC, bustle(goesOn, random, 5))
	if _, err := upkeep.Backup(t.Context(), goesOn.NC, upkeep.BackupOptions{To: to, Logger: silent}); err != nil {
		t.Fatal(err)
	}
	three := alone(t, c)
	if _, err := restoreTo(t, three, RestoreOptions{From: to}); err != nil {
		t.Fatal(err)
	}
	again := siteOn(t, s.Start(three).nc)
	m, err := upkeep.Backup(t.Context(), again.NC, upkeep.BackupOptions{To: to, Logger: silent})
	if err != nil || len(m.Before) != 2 {
		t.Fatalf("%+v %v", m, err)
	}
	same(t, "restored twice", everything(t, again.NC, ""), want)

	// Restored to an earlier point: the newer backups would be lost.
	past := alone(t, c)
	if _, err := restoreTo(t, past, RestoreOptions{From: to, At: backup.Point{Position: first.Position}}); err != nil {
		t.Fatal(err)
	}
	if _, err := upkeep.Backup(t.Context(), s.Start(past).nc, upkeep.BackupOptions{To: to, Logger: silent}); !errors.Is(err, backup.ErrForeign) {
		t.Errorf("restored to an earlier point: %v", err)
	}
}
