package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/query/client"
)

// docs/failures.md of a full disk: "make room; it goes on by itself".
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, embedded := range map[string]bool{"the node's": false, "the embedded server's, too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, err := e2e.NewDisk(t, filepath.Join(t.TempDir(), "disk"), 768<<20)
			if err != nil {
				t.Skip(err)
			}
			s := e2e.Setup{
				DataDir:  filepath.Join(disk.Path, "data"),
				Settings: "shards: 4\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 2048}\n",
			}
			told := "the disk is full"
			if embedded {
				told = "the embedded server cannot write"
			} else {
				s.URL = natstest.Apart(t).URL
			}
			p := e2e.Prepare(t, s)
			p.Start()
			likes(t, p.URL, 100)
			liked(t, p, 100)

			insisted := insist(t, p.URL)
			disk.Fill(t)
			log := logged(t, p, told, serverHangs)
			if embedded && p.Ended() == nil {
				notReady(t, p)
			}
			time.Sleep(time.Second)
			disk.Free(t)
			stored := make(chan int64)
			go func() {
				time.Sleep(2 * time.Second)
				stored <- insisted()
			}()
			n := againUntil(t, p, stored)
			p.WaitReady()
			t.Logf("%d likes stored; %s", n, log)
			liked(t, p, 100+n)
			p.Stop()
			p.Start()
			liked(t, p, 100+n)
		})
	}
}

// serverHangs is what a process says whose embedded server has locked itself out, as
// nats-server 2.15.2 at times does on a disk that is just full: "make room and start it
// again" (docs/failures.md).
const serverHangs = "the embedded NATS server hangs"

// againUntil waits for what likes there are; meanwhile it starts a process again that ends
// because its server hangs.
func againUntil(t *testing.T, p *e2e.Process, likes <-chan int64) int64 {
	t.Helper()
	for {
		select {
		case n := <-likes:
			return n
		case <-time.After(100 * time.Millisecond):
		}
		if p.Ended() != nil {
			t.Log(logged(t, p, serverHangs))
			p.Start()
		}
	}
}

// insist publishes likes of post 42, each with an id and again and again until
// it is acknowledged, until told to end; it says how many there are then.
func insist(t *testing.T, url string, options ...nats.Option) (end func() int64) {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stop, count := make(chan struct{}), make(chan int64, 1)
	go func() {
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				count <- n
				return
			default:
			}
			insistOn(js, fmt.Sprint("like ", n), oneLike)
		}
	}()
	return func() int64 {
		close(stop)
		return <-count
	}
}

// notReady waits until a process says that it is not, or has ended.
func notReady(t *testing.T, p *e2e.Process) {
	t.Helper()
	e2e.Until(t, "it is not ready, while nothing can be stored", func() bool {
		r, err := http.Get(p.HTTP + "/readyz")
		if err != nil {
			if p.Ended() == nil {
				t.Fatal(err)
			}
			return true
		}
		r.Body.Close()
		return r.StatusCode != http.StatusOK
	})
}

// logged waits for a line of the log with one of what it may say.
func logged(t *testing.T, p *e2e.Process, what ...string) string {
	t.Helper()
	for i, w := range what {
		what[i] = regexp.QuoteMeta(w)
	}
	line := regexp.MustCompile(`(?m)^.*(` + strings.Join(what, "|") + `).*$`)
	for deadline := time.Now().Add(saidWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ended := p.Ended() // before its log is read: that has all
		log, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		if found := line.Find(log); found != nil {
			return string(found)
		}
		if ended != nil {
			t.Fatalf("it ended by itself: %v", ended)
		}
	}
	t.Fatalf("it did not say %q within %v", what, saidWithin)
	return ""
}

