package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

func setOf(shards ...pipeline.Shard) (set cluster.ShardSet) {
	for _, s := range shards {
		set.Add(s)
	}
	return set
}

// What a shard that nobody answers for is derived from is not trimmed.
func TestTrimWaitsForDerivation(t *testing.T) {
	holder := func(node string, applied uint64, ready ...pipeline.Shard) cluster.State {
		return cluster.State{Member: &cluster.Member{Node: node, Roles: cluster.Hold, Applied: pipeline.EndOf(applied), Ready: setOf(ready...)}}
	}
	away := func(s cluster.State) cluster.State { s.Status = cluster.Away; return s }
	two := cluster.Assignment{Replicas: 1, ByShard: [][]string{{"a"}, {"b"}}}
	for name, c := range map[string]struct {
		view  cluster.View
		below uint64
		why   string
	}{
		"all answered":     {cluster.View{Assignment: two, Members: []cluster.State{holder("a", 90, 0), holder("b", 80, 1)}}, 81, "node b"},
		"one is derived":   {cluster.View{Assignment: two, Members: []cluster.State{holder("a", 90, 0), holder("b", 80)}}, 1, "shard 1 is answered by nobody"},
		"one is away":      {cluster.View{Assignment: two, Members: []cluster.State{away(holder("a", 90, 0)), holder("b", 80, 1)}}, 1, "shard 0 is answered by nobody"},
		"another has it":   {cluster.View{Assignment: two, Members: []cluster.State{away(holder("a", 10, 0)), holder("b", 80, 0, 1)}}, 81, "node b"},
		"none is assigned": {cluster.View{Members: []cluster.State{holder("a", 90, 0)}}, 1, "no shard is assigned"},
	} {
		trim := backup.Trim{Below: 1000}
		c.view.Needed("", trim.Bound)
		if trim.Below != c.below || !strings.Contains(trim.Why, c.why) {
			t.Errorf("%s: %+v", name, trim)
		}
	}
}

