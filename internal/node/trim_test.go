package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// killedTrim marks EVENTS as trimmed below a sequence, and removes nothing: the next
// trim finishes that, as far as it may, whatever the events' age.
func (s *site) killedTrim(below uint64, place string) {
	s.T.Helper()
	nc, err := nats.Connect(s.Server.URL)
	if err != nil {
		s.T.Fatal(err)
	}
	streams, err := jetlog.AttachEvents(s.T.Context(), nc, 0, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	_, err = streams.Trim(s.T.Context(), below, place, func(context.Context) error { nc.Close(); return nats.ErrConnectionClosed })
	if err == nil {
		s.T.Fatal("it removed something")
	}
}

// trimTo has EVENTS begin with a message.
func (s *site) trimTo(begins uint64, place string) {
	s.T.Helper()
	if _, err := s.streams().Trim(s.T.Context(), begins, place, nil); err != nil {
		s.T.Fatal(err)
	}
	if state, err := s.streams().State(s.T.Context(), jetlog.EventsStream); err != nil || state.First != begins {
		s.T.Fatalf("EVENTS begins with %d, %v", state.First, err)
	}
}

func setOf(shards ...pipeline.Shard) (set cluster.ShardSet) {
	for _, s := range shards {
		set.Add(s)
	}
	return set
}

// What a shard that nobody answers for is derived from is not trimmed.
func TestTrimWaitsForDerivation(t *testing.T) {
	holder := func(node string, applied uint64, ready ...pipeline.Shard) cluster.State {
		m := &cluster.Member{Node: node, Roles: cluster.Hold, Applied: pipeline.EndOf(applied), Ready: setOf(ready...)}
		return cluster.State{Member: m}
	}
	away := func(s cluster.State) cluster.State { s.Status = cluster.Away; return s }
	two := cluster.Assignment{Replicas: 1, ByShard: [][]string{{"a"}, {"b"}}}
	for name, c := range map[string]struct {
		assigned cluster.Assignment
		members  []cluster.State
		below    uint64
		why      string
	}{
		"all answered":     {two, []cluster.State{holder("a", 90, 0), holder("b", 80, 1)}, 81, "node b"},
		"one is derived":   {two, []cluster.State{holder("a", 90, 0), holder("b", 80)}, 1, "shard 1 is answered by nobody"},
		"one is away":      {two, []cluster.State{away(holder("a", 90, 0)), holder("b", 80, 1)}, 1, "shard 0 is answered by nobody"},
		"another has it":   {two, []cluster.State{away(holder("a", 10, 0)), holder("b", 80, 0, 1)}, 81, "node b"},
		"none is assigned": {cluster.Assignment{}, []cluster.State{holder("a", 90, 0)}, 1, "no shard is assigned"},
	} {
		trim := backup.Trim{Below: 1000}
		view := cluster.View{Assignment: c.assigned, Members: c.members}
		view.Needed("", trim.Bound)
		if trim.Below != c.below || !strings.Contains(trim.Why, c.why) {
			t.Errorf("%s: %+v", name, trim)
		}
	}
}

// docs/contract.md: "`events trim --keep 7d` … only below the newest verified backup", and
// by nodes that are there: one that died looks up to who has just begun to listen, so a
// command waits, and what it had applied keeps nothing from being trimmed.
func TestTrimBounds(t *testing.T) {
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
	everything(t, s.NC, bustle(s, rand.New(rand.NewPCG(7, 8)), 10))
	known := n.Serving().Inside().Members // or each waits until it is sure who is dead
	trim := func(keep time.Duration) (upkeep.Trimmed, error) {
		return upkeep.Trim(t.Context(), s.NC, upkeep.TrimOptions{Keep: keep, Finish: true, Logger: silent, Members: known})
	}
	if _, err := trim(time.Minute); err == nil || !strings.Contains(err.Error(), "2m") {
		t.Errorf("less than the duplicate window: %v", err)
	}
	if _, err := trim(time.Hour); !errors.Is(err, upkeep.ErrNoBackup) {
		t.Errorf("without a backup: %v", err)
	}
	to := filepath.Join(t.TempDir(), "backups")
	s.checkpointed(n)
	s.Until("those who watch know who is dead", func() error {
		if m, there := n.Serving().Inside().Members.View().Member("dead"); !there || m.Status != cluster.Away {
			return fmt.Errorf("it is %v", m.Status)
		}
		return nil
	})
	s.backup(to, 0)
	// This one listens: also a member that died looks up to it at first.
	if got, err := upkeep.Trim(t.Context(), s.NC, upkeep.TrimOptions{Keep: time.Hour, Logger: silent}); err != nil ||
		got.Messages != 0 || got.Below != 1 || !strings.Contains(got.Bound, "older") {
		t.Errorf("%+v %v", got, err)
	}
	lacks := func() error {
		state, err := s.streams().State(t.Context(), jetlog.EventsStream)
		if err != nil {
			t.Fatal(err)
		}
		return n.Serving().History().LacksOf(state)
	}
	// A process that gives the trim up takes the mark back.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.streams().Trim(ctx, 6, to, func(context.Context) error { cancel(); return ctx.Err() })
	if was := lacks(); !errors.Is(err, context.Canceled) || was != nil {
		t.Errorf("a trim that was given up: %v; %v", err, was)
	}
	// docs/decisions/0027-backups.md: "A trim that is killed in between leaves the mark: a
	// rebuild is refused, and says so, until EVENTS is trimmed again", with whatever --keep.
	s.killedTrim(6, to)
	if was := lacks(); was == nil || !strings.Contains(was.Error(), "is being trimmed below 6") {
		t.Errorf("it is not amid a trim: %v", was)
	}
	// Not by what trims by itself: nothing younger than events.keep goes.
	byItself := upkeep.TrimOptions{Keep: time.Hour, Logger: silent, Members: n.Serving().Inside().Members}
	if got, err := upkeep.Trim(t.Context(), s.NC, byItself); err != nil || got.Messages != 0 || got.Below != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := trim(time.Hour); err != nil || got.Messages != 5 || got.Below != 6 ||
		!strings.Contains(got.Bound, "interrupted") {
		t.Errorf("the trim is not finished: %+v %v", got, err)
	}
	if err := lacks(); err == nil || strings.Contains(err.Error(), "is being trimmed") {
		t.Errorf("once it is finished: %v", err)
	}
	if err := os.Rename(to, to+".away"); err != nil {
		t.Fatal(err)
	}
	if got, err := trim(time.Hour); err == nil {
		t.Errorf("the backup is gone, and %+v", got)
	}
}

// "What decides about deletion is read from the archive itself, not
// from the bucket": the bucket is deleted, and what is not archived is not trimmed.
func TestTrimReadsTheArchive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.Start(s.Config("a", "route hold answer"))
	s.Ready(n)
	random := rand.New(rand.NewPCG(7, 8))
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	s.backup(to, 0)
	s.archives(dir)
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	s.backup(to, 0)
	js, err := s.NC.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(jetlog.Bucket); err != nil {
		t.Fatal(err)
	}
	trim := func(o upkeep.TrimOptions) (t upkeep.Trimmed, err error) {
		o.Keep, o.From, o.Finish, o.Logger, o.Members = time.Hour, to, true, silent, n.Serving().Inside().Members
		s.Until("shards are assigned again", func() error {
			if t, err = upkeep.Trim(s.T.Context(), s.NC, o); t.Below == 1 {
				return errors.New(t.Bound)
			}
			return nil
		})
		return t, err
	}
	s.Until("the record is there again", func() error {
		set, err := bucket.LoadGenerations(s.T.Context(), s.NC)
		if err == nil && set.Epoch == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	s.killedTrim(16, to)
	if got, err := trim(upkeep.TrimOptions{}); err != nil || got.Below != 11 ||
		!strings.Contains(got.Bound, "not archived in "+dir) {
		t.Errorf("%+v %v", got, err)
	}

	// An EVENTS that goes on from the archived one does not say yet that it is archived.
	restored, err := s.streams().State(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	restored.Continues, restored.Archive = jetlog.Continues{After: 15, Events: restored.Created}, ""
	restored.Created = restored.Created.Add(time.Hour)
	bound := backup.Trim{Below: 30}
	if err := upkeep.BoundByArchive(&bound, restored, dir); err != nil || bound.Below != 11 {
		t.Errorf("%+v %v", bound, err)
	}

	// An archive that cannot be looked at decides nothing.
	if err := os.Rename(dir, dir+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	s.killedTrim(16, to)
	if got, err := trim(upkeep.TrimOptions{}); err == nil || got.Messages != 0 ||
		!strings.Contains(err.Error(), "has no archive of it") {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := trim(upkeep.TrimOptions{Archive: dir + ".elsewhere"}); err != nil || got.Below != 11 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := trim(upkeep.TrimOptions{Unarchived: true}); err != nil || got.Below != 16 || got.Messages != 5 {
		t.Errorf("%+v %v", got, err)
	}
}

var errNotNow = errors.New("not now")

// docs/replay.md: "While one builds, EVENTS is not trimmed"; "EVENTS is never trimmed below a
// backup of another generation than the one that serves", nor below what a node has not
// applied of the one that is kept. A generation that does not open harms nobody: it is tried
// again. Where both begin at once a trim sets a mark, and looks at the record after that; a
// rebuild looks at the mark.
func TestTrimAndRebuild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	to := filepath.Join(t.TempDir(), "backups")
	f.backup(to)
	// trim says why nothing may be trimmed.
	trim := func() string {
		t.Helper()
		o := upkeep.TrimOptions{Keep: 2 * time.Minute, From: to, Logger: f.Logger(), Members: n.Serving().Inside().Members}
		if _, err := upkeep.Trim(t.Context(), f.NC, o); err != nil {
			return err.Error()
		}
		return ""
	}
	if why := trim(); why != "" {
		t.Error(why)
	}
	blocks := filepath.Join(f.Dirs["a"], datadir.GenerationsDir, "2")
	if err := os.WriteFile(blocks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.begin(fans(n.config), false)
	f.Until("it says that it does not open", func() bool {
		s := f.status()
		says := len(s.Nodes) == 1 && strings.Contains(s.Nodes[0].Trouble, blocks)
		return s.State == generations.Building && strings.Contains(s.Why, blocks) && says
	})
	if why := trim(); !strings.Contains(why, "generation 2 is being built") {
		t.Errorf("it is trimmed: %s", why)
	}
	if err := n.Ready(); err != nil || !strings.Contains(n.remarks(), blocks) {
		t.Errorf("%v; %s", err, n.remarks())
	}
	f.Publish(20)
	f.Until("what comes is counted", func() bool { return f.Likes(20, 2) })
	if err := os.Remove(blocks); err != nil {
		t.Fatal(err)
	}
	f.serves(2, n)
	f.settledLetters(n)
	if why := trim(); !strings.Contains(why, "is of generation 1, and generation 2 serves") {
		t.Errorf("it is trimmed: %s", why)
	}
	m := f.backup(to)
	if m.Generation() != 2 || m.Generations.Kept != 0 || len(m.Generations.All) != 1 {
		t.Errorf("%+v", m.Generations)
	}
	if why := trim(); why != "" {
		t.Error(why)
	}
	set := n.rebuilds.set()
	lowest := func() (next uint64, why string) {
		trim := backup.Trim{Below: math.MaxUint64}
		if err := upkeep.BoundByKept(t.Context(), f.NC, set, f.Logger(), &trim); err != nil {
			t.Fatal(err)
		}
		return trim.Below, trim.Why
	}
	f.Until("it may be trimmed up to what is kept has applied", func() bool {
		next, why := lowest()
		return next == 41 && strings.Contains(why, "generation 1, which is kept: node a")
	})

	if _, err := n.changeRecord(t.Context(), generations.Set.Drop); err != nil {
		t.Fatal(err)
	}
	f.Until("nothing is kept", func() bool { return n.rebuilds.set().Kept == 0 && n.rebuilds.beside.Load() == nil })

	streams := n.Serving().Inside().Streams
	state := func() jetlog.StreamState {
		state, err := streams.State(t.Context(), jetlog.EventsStream)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	looked := make(chan error, 1)
	_, err := streams.Trim(t.Context(), 11, to, func(context.Context) error {
		if why := n.Serving().History().LacksOf(state()); why == nil ||
			!strings.Contains(why.Error(), "is being trimmed below 11: ask again") {
			t.Errorf("who does not wait: %v", why)
		}
		go func() { looked <- n.Serving().History().Lacks(t.Context()) }()
		select {
		case err := <-looked:
			t.Errorf("a rebuild does not wait: %v", err)
			looked <- nil
		case <-time.After(2 * history.TrimEvery):
		}
		return errNotNow
	})
	if !errors.Is(err, errNotNow) {
		t.Fatal(err)
	}
	if err := <-looked; err != nil {
		t.Errorf("nothing was trimmed, and a rebuild is refused: %v", err)
	}
	look := func() error { return upkeep.StillTrimmable(t.Context(), f.NC, m, to, state().Created) }
	if err := look(); err != nil {
		t.Errorf("nothing is being built: %v", err)
	}
	lead := &n.Serving().Inside().Router.Stats.Active
	lead.Store(false) // or the leader may see the mark first, and the rebuild gives way
	_, err = streams.Trim(t.Context(), 11, to, func(context.Context) error {
		// It has looked before there was a mark.
		_, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) {
			return now.Begin(f.by(fans(n.config)), false)
		})
		if err != nil {
			t.Error(err)
		}
		return look()
	})
	if s := state(); err == nil || !strings.Contains(err.Error(), "generation 3 is being built") || s.First != 1 ||
		s.Trimmed.Below != 0 {
		t.Errorf("it is trimmed: %v; %+v", err, s)
	}
	// And the other way round: it begins after the trim has looked at the record.
	if _, err := streams.Trim(t.Context(), 11, to, nil); err != nil {
		t.Fatal(err)
	}
	lead.Store(true)
	f.Until("it is aborted, and why is said", func() bool {
		s := f.record()
		return s.State == generations.Aborted && strings.Contains(s.Why, "trimmed below 11")
	})
}