// Two processes on one outside server stand by for each other (docs/failures.md), also
// where the disk of the one that routes is full: "A node whose shards do not within ten
// seconds (a full disk) leaves routing to another" (docs/decisions/0012-lost-tails.md),
// and "make room; it goes on by itself".
func TestDiskFullOfWhoRoutes(t *testing.T) {
	t.Parallel()
	disk, err := e2e.NewDisk(t, filepath.Join(t.TempDir(), "disk"), 512<<20)
	if err != nil {
		t.Skip(err)
	}
	server := natstest.Apart(t)
	const settings = "shards: 4\ncluster: {replicas: 2}\nrouter: {lease_renew: 100ms, lease_expiry: 3s}\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 256}\n"
	full := e2e.Prepare(t, e2e.Setup{URL: server.URL, DataDir: filepath.Join(disk.Path, "data"), Settings: settings})
	full.Start()
	routes(t, full)
	other := e2e.RunOn(t, server.URL, settings)
	nc := other.Connect()
	liking(t, nc, 0, 2000)
	full.WaitReady()
	waitBoth(t, nc, 4)

	disk.Fill(t)
	liking(t, nc, 2000, 12_000)
	logged(t, full, "the disk is full")
	counted(t, nc, 12_000) // by the other: it still routes, and takes no more itself

	// It loses the lease, as after its server was away, and has it back at once.
	shake(t, nc)
	begun := time.Now()
	logged(t, full, "the router's lease is lost")
	liking(t, nc, 12_000, 14_000)
	routes(t, other)
	t.Logf("the other routes %v after the lease was lost", time.Since(begun).Round(time.Millisecond))
	logged(t, full, "shards have windows still to apply")
	counted(t, nc, 14_000)

	disk.Free(t)
	full.WaitReady()
	other.Stop()
	liking(t, nc, 14_000, 15_000) // routed by the first again
	counted(t, nc, 15_000)
	other.Start()
	other.WaitReady()
	full.Stop()
	counted(t, nc, 15_000)
}

// routes waits until a node routes.
func routes(t *testing.T, p *e2e.Process) {
	t.Helper()
	e2e.Until(t, "it routes", func() bool { return figure(t, p, "tidemark_router_active") == 1 })
}

// shake takes the lease from its holder, who is the next to have it.
func shake(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), "TIDEMARK")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := bucket.Get(t.Context(), "router")
	if err != nil {
		t.Fatal(err)
	}
	var holder struct{ Owner, Session string }
	if err := json.Unmarshal(lease.Value(), &holder); err != nil || holder.Owner == "" {
		t.Fatalf("the lease is %s: %v", lease.Value(), err)
	}
	if _, err := bucket.PutString(t.Context(), "router", fmt.Sprintf(`{"owner": %q, "session": "another"}`, holder.Owner)); err != nil {
		t.Fatal(err)
	}
}

// liking publishes likes of post 42, each of another author: all rows are new.
func liking(t *testing.T, nc *nats.Conn, from, to int) {
	t.Helper()
	var lines [][]byte
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Appendf(nil, `{"type":"like","actor":1,"post":42,"author":%d}`, firstUser+uint64(i)))
	}
	publishSingles(t, nc, lines)
}

// counted asks, until somebody can answer, for everything up to the end of
// EVENTS: post 42 and each author have their likes and no more.
func counted(t *testing.T, nc *nats.Conn, likes int) {
	t.Helper()
	at, c := lastPosition(t, nc), client.New(nc)
	ask := func(counter, column string, ids ...uint64) client.GetReply {
		request := client.GetRequest{Counter: counter, IDs: ids, Columns: []string{column}, MinPosition: at, Timeout: 200 * time.Millisecond}
		var err error
		for deadline := time.Now().Add(e2e.Patience); time.Now().Before(deadline); {
			var reply client.GetReply
			if reply, err = c.Get(t.Context(), request); err == nil && !reply.Degraded {
				return reply
			}
		}
		t.Fatalf("nobody has counted up to %d: %v", at, err)
		return client.GetReply{}
	}
	if got := ask("post", "like", 42).Rows[0].Values[0]; got != int64(likes) {
		t.Errorf("%d likes, want %d", got, likes)
	}
	for from := 0; from < likes; from += 10_000 {
		var authors []uint64
		for i := from; i < min(from+10_000, likes); i++ {
			authors = append(authors, firstUser+uint64(i))
		}
		for _, row := range ask("user", "liked", authors...).Rows {
			if row.Values[0] != 1 {
				t.Fatalf("author %d has %d likes, want 1", row.ID, row.Values[0])
			}
		}
	}
}
