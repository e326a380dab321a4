package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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
func openCopied(t *testing.T, s *embed.Server) (*jetlog.Streams, jetstream.JetStream) {
	t.Helper()
	nc := natstest.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	o := natstest.Options()
	o.Replicas = 3
	for deadline := time.Now().Add(e2e.Patience); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		streams, err := jetlog.OpenStreams(ctx, nc, o)
		cancel()
		switch {
		case err == nil:
			return streams, js
		case !jetlog.Passing(err) || time.Now().After(deadline):
			t.Fatal(err)
		}
	}
}

// store stores an event, as a producer does who tries again, and gives its
// sequence.
func store(t *testing.T, js jetstream.JetStream, id string) uint64 {
	t.Helper()
	begun := time.Now()
	defer func() { t.Logf("stored after %v", time.Since(begun)) }()
	for deadline := time.Now().Add(e2e.Patience); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		ack, err := js.Publish(ctx, "events.like", []byte("{}"), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			return ack.Sequence
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// "Three `tidemark run` with embedded servers find each other, form a
// NATS cluster and keep streams with three copies", in whatever order they start; one may
// be gone; and what is stored is there when all have been.
func TestThreeServersAreACluster(t *testing.T) {
	t.Parallel()
	o := members(t)
	var servers [3]*embed.Server

	// The first says for whom it waits.
	servers[0] = startMember(t, o[0])
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	var told []embed.Standing
	err := servers[0].WaitLeader(ctx, func(s embed.Standing) { told = append(told, s); cancel() })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no other server is there, 2 of 3 servers are needed, and all of them for its first start") {
		t.Errorf("alone: %v", err)
	}
	if len(told) != 1 || told[0].Leader != "" || told[0].Needed != 2 || told[0].Size != 3 || len(told[0].Servers) != 0 {
		t.Errorf("told %+v", told)
	}
	if err := servers[0].Unwritable(); err != nil {
		t.Errorf("one that waits for others starts again for nothing: %v", err)
	}

	// A first start needs all.
	servers[1] = startMember(t, o[1])
	ctx, cancel = context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	err = servers[0].WaitLeader(ctx, func(s embed.Standing) {
		if len(s.Servers) > 0 {
			time.AfterFunc(2*time.Second, cancel) // they could agree by then
		}
	})
	if err == nil || !strings.Contains(err.Error(), "n2 and this one are there") {
		t.Errorf("two of three, for the first time: %v", err)
	}
	servers[2] = startMember(t, o[2])
	for _, s := range servers {
		waitLeader(t, s)
	}
	streams, js := openCopied(t, servers[2])
	for _, name := range []string{jetlog.EventsStream, jetlog.DeltasStream, jetlog.DeadLetterStream, jetlog.BucketStream} {
		s, err := js.Stream(t.Context(), name)
		if err != nil || s.CachedInfo().Config.Replicas != 3 || s.CachedInfo().Cluster == nil {
			t.Fatalf("%s: %v, %+v", name, err, s)
		}
	}
	if n := store(t, js, "1"); n != 1 {
		t.Errorf("the first event has sequence %d", n)
	}

	// One that leads EVENTS stops, and its directory comes back.
	info, err := js.Stream(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	leads := 0
	for i := range o {
		if o[i].Name == info.CachedInfo().Cluster.Leader {
			leads = i
		}
	}
	other := (leads + 1) % 3
	servers[leads].Close()
	_, js = openCopied(t, servers[other])
	if n := store(t, js, "2"); n != 2 {
		t.Errorf("with two servers: sequence %d", n)
	}
	if err := servers[leads].Restart(); err != nil {
		t.Fatal(err)
	}
	waitLeader(t, servers[leads])

	// All stop, and start in another order.
	created := eventsState(t, streams).Created
	for _, s := range servers {
		s.Close()
	}
	for _, i := range []int{other, leads} {
		servers[i] = startMember(t, o[i])
	}
	waitLeader(t, servers[leads]) // two of three are enough
	servers[3-other-leads] = startMember(t, o[3-other-leads])
	streams, js = openCopied(t, servers[0])
	if now := eventsState(t, streams); !now.Created.Equal(created) || now.Last != 2 {
		t.Errorf("after all have started again: %+v", now)
	}
	if n := store(t, js, "3"); n != 3 {
		t.Errorf("after all have started again: sequence %d", n)
	}
}

func eventsState(t *testing.T, streams *jetlog.Streams) (state jetlog.StreamState) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(e2e.Patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		state, err = streams.State(ctx, jetlog.EventsStream)
		cancel()
		if err == nil {
			return state
		}
	}
	t.Fatal(err)
	return state
}

// A member that has lost its copy of a stream, or all that it had, gets it from
// the others under the same name, and is as good as before.
func TestMemberGetsItsCopiesAgain(t *testing.T) {
	t.Parallel()
	o := members(t)
	var servers [3]*embed.Server
	for i := range o {
		servers[i] = startMember(t, o[i])
	}
	_, js := openCopied(t, servers[1])
	store(t, js, "1")
	for _, lose := range []func() error{
		func() error {
			meta := filepath.Join(o[0].StoreDir, "jetstream", "$G", "streams", jetlog.EventsStream, "meta.inf")
			return os.WriteFile(meta, []byte("{"), 0o600)
		},
		func() error { return os.RemoveAll(o[0].StoreDir) },
	} {
		servers[0].Close()
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		servers[0] = startMember(t, o[0])
		waitWhole(t, servers[0])
	}

	// It is one of the two that go on when another fails.
	servers[1].Close()
	_, js = openCopied(t, servers[0])
	if n := store(t, js, "2"); n != 2 {
		t.Errorf("sequence %d", n)
	}
}

// waitWhole waits until a server has all that it is to have.
func waitWhole(t *testing.T, s *embed.Server) {
	t.Helper()
	waitLeader(t, s)
	var last []string
	for deadline := time.Now().Add(e2e.Patience); ; time.Sleep(100 * time.Millisecond) {
		behind := s.Behind()
		if len(behind) == 0 {
			return
		}
		if fmt.Sprint(behind) != fmt.Sprint(last) {
			last = behind
			t.Logf("behind: %q", behind)
		}
		if time.Now().After(deadline) {
			t.Fatalf("behind still: %q", behind)
		}
	}
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

// A server on its own waits for nobody, and lacks nothing.
func TestServerOnItsOwnHasNoCluster(t *testing.T) {
	s := natstest.Server(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitLeader(ctx, func(s embed.Standing) { t.Errorf("told %+v", s) }); err != nil {
		t.Error(err)
	}
	if b, st := s.Behind(), s.Standing(); b != nil || st.Size != 0 || st.Leader != "" {
		t.Errorf("%q %+v", b, st)
	}
}
