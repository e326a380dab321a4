package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

const (
	backedUsers = 40
	backedPosts = 120
)

// bustle is some packs of everything there is, stored; it returns the position of
// the last line.
func bustle(s *site, r *rand.Rand, packs int) (position string) {
	s.T.Helper()
	user := func() int { return 1 + r.IntN(backedUsers) }
	post := func() int { return 1 + r.IntN(backedPosts) }
	for range packs {
		var lines []string
		for range 1 + r.IntN(60) {
			a, b := user(), user()
			undo := r.IntN(6) == 0
			switch r.IntN(8) {
			case 0, 1:
				lines = append(lines, fmt.Sprintf(`{"type":"follow","actor":%d,"target":%d,"delete":%v}`, a, b, undo))
			case 2:
				lines = append(lines, fmt.Sprintf(`{"type":"post","actor":%d,"post":%d,"delete":%v}`, a, post(), undo))
			case 3:
				lines = append(lines, fmt.Sprintf(`{"type":"comment","actor":%d,"post":%d,"author":%d}`, a, post(), b))
			case 4:
				lines = append(lines, fmt.Sprintf(`{"type":"read","actor":%d,"what":["feed","comment","channel:system"]}`, a))
			case 5:
				lines = append(lines, fmt.Sprintf(`{"type":"notice","channel":"system","notice":%d,"delete":%v}`, post(), undo))
			case 6:
				lines = append(lines, fmt.Sprintf(`{"type":"adjust","counter":"post","id":%d,"column":"repost","set":%d}`, post(), r.IntN(1000)))
			default:
				lines = append(lines, fmt.Sprintf(`{"type":"like","actor":%d,"post":%d,"author":%d,"delete":%v}`, a, post(), b, undo))
			}
		}
		position = s.Publish(lines...)
	}
	return position
}

var asOf = regexp.MustCompile(`"as_of":"\d+"`)

// everything asks over a connection for all that is counted, as of a position; "":
// of whatever is there.
func everything(t *testing.T, nc *nats.Conn, position string) string {
	t.Helper()
	var posts, users []string
	for id := range backedPosts {
		posts = append(posts, fmt.Sprint(id+1))
	}
	for id := range backedUsers {
		users = append(users, fmt.Sprint(id+1))
	}
	ids := func(list []string) string { return "[" + strings.Join(list, ",") + "]" }
	at := ""
	if position != "" {
		at = fmt.Sprintf(`,"min_position":%q,"timeout_ms":20000`, position)
	}
	asks := [][2]string{
		{"get", `{"counter":"post","ids":` + ids(posts) + at + `,"partial":false}`},
		{"get", `{"counter":"user","ids":` + ids(users) + at + `,"partial":false}`},
		{"unread", `{"users":` + ids(users) + at + `,"partial":false}`},
	}
	for _, u := range users {
		for _, page := range []string{"feed", "following", "followers"} {
			asks = append(asks, [2]string{page, `{"user":` + u + `,"limit":100` + at + `}`})
		}
	}
	var out strings.Builder
	for _, ask := range asks {
		var body string
		for end := time.Now().Add(e2e.Patience); ; time.Sleep(50 * time.Millisecond) {
			reply, err := nc.Request("tidemark."+ask[0], []byte(ask[1]), 25*time.Second)
			if err == nil && reply.Header.Get("Nats-Service-Error") == "" &&
				!bytes.Contains(reply.Data, []byte(`"missing"`)) && !bytes.Contains(reply.Data, []byte(`"degraded"`)) {
				body = string(reply.Data)
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s %s: %v %v", ask[0], ask[1], reply, err)
			}
		}
		fmt.Fprintf(&out, "%s %s\n", ask[0], asOf.ReplaceAllString(body, ""))
	}
	return out.String()
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%s:\n got %.2000s\nwant %.2000s", what, g[i], w[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", what, len(g), len(w))
}

