package node

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// trimTo trims EVENTS below the newest backup, up to a message.
func (s *site) trimTo(begins uint64, place string) {
	s.T.Helper()
	if _, err := s.streams().Trim(s.T.Context(), begins, place, nil); err != nil {
		s.T.Fatal(err)
	}
	if state, err := s.streams().State(s.T.Context(), jetlog.EventsStream); err != nil || state.First != begins {
		s.T.Fatalf("EVENTS begins with %d, %v", state.First, err)
	}
}

// docs/contract.md: "only below the newest verified backup": then verify and recount go
// on from the oldest one that EVENTS goes on from, and say which that is.
func TestBackupStandsForWhatIsTrimmed(t *testing.T) {
	t.Parallel()
	for _, bucket := range []bool{false, true} {
		t.Run(fmt.Sprintf("bucket %v", bucket), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(31, 32))
			s := newSite(t)
			c := s.Config("a", "route hold answer")
			c.Audit.Rate, c.Checkpoint.Interval = 0, time.Hour // when it is stopped
			n := s.Start(c)
			s.Ready(n)
			again := func() {
				t.Helper()
				s.Stop(n)
				n = s.Start(c)
				s.Ready(n)
			}
			to := filepath.Join(t.TempDir(), "backups")
			if bucket {
				to = "nats:BACKUPS"
			}
			everything(t, s.NC, bustle(s, r, 40))
			again()
			everything(t, s.NC, bustle(s, r, 6)) // behind where the shards are checkpointed
			one := s.backup(to, 0)
			if one.From == one.Position || one.From == 0 {
				t.Fatalf("the backup is of %d to %d", one.From, one.Position)
			}
			at := bustle(s, r, 20)
			everything(t, s.NC, at)
			before, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"})
			if err != nil || before.Base != "" || before.IDs < backedPosts {
				t.Fatalf("%+v, %v", before, err)
			}
			good := func(what string, m *backup.Manifest) (c checks.Checked) {
				t.Helper()
				c, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"})
				if err != nil || c.Differs+c.Notices != 0 || c.IDs < before.IDs*9/10 || len(c.Skipped) != 0 || !strings.Contains(c.Base, m.ID) || !strings.Contains(c.Base, to) {
					t.Errorf("%s: verify found %+v of %d ids, %v", what, c, before.IDs, err)
				}
				for _, ask := range []checks.RecountAsk{{IDs: []uint64{1, 2, 3, 1 << 50}}, {Counter: "post", IDs: []uint64{1, 2, 3, 4}}} {
					if c, err := s.job("a", "recount", ask); err != nil || c.Differs != 0 || c.IDs != 4 || !strings.Contains(c.Base, m.ID) {
						t.Errorf("%s: recount found %+v, %v", what, c, err)
					}
				}
				return c
			}
			s.trimTo(one.From.Next(), to)
			good("what is not in the backup is there", one)
			s.trimTo(one.Position.Next(), to)
			good("what the backup has itself is gone", one)

			again()
			two := s.backup(to, 0)
			everything(t, s.NC, bustle(s, r, 10))
			good("the older one reaches as well", one)
			c.Audit.Memory, c.Backup.To = 16<<10, to
			again()
			if c := good("in little memory", one); c.Passes < 2 {
				t.Errorf("%d passes", c.Passes)
			}
			s.trimTo(two.Position.Sequence()-3, "elsewhere") // backup.to is what counts
			good("the older one ends too early", two)

			// What cannot stand for it is said, and why.
			says := func(what string, words ...string) {
				t.Helper()
				for _, ask := range []func() (checks.Checked, error){
					func() (checks.Checked, error) { return s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}) },
					func() (checks.Checked, error) { return s.job("a", "recount", checks.RecountAsk{IDs: []uint64{1}}) },
				} {
					c, err := ask()
					for _, word := range append(words, "the log does not hold its beginning", "EVENTS begins with message ") {
						if err == nil || !strings.Contains(err.Error(), word) {
							t.Errorf("%s: %+v, %v; want %s", what, c, err, word)
						}
					}
				}
			}
			s.trimTo(two.Position.Sequence()+3, to)
			says("too early", two.ID, "ends with message "+fmt.Sprint(two.Position.Sequence()), fmt.Sprintf("messages %d to %d are missing", two.Position.Next(), two.Position.Next()+1))
			three := s.backup(to, 0)
			good("another one", three)
			c.Backup.To = filepath.Join(t.TempDir(), "nothing")
			again()
			says("it is not there", "cannot be read", c.Backup.To)
			s.Stop(n)
		})
	}
}

