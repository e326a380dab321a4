package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// diskSettings have a node write soon, and little at a time.
const diskSettings = "shards: 4\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 512}\n"

// docs/failures.md of a full disk: "make room; it goes on by itself". With -short the server's
// disk is another one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, embedded := range map[string]bool{"the node's": false, "the embedded server's, too": true} {
		t.Run(name, func(t *testing.T) {
			if embedded {
				natstest.Long(t)
			}
			t.Parallel()
			disk := newDisk(t, 768<<20)
			s := e2e.Setup{DataDir: filepath.Join(disk.Path, "data"), Settings: diskSettings}
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
			t.Log(logged(t, p, told, serverHangs))
			if embedded && p.Ended() == nil {
				notReady(t, p)
			}
			disk.Free(t)
			stored := insisted.stored()
			e2e.Until(t, "events are stored again", func() bool {
				if p.Ended() != nil {
					t.Log(logged(t, p, serverHangs))
					p.Start()
				}
				return insisted.stored() > stored+50
			})
			p.WaitReady()
			n := insisted.end()
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

func newDisk(t *testing.T, bytes int64) *e2e.Disk {
	t.Helper()
	disk, err := e2e.NewDisk(t, filepath.Join(t.TempDir(), "disk"), bytes)
	if err != nil {
		t.Skip(err)
	}
	return disk
}

// insister publishes likes of post 42, each with an id and again and again until it is
// acknowledged, and remembers when it was.
type insister struct {
	mu    sync.Mutex
	acked []ack
	end   func() int64 // and how many there are
}

type ack struct {
	at       time.Time
	position pipeline.Position
}

func insist(t *testing.T, url string, options ...nats.Option) *insister {
	t.Helper()
	options = append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, options...)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	i, js, stop, done := &insister{}, streamsOf(t, nc), make(chan struct{}), make(chan struct{})
	i.end = sync.OnceValue(func() int64 {
		close(stop)
		<-done
		nc.Close()
		return i.stored()
	})
	t.Cleanup(func() { i.end() })
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			stored, err := publishOnce(js, "events.like", fmt.Sprint("like ", n), oneLike)
			if err != nil {
				t.Error(err)
				return
			}
			i.mu.Lock()
			i.acked = append(i.acked, ack{time.Now(), pipeline.EndOf(stored.Sequence)})
			i.mu.Unlock()
		}
	}()
	return i
}

func (i *insister) stored() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return int64(len(i.acked))
}

// before is the last position that was acknowledged before a time.
func (i *insister) before(t time.Time) pipeline.Position {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := sort.Search(len(i.acked), func(n int) bool { return !i.acked[n].at.Before(t) })
	if n == 0 {
		return 0
	}
	return i.acked[n-1].position
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

// Two processes on one outside server stand by for each other (docs/failures.md), also
// where the disk of the one that routes is full: "A node whose shards do not within ten
// seconds (a full disk) leaves routing to another" (docs/decisions/0012-lost-tails.md),
// and "make room; it goes on by itself".
func TestDiskFullOfWhoRoutes(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	disk, server := newDisk(t, 512<<20), natstest.Apart(t)
	const settings = diskSettings + "cluster: {replicas: 2}\nrouter: {lease_renew: 100ms, lease_expiry: 3s}\n"
	stuck := e2e.Prepare(t, e2e.Setup{URL: server.URL, DataDir: filepath.Join(disk.Path, "data"), Settings: settings})
	stuck.Start()
	routes := func(p *e2e.Process) {
		t.Helper()
		e2e.Until(t, "it routes", func() bool { return figure(t, p, "tidemark_router_active") == 1 })
	}
	routes(stuck)
	other := e2e.RunOn(t, server.URL, settings)
	nc, published := other.Connect(), 0
	liking := func(n int) { // each of another author: all rows are new
		t.Helper()
		var lines [][]byte
		for range n {
			published++
			lines = append(lines, fmt.Appendf(nil, `{"type":"like","actor":1,"post":42,"author":%d}`, 1_000_000+published))
		}
		publishSingles(t, nc, lines)
	}
	counted := func() {
		t.Helper()
		liked(t, other, int64(published))
	}
	liking(2000)
	stuck.WaitReady()
	waitWhole(t, client.New(nc), 4)

	disk.Fill(t)
	liking(10_000)
	logged(t, stuck, "the disk is full")
	counted() // by the other: it still routes, and takes no more itself

	// It loses the lease, as after its server was away, and has it back at once.
	shake(t, nc)
	logged(t, stuck, "the router's lease is lost")
	liking(2000)
	routes(other)
	logged(t, stuck, "shards have windows still to apply")
	counted()

	disk.Free(t)
	stuck.WaitReady()
	other.Stop()
	liking(1000) // routed by the first again
	counted()
	other.Start()
	other.WaitReady()
	stuck.Stop()
	counted()
}

// shake takes the lease from its holder, who is the next to have it.
func shake(t *testing.T, nc *nats.Conn) {
	t.Helper()
	bucket, err := streamsOf(t, nc).KeyValue(t.Context(), "TIDEMARK")
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