// A node that died looks up to who has just begun to listen: a command waits, and
// what the dead node had applied does not keep anything from being trimmed.
func TestTrimAfterDeath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	dead, err := bucket.OpenMembers(t.Context(), s.streams(), bucket.MembersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	was := n.Serving().Inside().Self()
	was.Node, was.Routes, was.Applied = "dead", false, 0
	if err := dead.Join(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	dead.Close() // without leaving
	s.Until("those who watch know", func() error {
		if m, there := n.Serving().Inside().Members.View().Member("dead"); !there || m.Status != cluster.Away {
			return fmt.Errorf("it is %v", m.Status)
		}
		return nil
	})
	members, done, err := upkeep.Listening(t.Context(), nil, s.streams(), silent)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if m, there := members.View().Member("dead"); !there || m.Status != cluster.Away {
		t.Errorf("a command takes it for %v", m.Status)
	}
	if m, there := members.View().Member("a"); !there || m.Status != cluster.Up {
		t.Errorf("a command takes one that is up for %v", m.Status)
	}
}

// "A refused event that is sent again twice, also after an interruption, counts once": what says that it was
// sent goes with a trim, and the letter that an interrupted run has left goes first.
func TestTrimSettlesLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.Start(s.Config("a", "route hold answer"))
	s.Ready(n)
	js, err := s.NC.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	letters, err := js.StreamInfo(jetlog.DeadLetterStream)
	if err != nil {
		t.Fatal(err)
	}
	sent := nats.NewMsg(fmt.Sprintf("%sletter-%x-1", jetlog.ResentSubject, letters.Created.UnixNano()))
	sent.Header.Set(jetlog.HeaderType, "like")
	sent.Data = []byte(`{"actor":7,"post":42,"author":9}`)
	for _, m := range []*nats.Msg{{Subject: jetlog.DeadLetterSubject + "json"}, {Subject: jetlog.DeadLetterSubject + "json"}, sent} {
		if _, err := js.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	everything(t, s.NC, bustle(s, rand.New(rand.NewPCG(7, 8)), 10))
	s.checkpointed(n)
	to := filepath.Join(t.TempDir(), "backups")
	s.backup(to, 0)
	s.killedTrim(11, to)
	s.Until("EVENTS is trimmed", func() error {
		trimmed, err := upkeep.Trim(t.Context(), s.NC, upkeep.TrimOptions{Keep: time.Hour, From: to, Finish: true, Logger: silent, Members: n.Serving().Inside().Members})
		if err == nil && trimmed.Messages == 0 {
			err = errors.New(trimmed.Bound)
		}
		return err
	})
	if left, err := js.StreamInfo(jetlog.DeadLetterStream); err != nil || left.State.Msgs != 1 || left.State.FirstSeq != 2 {
		t.Errorf("the letter of an event that was sent again is left: %+v, %v", left, err)
	}
}

// "restore --at" a position where the log has no message is as of the one before.
// What other rules have counted in part is so after a restore as well.
func TestRestoreAtNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	if err := n.Serving().Dir.Note(1, datadir.Noted{Counting: "other rules", Mixed: true}); err != nil {
		t.Fatal(err)
	}
	bustle(s, rand.New(rand.NewPCG(1, 1)), 5)
	to := filepath.Join(t.TempDir(), "backups")
	m := s.backup(to, 0)
	if !m.Mixed || m.CountedBy != "other rules" {
		t.Errorf("the backup says it is mixed: %v, counted by %q", m.Mixed, m.CountedBy)
	}
	bustle(s, rand.New(rand.NewPCG(2, 2)), 5)
	all := read(t, jetlog.NewEvents(s.streams(), jetlog.RunOptions{}))
	all = append(all[:7:7], all[8:]...) // message 8 is not there
	dir := filepath.Join(t.TempDir(), "archive")
	d, err := archive.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Add(t.Context(), m.Events, 1, 10, func(pipeline.Position) (pipeline.Source, error) { return pipeline.Once(all), nil }, func(*archive.Segment) {})
	if err != nil {
		t.Fatal(err)
	}
	a := alone(t, c)
	r, err := restoreTo(t, a, RestoreOptions{From: to, At: backup.Point{Position: pipeline.At(8, 0)}, Archive: dir})
	if err != nil || r.Position != pipeline.EndOf(7) {
		t.Fatalf("%+v %v", r, err)
	}
	restored := s.Start(a)
	if !restored.Serving().Inside().Mixed() {
		t.Error("it is taken for all counted by today's rules")
	}
}

// "`restore --at TIME`": as of then, also where the newest backup before it was made
// when nothing had happened yet. (internal/sim: TestArchives, seed 12.)
func TestRestoreAtFromNothing(t *testing.T) {
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	to := filepath.Join(t.TempDir(), "backups")
	if m := s.backup(to, 0); m.Position != 0 {
		t.Fatalf("the backup is of position %d", m.Position)
	}
	bustle(s, rand.New(rand.NewPCG(3, 3)), 4)
	r, err := restoreTo(t, alone(t, c), RestoreOptions{From: to, At: backup.Point{Time: time.Now().UnixMilli()}, NATS: s.NC})
	if err != nil || r.Position != pipeline.EndOf(4) {
		t.Errorf("%+v %v", r, err)
	}
}

