package acceptance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
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
// random besides; run again they are good.
func TestHiggsRestored(t *testing.T) {
	t.Parallel()
	const first, lines = follows - 15_000, 45_000
	const one, two = first + lines/3, first + 2*lines/3
	third, _ := slice(t, first, one)
	second, _ := slice(t, one, two)
	rest, _ := slice(t, two, first+lines)
	whole, _ := slice(t, first, first+lines)
	then, _ := slice(t, first, two)
	want, wantThen := oracle(t, whole), oracle(t, then)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))

	p := e2e.Run(t, "checkpoint: {interval: 100ms}\n")
	to := filepath.Join(t.TempDir(), "backups")
	p.Do("import", third, "--pack", "100", "--wait")
	killed(t, p, r, func() []string { return []string{"backup", to} })
	m := backedUp(t, p, to)
	t.Log(p.Do("events", "archive", filepath.Join(t.TempDir(), "archive")))
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
	killed(t, p, r, func() []string {
		return []string{"restore", to, "--data-dir", filepath.Join(past.Dir, "data"), "--at", fmt.Sprint(uint64(at))}
	})
	if _, err := os.Stat(filepath.Join(past.Dir, "data", "tidemark.json")); err != nil { // none was quick enough
		t.Log(p.Do("restore", to, "--data-dir", filepath.Join(past.Dir, "data"), "--at", fmt.Sprint(uint64(at))))
	}
	past.Start()
	check(t, past.Connect(), wantThen, 0)
	past.Stop()

	// The state and the windows are lost; the log behind the backup is there.
	data := filepath.Join(p.Dir, "data")
	p.Kill()
	for _, lost := range []string{filepath.Join(data, "badger"), filepath.Join(data, "jetstream", "jetstream", walls.Inside, "streams", "DELTAS")} {
		if _, err := os.Stat(lost); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
	}
	p.Spawn()
	said(t, p, "tidemark restore "+to+" --data-dir "+data)
	p.Kill()
	if err := os.RemoveAll(filepath.Join(data, "badger")); err != nil {
		t.Fatal(err)
	}
	t.Log(p.Do("restore", to, "--data-dir", data))
	p.Start()
	check(t, nc, want, lastPosition(t, nc))

	// Everything is lost but a backup.
	t.Log(p.Do("backup", to))
	p.Kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	t.Log(p.Do("restore", to, "--data-dir", data))
	p.Start()
	nc = p.Connect()
	check(t, nc, want, 0)
	if at := lastPosition(t, nc); at.Sequence() < m.Position.Sequence() {
		t.Errorf("EVENTS begins again at position %d", at)
	}
	p.Do("incr", "42.cntcm", "5")
	var rows struct{ Rows []map[string]any }
	if err := json.Unmarshal([]byte(p.Do("get", "42.cntcm", "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Start()
	if got := p.Do("get", "42.cntcm"); strings.TrimSpace(got) == "" {
		t.Error("nothing goes on")
	}
}

// killed runs a command again and again, and kills it on its way.
func killed(t *testing.T, p *e2e.Process, r *rand.Rand, args func() []string) {
	t.Helper()
	for range 6 {
		c := p.Command(t.Context(), args()...)
		var errs bytes.Buffer
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+r.IntN(800)) * time.Millisecond)
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
		t.Log(p.Do("backup", to))
		m = newest(t, to)
		return m.From != 0
	})
	return m
}

func newest(t *testing.T, to string) *backup.Manifest {
	t.Helper()
	place, err := backup.OpenPlace(t.Context(), to, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	m, err := backup.Choose(t.Context(), place, backup.Point{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
