package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := beChild(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	natstest.SideBySide(8)
	code := m.Run()
	natstest.Clean()
	os.Exit(code)
}

var silent = slog.New(slog.DiscardHandler)

// fleet is one of nodes of this package.
type fleet struct{ *nodetest.Fleet[*Node] }

func newFleet(t *testing.T) *fleet {
	return &fleet{nodetest.NewFleet(t, startInFleet)}
}

func startInFleet(ctx context.Context, c *config.Config, log *slog.Logger) (*Node, error) {
	return Start(ctx, c, Options{Version: "test", Processors: 2, Logger: log})
}

// site is one of processes of this package.
type site struct{ *nodetest.Site[*Node] }

func newSite(t testing.TB) *site {
	return &site{nodetest.NewSite(t, startOnSite)}
}

// siteOn is the site of a server that is there.
func siteOn(t testing.TB, nc *nats.Conn) *site { return &site{nodetest.SiteOn(t, nc, startOnSite)} }

func startOnSite(ctx context.Context, c *config.Config, log *slog.Logger) (*Node, error) {
	return Start(ctx, c, Options{Logger: log, Version: "1.2.3"})
}

// settled says that each of the nodes holds what is assigned to it, something, and nothing
// else, and that all shards are held.
func settled(nodes ...*Node) bool {
	var of []nodetest.Holder
	for _, n := range nodes {
		of = append(of, nodetest.Holder{Name: n.name, View: n.Serving().View(), Sinks: n.Serving().Sinks()})
	}
	return nodetest.Settled(of...)
}

func holdsAll(n *Node) bool {
	held := n.Serving().Inside().Held()
	return n.Serving().HasAssigned() && held.Len() == n.Serving().Config.Shards
}

// dropSpares deletes what a node has given up: it would be taken back.
func (f *fleet) dropSpares(n *Node) {
	f.T.Helper()
	held := n.Serving().Inside().Held()
	for s := range pipeline.Shard(nodetest.Shards) {
		if held.Has(s) {
			continue
		}
		if err := n.Serving().Inside().Store.Drop(s); err != nil {
			f.T.Fatal(err)
		}
	}
}

// fans is a configuration with a column more, which counts likes again.
func fans(c *config.Config) *config.Config {
	by := *c
	by.Counters, by.EventRules = slices.Clone(c.Counters), slices.Clone(c.EventRules)
	for i, counter := range by.Counters {
		if counter.Name == "post" {
			by.Counters[i].Columns = append(slices.Clone(counter.Columns), config.Column{Name: "fans", Bits: 8, Max: 63})
		}
	}
	for i, event := range by.EventRules {
		if event.Type == "like" {
			by.EventRules[i].Rules = append(slices.Clone(event.Rules), config.Rule{Add: "post.fans", Key: "post"})
		}
	}
	return &by
}

func withFans(c *config.Config) { *c = *fans(c) }

// unaudited leaves what differs alone.
func unaudited(c *config.Config) { c.Audit.Rate = 0 }

// rebuild has the leader do something about a rebuild.
func (f *fleet) rebuild(verb string, request, result any) error {
	f.T.Helper()
	err := errors.New("nobody routes")
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for name := range f.Dirs {
			var raw json.RawMessage
			raw, err = job.Ask(f.T.Context(), f.NC, name, verb, request, nil)
			if e, ok := errors.AsType[*job.Error](err); ok && (e.Code == job.CodeGone || e.Code == job.CodeBusy) {
				continue
			}
			if err == nil && result != nil {
				err = json.Unmarshal(raw, result)
			}
			return err
		}
	}
	return err
}

// by is what a configuration counts.
func (f *fleet) by(c *config.Config) json.RawMessage {
	f.T.Helper()
	counting, err := c.Counting()
	if err != nil {
		f.T.Fatal(err)
	}
	return counting
}

func (f *fleet) begin(by *config.Config, accept bool) generations.Number {
	f.T.Helper()
	var begun RebuildBegun
	ask := f.confirmed(RebuildAsk{Counting: f.by(by), Accept: accept})
	if err := f.rebuild(RebuildVerb, ask, &begun); err != nil {
		f.T.Fatalf("%v\n%s", err, f.Log.String())
	}
	return begun.Building
}

