package embed_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// "When it fails it leaves nothing behind that was not there before", and the
// error is one line that names what is wrong.
func TestStartServerFailsCleanly(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		listen, dir, want string
	}{
		"port in use":    {taken.Addr().String(), filepath.Join(t.TempDir(), "a", "b"), "address already in use"},
		"bad address":    {"127.0.0.1", filepath.Join(t.TempDir(), "a"), "missing port"},
		"bad port":       {"127.0.0.1:http", filepath.Join(t.TempDir(), "a"), "not a number"},
		"unwritable dir": {"127.0.0.1:0", filepath.Join(file, "a"), "not a directory"},
		"no dir":         {"127.0.0.1:0", "", "none is set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := embed.StartServer(embed.ServerOptions{Listen: c.listen, StoreDir: c.dir})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Dir(c.dir)); c.dir != "" && name == "port in use" && err == nil {
				t.Error("a directory was left behind")
			}
		})
	}
}

// "A stream whose directory is there but which the server could not recover is
// an error."
func TestStartServerRefusesALostStream(t *testing.T) {
	o := embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Minute}
	server, err := embed.StartServer(o)
	if err != nil {
		t.Fatal(err)
	}
	_, js := natstest.Streams(t, server)
	js.Conn().Close()
	server.Close()

	meta := filepath.Join(o.StoreDir, "jetstream", "$G", "streams", jetlog.EventsStream, "meta.inf")
	if err := os.WriteFile(meta, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = embed.StartServer(o); err == nil || !strings.Contains(err.Error(), "EVENTS under") {
		t.Fatalf("got %v, want an error about EVENTS", err)
	}
}

// A server that starts anew is the same one to its clients: its port, its
// streams, and connections come back.
func TestServerRestarts(t *testing.T) {
	server := natstest.Server(t)
	url := server.URL()
	streams, js := natstest.Streams(t, server)
	if _, err := js.Publish(t.Context(), "events.like", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := server.Unwritable(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		if server.URL() != url {
			t.Errorf("its URL was %s and is %s", url, server.URL())
		}
	}
	e2e.Until(t, "EVENTS ends at 1", func() bool {
		state, err := streams.State(t.Context(), jetlog.EventsStream)
		return err == nil && state.Last == 1
	})
}

// Who does not read is not waited for: what the node sends to others stands
// behind what it sends to this one.
func TestServerBoundsSubscriptions(t *testing.T) {
	const most = 10_000
	s := natstest.Server(t)
	refused := make(chan error, most)
	nc, err := nats.Connect(s.URL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i := range most + 1 {
		if _, err := nc.Subscribe(fmt.Sprint("a.", i), func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushTimeout(e2e.Patience); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Error(err)
		}
	case <-time.After(e2e.Patience):
		t.Errorf("a connection has %d subscriptions", most+1)
	}
}

func TestServerDoesNotWaitForASlowReader(t *testing.T) {
	s := natstest.Server(t)
	nc := natstest.Connect(t, s)
	subscribed, err := nc.SubscribeSync("subscribed")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := slow.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB slow 1\r\nPUB subscribed 0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := subscribed.NextMsg(e2e.Patience); err != nil {
		t.Fatal(err)
	}
	// 66 MB: above what the server takes for a reader to wait for, below what
	// it cuts one off for.
	for range 66 {
		if err := nc.Publish("slow", make([]byte, 1e6)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := s.Stalled(); n > 0 {
		t.Errorf("who sends was held up %d times", n)
	}
}

// New streams are never made beside those of another account, which earlier builds wrote to.
func TestStartServerRefusesEventsOfAnotherAccount(t *testing.T) {
	accounts := "accounts { TIDEMARK { jetstream: enabled, users: [{user: a, password: b}] } }"
	for name, c := range map[string]struct {
		cluster embed.ClusterOptions
		stored  []string // accounts that have EVENTS
		refused bool
	}{
		"a server on its own moves them":   {embed.ClusterOptions{}, []string{"$G"}, false},
		"a member of a cluster cannot":     {embed.ClusterOptions{Name: "c", Listen: "127.0.0.1:0", Routes: []string{"nats://127.0.0.1:1"}}, []string{"$G"}, true},
		"new ones were made beside before": {embed.ClusterOptions{}, []string{"$G", "TIDEMARK"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			server, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: dir, SyncInterval: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			natstest.Streams(t, server)
			server.Close()
			of := func(account string) string { return filepath.Join(dir, "jetstream", account) }
			for _, account := range c.stored {
				if account != "$G" {
					if err := os.CopyFS(of(account), os.DirFS(of("$G"))); err != nil {
						t.Fatal(err)
					}
				}
			}
			server, err = embed.StartServer(embed.ServerOptions{
				Listen: "127.0.0.1:0", StoreDir: dir, SyncInterval: time.Minute, Cluster: c.cluster, Accounts: accounts, JetStream: "TIDEMARK",
			})
			if err == nil {
				server.Close()
			}
			if c.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "there are events in another account than TIDEMARK") {
				t.Errorf("got %v", err)
			}
			account := map[bool]string{true: "$G", false: "TIDEMARK"}[c.refused]
			if _, err := os.Stat(filepath.Join(of(account), "streams", "EVENTS")); err != nil {
				t.Errorf("the events are not in %s: %v", account, err)
			}
		})
	}
}

// A stream whose directory was removed under the server takes events as long as the open
// file has room, then none: Unwritable says so, and Restart does not go on without it.
func TestStreamWithoutItsDirectoryIsUnwritable(t *testing.T) {
	dir := t.TempDir()
	server, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: dir, SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	natstest.Streams(t, server)
	nc := natstest.Connect(t, server)
	if err := server.Unwritable(); err != nil {
		t.Fatalf("at first: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "jetstream", "$G", "streams", "EVENTS")); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "the stream takes no more", func() bool {
		if err := nc.Publish("events.like", make([]byte, 900_000)); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		err := server.Unwritable()
		return err != nil && strings.Contains(err.Error(), "EVENTS")
	})
	if err := server.Restart(); err == nil || !strings.Contains(err.Error(), "the directory of stream EVENTS is gone") {
		t.Errorf("a restart: %v", err)
	}
	if _, err := nc.RTT(); err != nil {
		t.Errorf("the server is down: %v", err)
	}
}
