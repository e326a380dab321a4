package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// members are the options of three embedded servers of one cluster.
func members(t *testing.T) []embed.ServerOptions {
	t.Helper()
	var all []embed.ServerOptions
	var routes []string
	for i := range 3 {
		listen := natstest.FreeAddress(t)
		routes = append(routes, "nats://"+listen)
		all = append(all, embed.ServerOptions{
			Listen: natstest.FreeAddress(t), StoreDir: t.TempDir(), StoreBytesMax: 1 << 40, SyncInterval: time.Minute,
			Name: fmt.Sprintf("n%d", i+1), Cluster: embed.ClusterOptions{Name: "c", Listen: listen}, Copied: true, Logger: natstest.Log(t),
		})
	}
	for i := range all {
		all[i].Cluster.Routes = routes // its own among them
	}
	return all
}

func startMember(t *testing.T, o embed.ServerOptions) *embed.Server {
	t.Helper()
	s, err := embed.StartServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func waitLeader(t *testing.T, s *embed.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	if err := s.WaitLeader(ctx, func(s embed.Standing) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
}

// openCopied opens the streams with a copy on each of three servers, as soon as
// the cluster has place for them.
func openCopied(t *testing.T, s *embed.Server) jetstream.JetStream {
	t.Helper()
	nc := natstest.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	o := natstest.Options()
	o.Replicas = 3
	e2e.Until(t, "there are streams", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := jetlog.OpenStreams(ctx, nc, o)
		if err != nil && !jetlog.Passing(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	return js
}

// store stores an event, as a producer does who tries again, and gives its sequence.
func store(t *testing.T, js jetstream.JetStream, id string) uint64 {
	t.Helper()
	var sequence uint64
	e2e.Until(t, "event "+id+" is stored", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ack, err := js.Publish(ctx, "events.like", []byte("{}"), jetstream.WithMsgID(id))
		if err == nil {
			sequence = ack.Sequence
		}
		return err == nil
	})
	return sequence
}

// "Three `tidemark run` with embedded servers find each other, form a
// NATS cluster and keep streams with three copies"; the first says for whom it waits. One
// may be gone, also one that gets back all that it had, under the same name, from the others.
func TestThreeServersAreACluster(t *testing.T) {
	natstest.Long(t) // three servers, which choose leaders again and again
	o := members(t)
	var servers [3]*embed.Server
	servers[0] = startMember(t, o[0])
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	var told []embed.Standing
	err := servers[0].WaitLeader(ctx, func(s embed.Standing) { told = append(told, s); cancel() })
	const alone = "no other server is there, 2 of 3 servers are needed, and all of them for its first start"
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), alone) {
		t.Errorf("alone: %v", err)
	}
	if len(told) != 1 || told[0].Leader != "" || told[0].Needed != 2 || told[0].Size != 3 || len(told[0].Servers) != 0 {
		t.Errorf("told %+v", told)
	}
	if err := servers[0].Unwritable(); err != nil {
		t.Errorf("one that waits for others starts again for nothing: %v", err)
	}
	for i := range 2 {
		servers[i+1] = startMember(t, o[i+1])
	}
	for _, s := range servers {
		waitLeader(t, s)
	}
	js := openCopied(t, servers[2])
	for _, name := range []string{jetlog.EventsStream, jetlog.DeltasStream, jetlog.DeadLetterStream, jetlog.BucketStream} {
		s, err := js.Stream(t.Context(), name)
		if err != nil || s.CachedInfo().Config.Replicas != 3 || s.CachedInfo().Cluster == nil {
			t.Fatalf("%s: %v, %+v", name, err, s)
		}
	}
	if n := store(t, js, "1"); n != 1 {
		t.Errorf("the first event has sequence %d", n)
	}

	// The one that leads EVENTS stops, loses all that it had, and starts.
	info, err := js.Stream(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	leads := slices.IndexFunc(o, func(o embed.ServerOptions) bool { return o.Name == info.CachedInfo().Cluster.Leader })
	other := (leads + 1) % 3
	servers[leads].Close()
	js = openCopied(t, servers[other])
	if n := store(t, js, "2"); n != 2 {
		t.Errorf("with two servers: sequence %d", n)
	}
	if err := os.RemoveAll(o[leads].StoreDir); err != nil {
		t.Fatal(err)
	}
	servers[leads] = startMember(t, o[leads])
	waitWhole(t, servers[leads])

	// It is one of the two that go on when another fails.
	servers[other].Close()
	js = openCopied(t, servers[leads])
	if n := store(t, js, "3"); n != 3 {
		t.Errorf("after one has come back: sequence %d", n)
	}
}

// waitWhole waits until a server has all that it is to have.
func waitWhole(t *testing.T, s *embed.Server) {
	t.Helper()
	waitLeader(t, s)
	e2e.Until(t, "it has all", func() bool { return len(s.Behind()) == 0 })
}

// What one kind of server has stored is not given to the other: a member would
// delete what the cluster does not know.
func TestStartServerRefusesAnotherKindsDirectory(t *testing.T) {
	alone := embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Minute}
	s, err := embed.StartServer(alone)
	if err != nil {
		t.Fatal(err)
	}
	_, js := natstest.Streams(t, s)
	js.Conn().Close()
	s.Close()
	member := alone
	member.Name, member.Cluster = "n1", embed.ClusterOptions{Name: "c", Listen: "127.0.0.1:0", Routes: []string{"nats://" + natstest.FreeAddress(t)}}
	if _, err := embed.StartServer(member); err == nil || !strings.Contains(err.Error(), "DEADLETTER, DELTAS, EVENTS, KV_TIDEMARK under") || !strings.Contains(err.Error(), "on its own") {
		t.Errorf("got %v", err)
	}
	s = startMember(t, alone) // nothing was touched
	s.Close()

	member.StoreDir = t.TempDir()
	s = startMember(t, member)
	if !strings.HasPrefix(s.Standing().String(), "the NATS cluster has no leader") {
		t.Errorf("%s", s.Standing())
	}
	s.Close()
	alone.StoreDir = member.StoreDir
	if _, err := embed.StartServer(alone); err == nil || !strings.Contains(err.Error(), "state nats.cluster as it was") {
		t.Errorf("got %v", err)
	}
	startMember(t, member).Close()
}

func TestStartServerRefusesABadCluster(t *testing.T) {
	taken := natstest.FreeAddress(t)
	l, err := net.Listen("tcp", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	routes := []string{"nats://127.0.0.1:1"}
	for want, c := range map[string]embed.ClusterOptions{
		"missing port":                    {Name: "c", Listen: "127.0.0.1", Routes: routes},
		"is not a URL with a host":        {Name: "c", Listen: "127.0.0.1:0", Routes: []string{"10.0.0.1"}},
		"needs a route":                   {Name: "c", Listen: "127.0.0.1:0"},
		"`cluster.name`":                  {Listen: "127.0.0.1:0", Routes: routes},
		taken + ": bind: address already": {Name: "c", Listen: taken, Routes: routes},
	} {
		dir := filepath.Join(t.TempDir(), "a")
		_, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: dir, Name: "n1", Cluster: c})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
		if errors.Is(err, embed.ErrClusterListen) != (c.Listen == taken) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%+v: a directory was left behind", c)
		}
	}
}
