// Package nodetest runs processes of Tidemark for tests: a [Fleet] of nodes within the test,
// or a [Site] of processes with roles, on a NATS server that is a process of its own.
//
// It does not import internal/node: a test gives the function that starts one, so that tests
// of the node itself and of its rooms use the same fixture.
package nodetest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Process is one that was started.
type Process interface {
	Close() error
	Ready() error
	HTTPAddress() string
}

// Begin starts a process, which logs to log.
type Begin[N Process] func(ctx context.Context, c *config.Config, log *slog.Logger) (N, error)

// Shards is how many a fleet has.
const Shards = 8

// Fleet is a few nodes in one process, on a server of their own.
type Fleet[N Process] struct {
	T    *testing.T
	NC   *nats.Conn
	URL  string
	Dirs map[string]string
	Edit func(*config.Config) // nil: as it is
	Log  e2e.Lines            // of all of them

	begin Begin[N]
}

// NewFleet is a fleet without nodes.
func NewFleet[N Process](t *testing.T, begin Begin[N]) *Fleet[N] {
	server := natstest.Apart(t)
	nc, err := nats.Connect(server.URL, nats.Timeout(e2e.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return FleetOn(t, nc, server.URL, begin)
}

// FleetOn is a fleet on a server that is there.
func FleetOn[N Process](t *testing.T, nc *nats.Conn, url string, begin Begin[N]) *Fleet[N] {
	return &Fleet[N]{T: t, NC: nc, URL: url, Dirs: map[string]string{}, begin: begin}
}

// EachLikeCounts is the default configuration, but that no like is in a set: a test that
// counts likes sees what counts twice. Each shard is with one node: a test says when it is
// with more.
func EachLikeCounts() *config.Config {
	c := twin.EveryTime(config.Default())
	c.Cluster.Replicas = 1
	return c
}

// Plain is the configuration of a node of the fleet. On a busy machine the server takes
// seconds now and then, and a node that routes does so until it stops: a test that has it
// lose its lease says so.
func (f *Fleet[N]) Plain(name string) *config.Config {
	c := EachLikeCounts()
	c.Node, c.DataDir, c.NATS.URL, c.HTTP.Listen, c.Shards = name, f.Dirs[name], f.URL, "", Shards
	c.Router.LeaseRenew, c.Router.LeaseExpiry = time.Second, 10*time.Second
	return c
}

// edited is what Start starts a node by.
func (f *Fleet[N]) edited(name string) *config.Config {
	c := f.Plain(name)
	if f.Edit != nil {
		f.Edit(c)
	}
	return c
}

// Start starts a node of the fleet, which is closed at the end if it was not before.
func (f *Fleet[N]) Start(name string) N {
	f.T.Helper()
	if f.Dirs[name] == "" {
		f.Dirs[name] = f.T.TempDir()
	}
	n, err := f.begin(f.T.Context(), f.edited(name), slog.New(slog.NewTextHandler(&f.Log, nil)).With("on", name))
	if err != nil {
		f.T.Fatalf("%v\n%s", err, f.Log.String())
	}
	f.T.Cleanup(func() { n.Close() })
	return n
}

// With starts a node of the fleet with another configuration.
func (f *Fleet[N]) With(name string, change func(*config.Config)) N {
	f.T.Helper()
	if f.Dirs[name] == "" {
		f.Dirs[name] = f.T.TempDir()
	}
	n, err := f.begin(f.T.Context(), f.Config(name, change), slog.New(slog.NewTextHandler(&f.Log, nil)).With("on", name))
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { n.Close() })
	return n
}

// Config is what With starts a node by.
func (f *Fleet[N]) Config(name string, change func(*config.Config)) *config.Config {
	c := f.Plain(name)
	c.Audit.Rate = 0
	change(c)
	return c
}

// Stop closes a node.
func (f *Fleet[N]) Stop(n N) {
	f.T.Helper()
	if err := n.Close(); err != nil {
		f.T.Fatal(err)
	}
}

// Until waits for what comes by itself.
func (f *Fleet[N]) Until(what string, is func() bool) {
	f.T.Helper()
	for end := time.Now().Add(e2e.Patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			f.T.Fatalf("within %v there is not: %s\n%s", e2e.Patience, what, f.Log.String())
		}
	}
}

