package node

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// like is an event.
const like = `{"type":"like","actor":7,"post":42,"author":9}`

// docs/contract.md: "`restore FROM --data-dir DIR [--at POSITION|TIME]`": also where the
// newest backup before then is of nothing, or there is none, and EVENTS, or what was archived
// of it, reaches back to the first event (docs/replay.md), and of an event within a pack.
// Where they do not reach, it says so. What other rules have counted in part is so after a
// restore as well.
func TestRestoreAt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	atFive := everything(t, s.NC, bustle(s, r, 5))
	when := s.later()
	bustle(s, r, 4)
	s.Publish(like, like, like)
	if err := n.Serving().Dir.Note(1, datadir.Noted{Counting: "other rules", Mixed: true}); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backups")
	m := s.backup(to, 0)
	if m.Position != pipeline.EndOf(10) || !m.Mixed || m.CountedBy != "other rules" {
		t.Fatalf("the backup is of position %d, mixed: %v, counted by %q", m.Position, m.Mixed, m.CountedBy)
	}
	restored := func(o RestoreOptions) {
		t.Helper()
		a := alone(t, c)
		if r, err := restoreTo(t, a, o); err != nil || r.Position != pipeline.EndOf(5) || r.Backup != "" {
			t.Fatalf("%+v %v", r, err)
		}
		then := s.Start(a)
		same(t, "as of "+o.At.String(), everything(t, then.nc, ""), atFive)
		s.Stop(then)
	}
	byTime := backup.Point{Time: when.UnixMilli()}
	restored(RestoreOptions{From: to, At: byTime, NATS: s.NC})
	restored(RestoreOptions{From: to, At: backup.Point{Position: pipeline.EndOf(5)}, NATS: s.NC})

	// Within a pack, by a process with a server of its own, which goes on from there.
	within := alone(t, c)
	if r, err := restoreTo(t, within, RestoreOptions{From: to, At: backup.Point{Position: pipeline.At(10, 1)}, NATS: s.NC}); err != nil || r.Position != pipeline.EndOf(9) {
		t.Fatalf("%+v %v", r, err)
	}
	then := s.Start(within)
	on := siteOn(t, then.nc)
	on.Ready(then)
	if m := on.backup(to+"2", 0); m.Position != pipeline.EndOf(9) {
		t.Errorf("the backup is of position %d", m.Position)
	}
	next := on.Publish(strings.ReplaceAll(like, "42", "4200"))
	on.Asks("get", `{"counter":"post","ids":[4200],"columns":["like"],"min_position":"`+next+`"}`, `"like":1`)
	whole := alone(t, c)
	if _, err := restoreTo(t, whole, RestoreOptions{From: to}); err != nil {
		t.Fatal(err)
	}
	if n := s.Start(whole); !n.Serving().Inside().Mixed() {
		t.Error("it is taken for all counted by today's rules")
	}

	dir := filepath.Join(t.TempDir(), "archive")
	s.archives(dir)
	if _, err := s.streams().Trim(t.Context(), 4, to, nil); err != nil {
		t.Fatal(err)
	}
	for _, o := range []RestoreOptions{{NATS: s.NC}, {Archive: t.TempDir()}, {}} {
		o.From, o.At = to, byTime
		_, err := restoreTo(t, alone(t, c), o)
		if !errors.Is(err, backup.ErrNone) || !strings.Contains(err.Error(), "the oldest is "+m.ID) {
			t.Errorf("%+v: %v", o, err)
		} else if o.NATS != nil && !strings.Contains(err.Error(), "EVENTS begins with message 4") {
			t.Error(err)
		}
	}
	restored(RestoreOptions{From: to, At: byTime, Archive: dir})
}

// "`restore` puts the counts of a backup into the place of their
// generation, and records which generations there are"; "A manifest that names no
// generation is of generation 1".
func TestRestoreOfAGeneration(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	second := filepath.Join(t.TempDir(), "second")
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.backup(second)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Stop(n)

	f.restore("a", second, withFans)
	if s := f.stored("a"); len(s) != 1 || !strings.Contains(s[0], filepath.Join(datadir.GenerationsDir, "2")) {
		t.Errorf("stored are %v", s)
	}
	if err := f.Bucket().Purge(t.Context(), recordKey); err != nil {
		t.Fatal(err)
	}
	f.Edit = withFans
	n = f.Start("a")
	f.serves(2, n)
	f.Until("all likes", func() bool { return f.Likes(40, 2) })
	f.Until("all fans", f.Has("post", "fans", 7, 2))
	f.Until("the record is as it was restored", func() bool { return f.record().Epoch != 0 && f.record().Equal(n.rebuilds.set()) })
	for line := range strings.Lines(f.Log.String()) { // it is gone, and nothing is wrong
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "record of the generations was gone") {
			t.Error(line)
		}
	}
}