// "A backup that is damaged is named and not used": whatever byte of it
// is another, nothing differs that does not. The next one is used where there is one.
func TestDamagedBaseIsNamed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(33, 34))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Audit.Rate = 0
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, r, 30))
	s.checkpointed(n)
	everything(t, s.NC, bustle(s, r, 3))
	to := filepath.Join(t.TempDir(), "backups")
	m := s.backup(to, 0)
	everything(t, s.NC, bustle(s, r, 3))
	s.trimTo(m.Position.Next(), to)
	found, harmless := 0, 0
	for _, path := range files(t, to) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		for _, at := range []int{0, len(whole) / 2, len(whole) - 1, r.IntN(len(whole))} {
			turned := slices.Clone(whole)
			turned[at] ^= byte(1 << r.IntN(8))
			overwrite(t, path, turned)
			c, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"})
			switch {
			case err == nil && c.Differs+c.Notices == 0 && len(c.Skipped) == 0:
				harmless++
			case err == nil || !strings.Contains(err.Error(), m.ID) || !strings.Contains(err.Error(), "the log does not hold its beginning"):
				t.Errorf("byte %d of %s: %+v, %v", at, name, c, err)
			default:
				found++
			}
		}
		overwrite(t, path, whole)
	}
	if found < 20 || harmless > 0 {
		t.Errorf("%d were found, %d not", found, harmless)
	}
	s.checkpointed(n)
	next := s.backup(to, 0)
	for _, path := range files(t, filepath.Join(to, "backups")) {
		if strings.Contains(path, m.ID) {
			whole, _ := os.ReadFile(path)
			whole[len(whole)/2] ^= 1
			overwrite(t, path, whole)
		}
	}
	if c, err := s.job("a", "verify", checks.VerifyAsk{Share: "1/1"}); err != nil || c.Differs != 0 || !strings.Contains(c.Base, next.ID) {
		t.Errorf("there is another one: %+v, %v", c, err)
	}
}

// "Neither the audit nor `verify` reports drift that is none", and find
// what there is: by the audit, which leaves it, as the base may be what is wrong; with
// --repair it is made what base and log say.
func TestDriftBehindABase(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	still, whole, a, b := f.copies()
	to := filepath.Join(t.TempDir(), "backups")
	m := f.backup(to)
	streams, err := jetlog.AttachEvents(t.Context(), f.NC, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.Trim(t.Context(), m.Position.Next(), to, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{a, b} {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.Plant(42, "a")
	_, a = f.With("b", still), f.With("a", func(c *config.Config) {
		c.Cluster.Replicas, c.Audit.Rate, c.Audit.Sample = 2, 1_000_000, "1/1"
	})
	f.Until("it is found", func() bool { return f.Log.Has("nothing is repaired") })
	if a.Serving().Inside().Auditor.Stats.Refused.Load() {
		t.Error("the audit says that it cannot derive")
	}
	c, err := f.Ask("a", "recount", checks.RecountAsk{Counter: "post", IDs: []uint64{42, 43}, Repair: false})
	if err != nil || c.Differs != 1 || c.IDs != 2 || len(c.Examples) != 1 || c.Examples[0].Is != c.Examples[0].Should+1 || c.Examples[0].ID != 42 {
		t.Errorf("%+v, %v", c, err)
	}
	of := pipeline.ShardOf(42, nodetest.Shards)
	if c, err = f.Ask("a", "recount", checks.RecountAsk{IDs: []uint64{42}, Repair: true}); err != nil || !slices.Equal(c.Renewed, []pipeline.Shard{of}) {
		t.Errorf("%+v, %v", c, err)
	}
	f.Until("it is repaired", func() bool {
		c, err := f.Ask("a", "recount", checks.RecountAsk{IDs: []uint64{42}})
		return err == nil && c.Differs == 0 && c.IDs == 1 && whole(a)
	})
	// Without a base the audit says that it cannot.
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	f.Until("it is refused", func() bool { return a.Serving().Inside().Auditor.Stats.Refused.Load() })
	if raw, _ := json.Marshal(a.stats()); !strings.Contains(string(raw), `"tidemark_audit_refused":1`) {
		t.Errorf("%s", raw)
	}
	if !f.Log.Has("EVENTS begins with message " + fmt.Sprint(m.Position.Next())) {
		t.Error("the log does not say what is missing")
	}
}

// "A restored node audits against the backup that it came from, without
// a setting": EVENTS says where the backup is, to each node.
func TestRestoredHasItsBase(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	to := filepath.Join(t.TempDir(), "back ups")
	random := rand.New(rand.NewPCG(35, 36))
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	m := s.backup(to, 0)

	lost := alone(t, c)
	if _, err := restoreTo(t, lost, RestoreOptions{From: to}); err != nil {
		t.Fatal(err)
	}
	restored := s.Start(lost)
	again := siteOn(t, restored.nc)
	again.Ready(restored)
	everything(t, again.NC, bustle(again, random, 5))
	checked, err := again.job("a", "verify", checks.VerifyAsk{Share: "1/1"})
	if err != nil || checked.Differs != 0 || checked.IDs == 0 || !strings.Contains(checked.Base, m.ID) {
		t.Errorf("%+v, %v", checked, err)
	}
}