// Publish stores a like of each of the first posts.
func (f *Fleet[N]) Publish(posts int) {
	f.T.Helper()
	for post := 1; post <= posts; post++ {
		if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":7,"post":%d,"author":9}`, post), e2e.Patience); err != nil {
			f.T.Fatal(err)
		}
	}
}

// Crowd stores packs of 1,000 likes, each of another post.
func (f *Fleet[N]) Crowd(packs int) {
	f.T.Helper()
	for pack := range packs {
		var lines []string
		for i := range 1000 {
			lines = append(lines, fmt.Sprintf(`{"type":"like","actor":7,"post":%d,"author":9}`, 1_000_000+1000*pack+i))
		}
		if _, err := f.NC.Request("events.pack", []byte(strings.Join(lines, "\n")), e2e.Patience); err != nil {
			f.T.Fatal(err)
		}
	}
}

// Likes says whether each of the first posts has so many.
func (f *Fleet[N]) Likes(posts, want int) bool {
	f.T.Helper()
	var ids []string
	for post := 1; post <= posts; post++ {
		ids = append(ids, fmt.Sprint(post))
	}
	m, err := f.NC.Request("tidemark.get", fmt.Appendf(nil, `{"counter":"post","columns":["like"],"ids":[%s],"timeout_ms":9000}`, strings.Join(ids, ",")), 10*time.Second)
	return err == nil && strings.Count(string(m.Data), fmt.Sprintf(`"like":%d}`, want)) == posts && !strings.Contains(string(m.Data), "missing")
}

// Like is the answer about the likes of a post.
func (f *Fleet[N]) Like(post uint64) string {
	m, err := f.NC.Request("tidemark.get", fmt.Appendf(nil, `{"counter":"post","columns":["like"],"ids":[%d]}`, post), 10*time.Second)
	if err != nil {
		return err.Error()
	}
	return string(m.Data)
}

// Get is the answer about a cell, or the error in words.
func (f *Fleet[N]) Get(counter, column string, id int) string {
	m, err := f.NC.Request("tidemark.get", fmt.Appendf(nil, `{"counter":%q,"columns":[%q],"ids":[%d]}`, counter, column, id), 10*time.Second)
	if err != nil {
		return err.Error()
	}
	if text := m.Header.Get("Nats-Service-Error"); text != "" {
		return text
	}
	return string(m.Data)
}

// Has says whether a cell is so.
func (f *Fleet[N]) Has(counter, column string, id, want int) func() bool {
	return func() bool { return strings.Contains(f.Get(counter, column, id), fmt.Sprintf(`%q:%d}`, column, want)) }
}

// Ask has a node do a job of checks.
func (f *Fleet[N]) Ask(node, verb string, request any) (*checks.Checked, error) {
	raw, err := job.Ask(f.T.Context(), f.NC, node, verb, request, nil)
	if err != nil {
		return nil, err
	}
	c := new(checks.Checked)
	return c, json.Unmarshal(raw, c)
}

// Plant has stopped nodes count an event, which is the next of the log and a like
// of post, and one like more of it that there never was.
func (f *Fleet[N]) Plant(post uint64, names ...string) {
	f.T.Helper()
	f.PlantAll(post, twin.Plants[:1], names...)
}