// docs/replay.md: "Where no backup is that old, and the events reach back to the first one,
// it counts them all": from EVENTS, or from what was archived of it; where they do not reach, it says so.
func TestRestoreAtBeforeBackups(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	atFive := everything(t, s.NC, bustle(s, r, 5))
	when := time.Now()
	time.Sleep(20 * time.Millisecond)
	bustle(s, r, 5)
	to := filepath.Join(t.TempDir(), "backups")
	m := s.backup(to, 0)
	if m.Position != pipeline.EndOf(10) {
		t.Fatalf("the backup is of position %d", m.Position)
	}
	byTime, byPosition := backup.Point{Time: when.UnixMilli()}, backup.Point{Position: pipeline.EndOf(5)}
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
	restored(RestoreOptions{From: to, At: byTime, NATS: s.NC})
	restored(RestoreOptions{From: to, At: byPosition, NATS: s.NC})

	dir := filepath.Join(t.TempDir(), "archive")
	if _, err := upkeep.Archive(t.Context(), s.NC, upkeep.ArchiveOptions{Directory: dir, Logger: silent, Progress: func(*archive.Segment) {}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.streams().Trim(t.Context(), 4, to, nil); err != nil {
		t.Fatal(err)
	}
	for _, o := range []RestoreOptions{{NATS: s.NC}, {Archive: filepath.Join(t.TempDir(), "empty")}, {}} {
		o.From, o.At = to, byTime
		if o.Archive != "" {
			if err := os.Mkdir(o.Archive, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := restoreTo(t, alone(t, c), o); !errors.Is(err, backup.ErrNone) || !strings.Contains(err.Error(), "the oldest is "+m.ID) {
			t.Errorf("%+v: %v", o, err)
		} else if o.NATS != nil && !strings.Contains(err.Error(), "EVENTS begins with message 4") {
			t.Error(err)
		}
	}
	restored(RestoreOptions{From: to, At: byTime, Archive: dir})
	restored(RestoreOptions{From: to, At: byTime, Archive: dir, NATS: s.NC})
}

// docs/contract.md: "`restore FROM --data-dir DIR [--at POSITION|TIME]`": also the
// position of an event within a pack. A process with a server of its own goes on from
// there, and is backed up.
func TestRestoreAtWithinPack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	s.Ready(s.Start(c))
	to := filepath.Join(t.TempDir(), "backups")
	s.backup(to, 0)
	const like = `{"type":"like","actor":7,"post":42,"author":9}`
	s.Publish(like, like, like)
	at, own := pipeline.At(1, 1), alone(t, c)
	if r, err := restoreTo(t, own, RestoreOptions{From: to, At: backup.Point{Position: at}, NATS: s.NC}); err != nil || r.Position != at {
		t.Fatalf("%+v %v", r, err)
	}
	n := s.Start(own)
	then := siteOn(t, n.nc)
	then.Ready(n)
	if m := then.backup(to+"2", 0); m.Position != pipeline.EndOf(1) {
		t.Errorf("the backup is of position %d", m.Position)
	}
	at1 := then.Publish(like)
	then.Asks("get", `{"counter":"post","ids":[42],"columns":["like"],"min_position":"`+at1+`"}`, `"like":3`)
}

// "No sequence ever means two events" (I10): an EVENTS that goes on from the one that was lost has
// another message where a second directory stands within one, so that one is refused.
func TestRestoreOfTwoPoints(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	s.Ready(s.Start(c))
	const like = `{"type":"like","actor":7,"post":42,"author":9}`
	s.Publish(like)
	to := filepath.Join(t.TempDir(), "backups")
	s.Until("a backup of it", func() error {
		if m := s.backup(to, 0); m.Position < pipeline.EndOf(1) {
			return fmt.Errorf("it is of position %d", m.Position)
		}
		return nil
	})
	s.Publish(like, like, like)
	maker, within, same := alone(t, c), alone(t, c), alone(t, c)
	within.Node, same.Node = "b", "b"
	for _, r := range []struct {
		c  *config.Config
		at pipeline.Position
	}{{maker, 0}, {within, pipeline.At(2, 1)}, {same, 0}} {
		if got, err := restoreTo(t, r.c, RestoreOptions{From: to, At: backup.Point{Position: r.at}, NATS: s.NC}); err != nil {
			t.Fatalf("%+v %v", got, err)
		}
	}
	n := s.Start(maker)
	then := siteOn(t, n.nc)
	then.Ready(n)
	then.Publish(strings.ReplaceAll(like, "42", "43"), strings.ReplaceAll(like, "42", "43"), strings.ReplaceAll(like, "42", "43"))
	within.NATS.URL, same.NATS.URL = n.nc.ConnectedUrl(), n.nc.ConnectedUrl()
	within.NATS.NKey, same.NATS.NKey = n.KeyFile(), n.KeyFile()
	if b, err := Start(t.Context(), within, Options{Logger: silent}); err == nil || !strings.Contains(err.Error(), "EVENTS was recreated") {
		t.Errorf("it goes on within another message: %v", err)
		if err == nil {
			_ = b.Close()
		}
	}
	then.Ready(s.Start(same))
}