// confirmed is the request of an operator who has read what it does.
func (f *fleet) confirmed(ask RebuildAsk) RebuildAsk {
	var p RebuildPlan
	if err := f.rebuild(RebuildPlanVerb, ask, &p); err == nil {
		ask.Confirm = p.Confirm
		if len(p.Loses) > 0 {
			ask.DropKept = p.Deletes
		}
	}
	return ask
}

func (f *fleet) status() (s RebuildStatus) {
	f.T.Helper()
	if err := f.rebuild(RebuildStatusVerb, struct{}{}, &s); err != nil {
		f.T.Logf("status: %v", err)
	}
	return s
}

// serves waits until nodes answer by a generation.
func (f *fleet) serves(number generations.Number, nodes ...*Node) {
	f.T.Helper()
	f.Until(fmt.Sprintf("generation %d serves", number), func() bool {
		for _, n := range nodes {
			if n.Serving().Number != number {
				return false
			}
		}
		return true
	})
}

// goesBack has the generation before serve again.
func (f *fleet) goesBack(n *Node, to generations.Number) {
	f.T.Helper()
	f.Until("there is one to go back to", func() bool { return f.rebuild(RebuildBackVerb, struct{}{}, nil) == nil })
	f.serves(to, n)
}

// rebuilt is a node whose counts are of generation 2, generation 1 is kept.
func (f *fleet) rebuilt(name string) *Node {
	f.T.Helper()
	n := f.Start(name)
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })
	f.begin(fans(n.config), false)
	f.serves(2, n)
	f.settledLetters(n)
	return n
}

const recordKey = "generations"

// record is what the bucket says; the zero where it says nothing.
func (f *fleet) record() (s generations.Set) {
	f.T.Helper()
	e, err := f.Bucket().Get(f.T.Context(), recordKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return s
	}
	if err == nil {
		s, err = generations.Decode(e.Value())
	}
	if err != nil {
		return generations.Set{}
	}
	return s
}

// stored says which generations a directory has counts of.
func (f *fleet) stored(name string) (found []string) {
	for _, dir := range []string{
		filepath.Join(datadir.GenerationsDir, "1", datadir.BadgerDir), filepath.Join(datadir.GenerationsDir, "2", datadir.BadgerDir), filepath.Join(datadir.GenerationsDir, "3", datadir.BadgerDir),
	} {
		if _, err := os.Stat(filepath.Join(f.Dirs[name], dir)); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// refused publishes events that become dead letters.
func (f *fleet) refused(n int) {
	f.T.Helper()
	for i := range n {
		if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":0,"post":%d}`, i), e2e.Patience); err != nil {
			f.T.Fatal(err)
		}
	}
}

func (f *fleet) settledLetters(n *Node) {
	f.T.Helper()
	f.Until("no dead letters are owed", func() bool { s := n.rebuilds.set(); return s.All[s.Serving].Letters == 0 })
}

// letters says how many dead letters there are, of how many positions.
func (f *fleet) letters(want int) {
	f.T.Helper()
	stream := natstest.Stream(f.T, f.NC, jetlog.DeadLetterStream)
	of := map[string]int{}
	state := stream.CachedInfo().State
	for at := state.FirstSeq; at <= state.LastSeq; at++ {
		m, err := stream.GetMsg(f.T.Context(), at)
		if err != nil {
			f.T.Fatal(err)
		}
		of[m.Header.Get(letters.HeaderSequence)]++
	}
	if len(of) != want || state.Msgs != uint64(want) {
		f.T.Errorf("%d dead letters of %d events, want %d each: %v\n%s", state.Msgs, len(of), want, of, f.Log.String())
	}
}

func (f *fleet) backup(to string) *backup.Manifest {
	f.T.Helper()
	m, err := upkeep.Backup(f.T.Context(), f.NC, upkeep.BackupOptions{To: to, Logger: f.Logger()})
	if err != nil {
		f.T.Fatal(err)
	}
	return m
}

// restore restores into a new directory of the node.
func (f *fleet) restore(name, from string, edit func(*config.Config)) {
	f.T.Helper()
	f.Dirs[name] = filepath.Join(f.T.TempDir(), "restored")
	c := f.Plain(name)
	edit(c)
	if _, err := Restore(f.T.Context(), c, RestoreOptions{From: from, Logger: f.Logger()}); err != nil {
		f.T.Fatal(err)
	}
}