func (s *site) backup(to string, keep int) *backup.Manifest {
	s.T.Helper()
	m, err := upkeep.Backup(s.T.Context(), s.NC, upkeep.BackupOptions{To: to, Keep: keep, Logger: silent})
	if err != nil {
		s.T.Fatal(err)
	}
	return m
}

func (s *site) streams() *jetlog.Streams {
	s.T.Helper()
	streams, err := jetlog.AttachEvents(s.T.Context(), s.NC, 0, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	return streams
}

// alone is a configuration with an embedded server.
func alone(t *testing.T, c *config.Config) *config.Config {
	a := *c
	a.DataDir, a.NATS.URL, a.NATS.Listen = filepath.Join(t.TempDir(), "data"), "", "127.0.0.1:0"
	return &a
}

func restoreTo(t *testing.T, c *config.Config, o RestoreOptions) (Restored, error) {
	t.Helper()
	o.Logger = silent
	return Restore(t.Context(), c, o)
}

// startFails starts a process that cannot go on: the start fails, or it says so
// in /readyz.
func startFails(t *testing.T, s *site, c *config.Config) (why string) {
	t.Helper()
	n, err := Start(t.Context(), c, Options{Logger: silent})
	if err != nil {
		return err.Error()
	}
	defer n.Close()
	s.Until("it cannot go on", func() error {
		if err := n.Ready(); err != nil && strings.Contains(err.Error(), "restore") {
			why = err.Error()
			return nil
		}
		return fmt.Errorf("it goes on: %v", n.Ready())
	})
	return why
}

// files are those of a directory, by their paths.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "LOCK" {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkpointed waits until all that is applied is on disk.
func (s *site) checkpointed(n *Node) {
	s.T.Helper()
	s.Until("checkpointed", func() error {
		for _, p := range n.Serving().Sinks().Kept() {
			if p < n.Serving().Sinks().Applied() {
				return fmt.Errorf("a shard is at %d of %d", p, n.Serving().Sinks().Applied())
			}
		}
		return nil
	})
}

// "A system that has lost everything comes back from its newest backup and the events after
// it, with every number equal." "`restore --at` a position gives the counts as of that
// position": here what was answered then.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	const to = "nats:BACKUPS" // on the server itself
	first := bustle(s, r, 40)
	atFirst := everything(t, s.NC, first)
	s.checkpointed(n)
	m := s.backup(to, 0)
	if m.From == 0 {
		t.Fatal("nothing is checkpointed")
	}
	if got := pipeline.EndOf(uint64(40)); m.Position != got {
		t.Errorf("the backup is of position %d, the log ends at %d", m.Position, got)
	}
	atBetween := everything(t, s.NC, bustle(s, r, 13))
	when := s.later()
	last := bustle(s, r, 20)
	atLast := everything(t, s.NC, last)

	went, err := s.streams().Trim(t.Context(), m.From.Next(), to, nil)
	if err != nil || went != m.From.Next()-1 {
		t.Fatalf("%d messages went: %v", went, err)
	}

	// As of the backup, of a position and of a time, each with a server of its own.
	for _, as := range []struct {
		of   backup.Point
		want string
	}{
		{backup.Point{Position: m.Position}, atFirst},
		{backup.Point{Position: pipeline.At(53, 1023)}, atBetween},
		{backup.Point{Time: when.UnixMilli()}, atBetween},
	} {
		a := alone(t, c)
		if _, err := restoreTo(t, a, RestoreOptions{From: to, At: as.of, NATS: s.NC}); err != nil {
			t.Fatal(err)
		}
		then := s.Start(a)
		same(t, "as of "+as.of.String(), everything(t, then.nc, ""), as.want)
		s.Stop(then)
	}

	// The state is lost, and the windows are.
	s.Stop(n)
	if err := os.RemoveAll(filepath.Join(c.DataDir, "generations")); err != nil {
		t.Fatal(err)
	}
	if err := s.streams().Delete(t.Context(), jetlog.DeltasStream); err != nil {
		t.Fatal(err)
	}
	if failed := startFails(t, s, c); !strings.Contains(failed, "tidemark restore "+to+" --data-dir "+c.DataDir) {
		t.Errorf("it does not say what to do: %s", failed)
	}
	o := RestoreOptions{From: to, NATS: s.NC}
	if _, err := restoreTo(t, c, o); err == nil || !strings.Contains(err.Error(), "has counts") {
		t.Errorf("a directory that is not empty: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(c.DataDir, "generations")); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreTo(t, c, o); err != nil {
		t.Fatal(err)
	}
	n = s.Start(c)
	s.Ready(n)
	same(t, "after it was lost", everything(t, s.NC, last), atLast)
	if n.Serving().Inside().Mixed() {
		t.Error("what is restored is not audited")
	}
	if page := s.Page(n, "/metrics"); !strings.Contains(page, "tidemark_events_purged_total 0\n") {
		t.Error("what was trimmed is taken for lost")
	}
	s.Stop(n)
}

// later waits until no event can be stored any more in the millisecond of the last one, and
// returns a time between that and the next one.
func (s *site) later() time.Time {
	s.T.Helper()
	when := time.Now()
	s.Until("the next millisecond", func() error {
		if time.Now().UnixMilli() == when.UnixMilli() {
			return errors.New("not yet")
		}
		return nil
	})
	return when
}

// archives archives what there is of before the newest backup.
func (s *site) archives(dir string) *archive.Directory {
	s.T.Helper()
	o := upkeep.ArchiveOptions{Directory: dir, Logger: silent, Progress: func(*archive.Segment) {}}
	d, err := upkeep.Archive(s.T.Context(), s.NC, o)
	if err != nil {
		s.T.Fatal(err)
	}
	return d
}

// "A backup or an archive with a changed byte, with a missing or doubled file, or of another
// cluster or format is found and named." And a restore that failed is done again in the same
// directory.
func TestRestoreDamage(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Checkpoint.Interval = 10 * time.Millisecond
	n := s.Start(c)
	s.Ready(n)
	to := filepath.Join(t.TempDir(), "backups")
	want := everything(t, s.NC, bustle(s, r, 30))
	s.Until("all shards have runs", func() error {
		for i := range c.Shards {
			if !n.Serving().Inside().Store.Stack(pipeline.Shard(i)).Stored() {
				return fmt.Errorf("shard %d has none", i)
			}
		}
		return nil
	})
	m := s.backup(to, 0)
	a := alone(t, c)
	fails := func(what, named string) {
		t.Helper()
		_, err := restoreTo(t, a, RestoreOptions{From: to})
		if err == nil {
			t.Fatalf("%s: it was restored", what)
		}
		if !strings.Contains(err.Error(), named) {
			t.Errorf("%s: %q is not named: %v", what, named, err)
		}
	}
	kinds := map[string]int{}
	for _, path := range files(t, to) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		manifest := strings.HasSuffix(path, ".json")
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		kinds[filepath.Base(filepath.Dir(path))]++
		for _, at := range []int{0, r.IntN(len(whole)), len(whole) - 1} {
			turned := slices.Clone(whole)
			turned[at] ^= byte(1 << r.IntN(8))
			overwrite(t, path, turned)
			fails(fmt.Sprintf("byte %d of %d of %s turned", at, len(whole), path), name)
		}
		overwrite(t, path, whole[:len(whole)-1])
		fails(path+" is shorter", name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if manifest {
			fails(path+" is gone", "there is no backup")
		} else {
			fails(path+" is gone", name)
		}
		overwrite(t, path, whole)
	}
	if kinds["objects"] < 5 || kinds["backups"] != 1 {
		t.Fatalf("%v", kinds)
	}

	manifest := filepath.Join(to, "backups", m.ID+".json")
	whole, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, manifest, append(slices.Clone(whole), 0))
	fails("a longer manifest", m.ID)
	overwrite(t, manifest, whole)
	overwrite(t, filepath.Join(to, "backups", "twice.json"), whole)
	fails("a doubled manifest", "twice")
	os.Remove(filepath.Join(to, "backups", "twice.json"))
	later := *m
	later.Format = 99
	sealed, err := archive.Seal(later)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, manifest, sealed)
	fails("another format", "version 99")
	overwrite(t, manifest, whole)

	if _, err := Start(t.Context(), a, Options{Logger: silent}); err == nil || !strings.Contains(err.Error(), "run 'tidemark restore' again") {
		t.Errorf("a directory that is half restored: %v", err)
	}
	if _, err := restoreTo(t, a, RestoreOptions{From: to}); err != nil {
		t.Fatal(err)
	}
	same(t, "restored after all", everything(t, s.Start(a).nc, ""), want)
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// "A second backup after 1 % of the rows have changed writes at most 5
// % of the bytes of the first one"; N newest are kept, objects that no manifest names are
// removed, and a damaged object is noticed and copied again.
func TestBackupIncremental(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	to := filepath.Join(t.TempDir(), "backups")
	const ids = 50_000
	counts := func(step, likes int) {
		t.Helper()
		var lines []string
		position := ""
		for id := step; id <= ids; id += step {
			lines = append(lines, fmt.Sprintf(`{"type":"like","actor":1,"post":%d,"author":2}`, id))
			if len(lines) == 1000 || id+step > ids {
				position, lines = s.Publish(lines...), nil
			}
		}
		ask := fmt.Sprintf(`{"counter":"post","ids":[%d],"min_position":%q,"timeout_ms":20000}`, ids, position)
		s.Asks("get", ask, fmt.Sprintf(`"like":%d`, likes))
		s.checkpointed(n)
	}
	counts(1, 1)
	first := s.backup(to, 2)
	if first.Copied != first.Bytes {
		t.Errorf("the first backup has %d bytes and copied %d", first.Bytes, first.Copied)
	}
	if again := s.backup(to, 2); again.Copied != 0 {
		t.Errorf("nothing has changed, and %d bytes were copied", again.Copied)
	}
	counts(100, 2)
	second := s.backup(to, 2)
	if 20*second.Copied > first.Bytes {
		t.Errorf("1 %% changed, and of %d bytes %d were copied", first.Bytes, second.Copied)
	}

	place, err := backup.OpenPlace(t.Context(), to, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	left, err := backup.List(t.Context(), place)
	if err != nil || len(left) != 2 || left[0].ID != second.ID {
		t.Fatalf("%d backups are left: %v", len(left), err)
	}
	named := map[string]bool{}
	for _, m := range left {
		if err := backup.Verify(t.Context(), place, m); err != nil {
			t.Error(err)
		}
		for name := range m.Objects() {
			named[name] = true
		}
	}
	there, err := place.List(t.Context(), "objects/")
	if err != nil || len(there) != len(named) {
		t.Errorf("%d objects are there, and %d are named: %v", len(there), len(named), err)
	}

	var largest string
	for name, bytes := range second.Objects() {
		if largest == "" || bytes > second.Objects()[largest] {
			largest = name
		}
	}
	path := filepath.Join(to, filepath.FromSlash(largest))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	overwrite(t, path, b)
	if err := backup.Verify(t.Context(), place, second); !errors.Is(err, backup.ErrCorrupt) {
		t.Errorf("a turned byte: %v", err)
	}
	mended := s.backup(to, 2)
	if _, still := mended.Objects()[largest]; still && mended.Copied == 0 {
		t.Error("the damaged object was not copied again")
	}
	if err := backup.Verify(t.Context(), place, mended); err != nil {
		t.Error(err)
	}
}

// "The node that routes makes a backup every `backup.every` to `backup.to`"; the node that
// routes next goes on with the schedule. One that somebody makes elsewhere is a copy: EVENTS
// is trimmed by those in backup.to.
func TestBackupSchedule(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Backup.To, c.Backup.Every, c.Backup.Keep = filepath.Join(t.TempDir(), "backups"), time.Hour, 3
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, r, 10))
	s.Until("a backup is made", func() error {
		if page := s.Page(n, "/metrics"); !strings.Contains(page, "tidemark_backup_age_seconds ") ||
			strings.Contains(page, "tidemark_backup_age_seconds NaN") {
			return errors.New("no age")
		}
		return nil
	})
	all, err := Backups(t.Context(), c.Backup.To, nil)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d backups: %v", len(all), err)
	}
	everything(t, s.NC, bustle(s, r, 10))
	s.checkpointed(n)
	elsewhere := filepath.Join(t.TempDir(), "copy")
	s.backup(elsewhere, 0)
	s.killedTrim(20, elsewhere)
	got, err := upkeep.Trim(t.Context(), s.NC, upkeep.TrimOptions{Keep: time.Hour, Finish: true, Logger: silent})
	if below := all[0].From.Next(); err != nil || got.Place != c.Backup.To || got.Below > below {
		t.Errorf("%+v %v, and the backup in backup.to begins at %d", got, err, below)
	}
	s.Stop(n)
	n = s.Start(c)
	s.Until("it is looked at", func() error {
		if n.Serving().Inside().Backups.Newest.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if all, err := Backups(t.Context(), c.Backup.To, nil); err != nil || len(all) != 1 {
		t.Errorf("%d backups after a start: %v", len(all), err)
	}
}

// "A restored system continues backups into the place that it was restored from", and
// audits against the backup that it came from, without a setting: EVENTS says where the
// backup is. "Two systems restored from one backup do not both write into one place".
func TestBackupsAfterRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	to := filepath.Join(t.TempDir(), "back ups")
	random := rand.New(rand.NewPCG(3, 4))
	n := s.Start(c)
	s.Ready(n)
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	first := s.backup(to, 0)
	refused := func(nc *nats.Conn, what, words string) {
		t.Helper()
		_, err := upkeep.Backup(t.Context(), nc, upkeep.BackupOptions{To: to, Logger: silent})
		if !errors.Is(err, backup.ErrForeign) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	restored := func(at backup.Point) *site {
		t.Helper()
		a := alone(t, c)
		if _, err := restoreTo(t, a, RestoreOptions{From: to, At: at}); err != nil {
			t.Fatal(err)
		}
		n := s.Start(a)
		is := siteOn(t, n.nc)
		is.Ready(n)
		return is
	}

	// Everything is lost, and restored; twice, as of the same.
	one, two := restored(backup.Point{}), restored(backup.Point{})
	want := everything(t, one.NC, bustle(one, random, 5))
	checked, err := one.job("a", "verify", checks.Ask{Share: "1/1"})
	if err != nil || checked.Differs != 0 || checked.IDs == 0 || !strings.Contains(checked.Base, first.ID) {
		t.Errorf("%+v, %v", checked, err)
	}
	last := one.backup(to, 0)
	if last.Events.Equal(first.Events) || len(last.Before) != 1 || !last.Before[0].Events.Equal(first.Events) {
		t.Errorf("the newest is of the EVENTS created at %v, which goes on from %v", last.Events, last.Before)
	}
	refused(two.NC, "the second system of the same backup", "")
	refused(s.NC, "the system that was not lost", "restored from a backup of this one")

	// Lost again: what goes on from that has both before it.
	again := restored(backup.Point{})
	if m := again.backup(to, 0); len(m.Before) != 2 {
		t.Errorf("%+v", m)
	}
	same(t, "restored twice", everything(t, again.NC, ""), want)
	// Restored to an earlier point: the newer backups would be lost.
	refused(restored(backup.Point{Position: first.Position}).NC, "restored to an earlier point", "")
}
