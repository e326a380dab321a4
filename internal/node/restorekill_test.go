package node

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// restoreEnv has a test binary restore, as its value says.
const restoreEnv = "TIDEMARK_TEST_RESTORE"

// restorer is a restore in a process of its own, which can be killed.
type restorer struct{ Dir, From string }

func beRestorer(text string) error {
	var is restorer
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		return err
	}
	_, err := Restore(contextOfSignals(), is.config(), RestoreOptions{From: is.From, Logger: silent})
	return err
}

func (r *restorer) config() *config.Config {
	c := nodetest.EachLikeCounts()
	c.DataDir, c.HTTP.Listen, c.NATS.Listen, c.Shards = r.Dir, "127.0.0.1:0", "127.0.0.1:0", 4
	return c
}

func (r *restorer) has(name string) bool {
	_, err := os.Stat(filepath.Join(r.Dir, name))
	return err == nil
}

// killedOnce begins the restore, and kills it as soon as a file is there.
func (r *restorer) killedOnce(t *testing.T, name string) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), restoreEnv+"="+string(text))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, name+" is there", func() bool { return r.has(name) || r.has(datadir.MarkerFile) })
	_ = c.Process.Kill()
	_ = c.Wait()
}

// docs/decisions/0027-backups.md: "While it works the directory has a file `restoring`,
// which only another restore takes": a restore that is killed leaves what a start refuses and
// another restore makes whole, or what is whole.
func TestRestoreKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Ready(s.Start(s.Config("a", "route hold answer")))
	want := everything(t, s.NC, bustle(s, rand.New(rand.NewPCG(15, 16)), 36))
	to := filepath.Join(t.TempDir(), "backups")
	s.backup(to, 0)
	for _, name := range []string{datadir.RestoringFile, datadir.GenerationsDir} {
		is := &restorer{Dir: t.TempDir(), From: to}
		is.killedOnce(t, name)
		if is.has(datadir.RestoringFile) {
			_, err := Start(t.Context(), is.config(), Options{Logger: silent})
			if err == nil || !strings.Contains(err.Error(), "run 'tidemark restore' again") {
				t.Fatalf("a start on half a restore: %v", err)
			}
			if _, err := Restore(t.Context(), is.config(), RestoreOptions{From: to, Logger: silent}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Restore(t.Context(), is.config(), RestoreOptions{From: to, Logger: silent}); err == nil ||
			!strings.Contains(err.Error(), "has counts") {
			t.Fatalf("restored over what is whole: %v", err)
		}
		same(t, "killed at "+name, everything(t, s.Start(is.config()).nc, ""), want)
	}
}
