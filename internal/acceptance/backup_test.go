package acceptance_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// "A system that has lost everything comes back from its newest backup
// and the events after it, with every number equal." "`restore --at` a position gives the
// counts as of that position": the twin is oracle.py. Backups and restores are killed at
// random besides, but with -short; run again they are good.
func TestHiggsRestored(t *testing.T) {
	t.Parallel()
	first, lines := follows-15_000, 45_000
	if testing.Short() {
		first, lines = follows-1_000, 3_000
	}
	one, two := first+lines/3, first+2*lines/3
	third, _ := slice(t, first, one)
	second, _ := slice(t, one, two)
	rest, _ := slice(t, two, first+lines)
	whole, _ := slice(t, first, first+lines)
	then, _ := slice(t, first, two)
	want, wantThen := oracle(t, whole), oracle(t, then)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))

	p := e2e.Run(t, "shards: 8\ncheckpoint: {interval: 100ms}\n")
	data, to := filepath.Join(p.Dir, "data"), filepath.Join(t.TempDir(), "backups")
	p.Do("import", third, "--pack", "100", "--wait")
	killed(t, p, random, "backup", to)
	m := backedUp(t, p, to)
	p.Do("events", "archive", filepath.Join(t.TempDir(), "archive"))
	nc := p.Connect()
	streams, err := jetlog.AttachEvents(t.Context(), nc, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if went, err := streams.Trim(t.Context(), m.From.Next(), to, nil); err != nil || went == 0 {
		t.Fatalf("%d messages are trimmed: %v", went, err)
	}
	p.Do("import", second, "--pack", "100", "--wait")
	at := lastPosition(t, nc)
	p.Do("import", rest, "--pack", "100", "--wait")
	check(t, nc, want, lastPosition(t, nc))

	// As of two thirds, with a server of its own.
	past := e2e.Prepare(t, e2e.Setup{})
	restore := []string{"restore", to, "--data-dir", filepath.Join(past.Dir, "data"), "--at", fmt.Sprint(uint64(at))}
	killed(t, p, random, restore...)
	if _, err := os.Stat(filepath.Join(past.Dir, "data", "tidemark.json")); err != nil { // none was quick enough
		p.Do(restore...)
	}
	past.Start()
	check(t, past.Connect(), wantThen, 0)
	past.Stop()

	// The state and the windows are lost; the log behind the backup is there.
	p.Kill()
	remove(t, filepath.Join(data, "generations"))
	remove(t, filepath.Join(data, "jetstream", "jetstream", walls.Inside, "streams", "DELTAS"))
	p.Spawn()
	logged(t, p, "tidemark restore "+to+" --data-dir "+data)
	p.Kill()
	if err := os.RemoveAll(filepath.Join(data, "generations")); err != nil {
		t.Fatal(err)
	}
	p.Do("restore", to, "--data-dir", data)
	p.Start()
	check(t, nc, want, lastPosition(t, nc))

	// Everything is lost but a backup.
	p.Do("backup", to)
	p.Kill()
	remove(t, data)
	p.Do("restore", to, "--data-dir", data)
	p.Start()
	nc = p.Connect()
	check(t, nc, want, 0)
	if at := lastPosition(t, nc); at.Sequence() < m.Position.Sequence() {
		t.Errorf("EVENTS begins again at position %d", at)
	}
	p.Do("incr", "42.cntcm", "5")
	reached(t, nc, lastPosition(t, nc))
}

// remove removes what must be there.
func remove(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// killed runs a command again and again, and kills it on its way.
func killed(t *testing.T, p *e2e.Process, random *rand.Rand, args ...string) {
	t.Helper()
	if testing.Short() {
		return
	}
	for range 6 {
		c := p.Command(t.Context(), args...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+random.IntN(800)) * time.Millisecond) // when it is killed
		c.Process.Kill()
		if c.Wait() == nil {
			return // it was quicker
		}
	}
}

// backedUp makes backups until there is one of which every shard has been checkpointed,
// so that EVENTS may be trimmed.
func backedUp(t *testing.T, p *e2e.Process, to string) (m *backup.Manifest) {
	t.Helper()
	e2e.Until(t, "a backup of what is checkpointed", func() bool {
		p.Do("backup", to)
		place, err := backup.OpenPlace(t.Context(), to, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = backup.Choose(t.Context(), place, backup.Point{}); err != nil {
			t.Fatal(err)
		}
		return m.From != 0
	})
	return m
}