// PlantAll is Plant, with all of plants in the place of one like more.
func (f *Fleet[N]) PlantAll(post uint64, plants []twin.Plant, names ...string) {
	f.T.Helper()
	must := func(err error) {
		f.T.Helper()
		if err != nil {
			f.T.Fatal(err)
		}
	}
	body := fmt.Appendf(nil, `{"actor":7,"post":%d,"author":9}`, post)
	stored, err := f.NC.Request("events.like", body, e2e.Patience)
	must(err)
	var ack struct{ Seq uint64 }
	must(json.Unmarshal(stored.Data, &ack))
	for _, name := range names {
		f.count(name, post, plants, ack.Seq, body)
	}
}

func (f *Fleet[N]) count(name string, post uint64, plants []twin.Plant, sequence uint64, body []byte) {
	f.T.Helper()
	must := func(err error) {
		f.T.Helper()
		if err != nil {
			f.T.Fatal(err)
		}
	}
	c := f.edited(name)
	schema, err := c.Schema()
	must(err)
	store, err := cold.Open(c.DataDir+"/"+datadir.GenerationsDir+"/1/"+datadir.BadgerDir, schema, cold.Options{Shards: c.Shards, Node: name, MemTableBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	program, err := operators.Compile(store.Schema(), c.Rules(), c.Shards, operators.Limits{Events: 100, Bytes: 512 << 10})
	must(err)
	of := pipeline.ShardOf(post, c.Shards)
	node, err := sinks.NewNode(store, sinks.Options{
		Shards: c.Shards, Held: []pipeline.Shard{of}, Owners: 1, CheckpointEvery: time.Hour, DirtyRowsMax: 1000, SequenceMax: 1 << 40,
		Users: shard.Limits{PostsMax: 10, Retention: 1000, Inactive: 1000}, Logger: slog.New(slog.DiscardHandler),
	})
	must(err)
	from := node.Positions()[0]
	windows, err := program.NewLane().Derive(from, pipeline.EndOf(sequence), []pipeline.Message{{Sequence: sequence, Time: time.Now().UnixMilli(), Subject: "events.like", Data: body}})
	must(err)
	w, err := pipeline.DecodeWindow(windows[0].Window)
	must(err)
	for i, p := range plants {
		section := of
		if p.Counter == "notice" {
			section = pipeline.Shard(c.Shards)
		}
		w.Sections[section] = p.Add(slices.Clone(w.Sections[section]), w, post, w.To-pipeline.Position(len(plants)-1-i))
	}
	must(node.Hand(f.T.Context(), pipeline.Entry{Window: pipeline.AppendWindow(nil, w)}))
	must(node.Close())
	must(node.Err())
	must(store.Close())
}

// Forget takes a node that has stopped out for good.
func (f *Fleet[N]) Forget(name string) {
	f.T.Helper()
	members, err := bucket.AttachMembers(f.T.Context(), f.NC, 0, bucket.MembersOptions{})
	if err != nil {
		f.T.Fatal(err)
	}
	defer members.Close()
	if err := members.Forget(f.T.Context(), name); err != nil {
		f.T.Fatal(err)
	}
}

// JetStream is that of the server.
func (f *Fleet[N]) JetStream() jetstream.JetStream {
	f.T.Helper()
	js, err := jetstream.New(f.NC)
	if err != nil {
		f.T.Fatal(err)
	}
	return js
}

// Bucket is that of the nodes.
func (f *Fleet[N]) Bucket() jetstream.KeyValue {
	f.T.Helper()
	js, err := jetstream.New(f.NC)
	if err != nil {
		f.T.Fatal(err)
	}
	bucket, err := js.KeyValue(f.T.Context(), jetlog.Bucket)
	if err != nil {
		f.T.Fatal(err)
	}
	return bucket
}

// Put writes a key, as any client may that reaches the bucket.
func (f *Fleet[N]) Put(key string, value []byte) {
	f.T.Helper()
	if _, err := f.Bucket().Put(f.T.Context(), key, value); err != nil {
		f.T.Fatal(err)
	}
}

// Logger logs with the nodes.
func (f *Fleet[N]) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(&f.Log, nil)) }
