package fit

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func defaults(t *testing.T) *config.Config {
	t.Helper()
	c, _, err := config.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.DataDir = filepath.Join(t.TempDir(), "not", "there")
	c.NATS.Listen, c.HTTP.Listen = "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// of is the finding of that name.
func (r *Report) of(t *testing.T, name string, want Verdict, says string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Name == name {
			if f.Verdict != want || !strings.Contains(f.Is, says) || (f.Verdict == Bad) != (f.Do != "") {
				t.Errorf("%+v, want %s and %q", f, want, says)
			}
			return
		}
	}
	t.Errorf("no finding %q in %+v", name, r.Findings)
}

func look(t *testing.T, c *config.Config, url string) *Report {
	t.Helper()
	r := Look(t.Context(), Options{Config: c, File: "file", Connect: jetlog.ConnectOptions{URL: url, Once: true}, Within: 10 * time.Second})
	for _, f := range r.Findings {
		if r.Fit && f.Verdict == Bad {
			t.Errorf("fit, and %+v", f)
		}
	}
	return &r
}

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "nats://" + l.Addr().String()
}

func TestBeforeTheStart(t *testing.T) {
	c := defaults(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.API.Listen = taken.Addr().String()
	r := look(t, c, nobody(t))
	r.of(t, "open files", Good, "needed")
	r.of(t, "disk space", Good, "streams may grow to 21504 MiB")
	r.of(t, "synced write", Good, "at most 100ms")
	r.of(t, "key of the node", Good, "the first start makes it")
	r.of(t, "log", Unknown, "no node runs here")
	r.of(t, "nats.listen", Good, "is free")
	r.of(t, "api.listen", Bad, "in use")
	if r.Fit {
		t.Error("fit with a port that is taken")
	}
	if left, _ := filepath.Glob(filepath.Dir(filepath.Dir(c.DataDir)) + "/.tidemark*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	c.NATS.URL = nobody(t)
	look(t, c, c.NATS.URL).of(t, "log", Bad, "no servers")
}

func TestBadMachine(t *testing.T) {
	c := defaults(t)
	c.Shards = 1 << 40
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a-token-that-is-long reader"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.DataDir = filepath.Join(file, "data")
	c.API.Tokens, c.NATS.NKey, c.NATS.Auth = file, file+".gone", config.AuthOpen
	r := look(t, c, nobody(t))
	r.of(t, "open files", Bad, "needed")
	r.of(t, "data_dir", Bad, file)
	r.of(t, "api.tokens", Bad, "mode 0644")
	r.of(t, "nats.nkey", Bad, "no such file")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	look(t, c, nobody(t)).of(t, "api.tokens", Good, "mode 0600")
	// In the words in which a start refuses it.
	for text, says := range map[string]string{"short reader\n": "line 1: the token has fewer than 16 characters", "": "there is no token in it"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		look(t, c, nobody(t)).of(t, "api.tokens", Bad, "api.tokens: "+file+": "+says)
	}
	c.NATS.Auth, c.API.Tokens = file, ""
	if err := os.WriteFile(file, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	look(t, c, nobody(t)).of(t, "nats.auth", Bad, "nats.auth: "+file+": there is no key in it")
}

// What a start refuses of a data directory, check refuses in the same words, and it changes
// nothing there.
func TestDataDirectory(t *testing.T) {
	c := defaults(t)
	look(t, c, nobody(t)).of(t, "data directory", Good, "may be used")
	if _, err := os.Stat(c.DataDir); !os.IsNotExist(err) {
		t.Errorf("it is made: %v", err)
	}
	c.Node = "a"
	d, err := datadir.Open(c.DataDir, "a", false)
	if err != nil {
		t.Fatal(err)
	}
	look(t, c, nobody(t)).of(t, "data directory", Bad, "is in use by another tidemark process")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	look(t, c, nobody(t)).of(t, "data directory", Good, "may be used")
	c.Node = "b"
	_, refused := datadir.Open(c.DataDir, "b", false)
	look(t, c, nobody(t)).of(t, "data directory", Bad, refused.Error())
	c.Node = "a"
	// The streams of an embedded server that does not run.
	dir := filepath.Join(c.DataDir, datadir.StreamsDir)
	s, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: dir, SyncInterval: time.Minute, JetStream: walls.Inside, Accounts: "accounts {TIDEMARK {jetstream: enabled, users: [{user: a, password: b}]}}\nno_auth_user: a"})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: s.URL()})
	if err == nil {
		_, err = jetlog.OpenStreams(t.Context(), nc, counting.StreamLimits(&c.NATS))
	}
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	s.Close()
	for _, f := range look(t, c, nobody(t)).Findings {
		if strings.HasPrefix(f.Name, "stream") {
			t.Errorf("streams that fit: %+v", f)
		}
	}
	c.NATS.Streams.Deltas.MaxBytes /= 2
	look(t, c, nobody(t)).of(t, "stream DELTAS", Bad, "DELTAS: max bytes is 4294967296, must be 2147483648")
}

func TestStreams(t *testing.T) {
	c := defaults(t)
	s := natstest.Server(t)
	c.NATS.URL = s.URL()
	c.NATS.Streams.Events.MaxBytes, c.NATS.Streams.Deltas.MaxBytes, c.NATS.Streams.DeadLetter.MaxBytes = 64<<20, 64<<20, 16<<20
	r := look(t, c, s.URL())
	r.of(t, "stream EVENTS", Good, "the first node makes it")
	r.of(t, "clock", Unknown, "no stream yet")
	nc := natstest.Connect(t, s)
	if _, err := jetlog.OpenStreams(t.Context(), nc, counting.StreamLimits(&c.NATS)); err != nil {
		t.Fatal(err)
	}
	r = look(t, c, s.URL())
	for _, name := range []string{"EVENTS", "DELTAS", "DEADLETTER", "KV_TIDEMARK"} {
		r.of(t, "stream "+name, Good, "1 of 1 replicas")
	}
	r.of(t, "clock", Good, "at most 1s")
	r.of(t, "rights", Good, "producer, reader, gateway, application, operator, node")
	if !r.Fit {
		t.Errorf("%+v", r)
	}

	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	changed := natstest.Stream(t, nc, jetlog.DeltasStream).CachedInfo().Config
	changed.MaxBytes = 32 << 20
	if _, err := js.UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	r = look(t, c, s.URL())
	r.of(t, "stream DELTAS", Bad, "max bytes is 33554432, must be 67108864")
	if r.Fit {
		t.Error("fit with a stream that is none of ours")
	}
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		apart, precision time.Duration
		want             Verdict
	}{{0, 0, Good}, {ClockMax / 2, 0, Good}, {2 * ClockMax, 0, Bad}, {-2 * ClockMax, 0, Bad}, {-2 * ClockMax, 2 * ClockMax, Good}} {
		var r Report
		r.clock(time.Now().Add(-c.apart), c.precision)
		r.of(t, "clock", c.want, "at most 1s")
	}
}

// A replica that is away or lags is found.
func TestReplicas(t *testing.T) {
	var r Report
	r.stream(&jetlog.Look{Name: "A", There: true, Replicas: 3, Current: 2})
	r.stream(&jetlog.Look{Name: "B", There: true, Replicas: 3, Current: 3})
	r.of(t, "stream A", Bad, "2 of 3 replicas")
	r.of(t, "stream B", Good, "3 of 3 replicas")
}
