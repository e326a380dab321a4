package acceptance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

// cluster is somebody else's NATS server, whose streams can be put back to
// what they were, as a power cut does.
type cluster struct {
	*testing.T
	dir    string
	port   int
	server *embed.Server
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, dir: t.TempDir(), port: e2e.FreePort(t)}
	c.start()
	t.Cleanup(func() { c.server.Close() })
	return c
}

func (c *cluster) start() {
	c.Helper()
	var err error
	c.server, err = embed.StartServer(embed.ServerOptions{
		Listen: fmt.Sprintf("127.0.0.1:%d", c.port), StoreDir: c.dir, SyncInterval: time.Second, StoreBytesMax: 1 << 40,
	})
	if err != nil {
		c.Fatal(err)
	}
}

// replicas has two processes stand in for each other, and what is gone be placed
// again soon.
const replicas = "cluster: {replicas: 2, replace_after: 3s}\n"

func (c *cluster) run(settings string) *e2e.Process {
	return e2e.RunOn(c.T, c.server.URL(), replicas+settings)
}

// save copies a stream; the function it returns puts the copy back. The
// server is down meanwhile, both times.
func (c *cluster) save(stream string) (restore func()) {
	c.server.Close()
	kept := filepath.Join(c.TempDir(), stream)
	copyDir(c.T, streamDir(c.dir, stream), kept)
	c.start()
	return func() {
		c.server.Close()
		if err := os.RemoveAll(streamDir(c.dir, stream)); err != nil {
			c.Fatal(err)
		}
		copyDir(c.T, kept, streamDir(c.dir, stream))
		c.start()
	}
}

func streamDir(store, stream string) string {
	account := filepath.Join(store, "jetstream", walls.Inside)
	if _, err := os.Stat(account); err != nil {
		account = filepath.Join(store, "jetstream", "$G") // of a server without walls
	}
	return filepath.Join(account, "streams", stream)
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// likes publishes likes of post 42; all are acknowledged when it returns. One that is
// not, because the server has just been started, is published again by its id.
func likes(t *testing.T, url string, n int, options ...nats.Option) {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	of, acks := nats.NewInbox(), make([]jetstream.PubAckFuture, n)
	id := func(i int) string { return fmt.Sprint(of, " ", i) }
	for i := range n {
		if acks[i], err = js.PublishAsync("events.like", oneLike, patient, jetstream.WithMsgID(id(i))); err != nil {
			t.Fatal(err)
		}
	}
	within := time.After(ackedWithin)
	for i, ack := range acks {
		select {
		case <-ack.Ok():
		case <-ack.Err():
			if _, err := publishOnce(js, "events.like", id(i), oneLike); err != nil {
				t.Fatal(err)
			}
		case <-within:
			t.Fatalf("%d of %d likes are not acknowledged within %v", n-i, n, ackedWithin)
		}
	}
}

// oneLike is of post 42.
var oneLike = []byte(`{"type":"like","actor":1,"post":42,"author":7}`)

const (
	// ackedWithin bounds the acknowledgements of what is published at once.
	ackedWithin = e2e.Patience
	// likedWithin bounds what it takes until they are counted, on a machine that does
	// much besides.
	likedWithin = 2 * time.Minute
)

// liked waits until post 42 has so many likes, and a moment longer.
func liked(t *testing.T, p *e2e.Process, want int64, options ...nats.Option) {
	t.Helper()
	c, err := client.Connect(p.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() int64 {
		reply, err := c.Get(context.Background(), client.GetRequest{Counter: "post", IDs: []uint64{42}, Columns: []string{"like"}})
		if err != nil || reply.Degraded {
			return -1
		}
		return reply.Rows[0].Values[0]
	}
	// Any node answers, and one may be behind another: all have it when no answer has
	// been otherwise for a while. None may ever have more.
	const steady = 300 * time.Millisecond
	since, got := time.Now(), int64(0)
	for deadline := time.Now().Add(likedWithin); time.Since(since) < steady || got != want; time.Sleep(20 * time.Millisecond) {
		if got = ask(); got != want {
			since = time.Now()
		}
		if got > want || time.Now().After(deadline) {
			t.Fatalf("%d likes, want %d", got, want)
		}
	}
}

// "No sequence ever means two events." (I10) Producers may be faster: what they were
// acknowledged counts all the same.
func TestEventsLoseTheirTail(t *testing.T) {
	t.Parallel()
	t.Run("while the node runs", func(t *testing.T) {
		c := newCluster(t)
		p := c.run("shards: 4\n")
		likes(t, p.URL, 100)
		liked(t, p, 100)
		restore := c.save("EVENTS")
		likes(t, p.URL, 100)
		liked(t, p, 200)
		restore()
		for range 15 {
			likes(t, p.URL, 10)
			time.Sleep(100 * time.Millisecond)
		}
		liked(t, p, 350)
		likes(t, p.URL, 1)
		liked(t, p, 351)
	})
	t.Run("before the start", func(t *testing.T) {
		p := e2e.Run(t, "shards: 4\n")
		likes(t, p.URL, 1000)
		liked(t, p, 1000)
		p.Stop()
		store, kept := filepath.Join(p.Dir, "data", "jetstream"), filepath.Join(t.TempDir(), "EVENTS")
		copyDir(t, streamDir(store, "EVENTS"), kept)
		p.Start()
		likes(t, p.URL, 1000)
		liked(t, p, 2000)
		p.Stop()
		if err := os.RemoveAll(streamDir(store, "EVENTS")); err != nil {
			t.Fatal(err)
		}
		copyDir(t, kept, streamDir(store, "EVENTS"))

		// A producer that is there before the node is.
		insisted := insist(t, p.URL, nats.RetryOnFailedConnect(true), nats.ReconnectWait(time.Millisecond))
		p.Start()
		time.Sleep(time.Second)
		acknowledged := insisted()
		t.Logf("%d events acknowledged since the power cut", acknowledged)
		liked(t, p, 2000+acknowledged)
	})
}

// DELTAS loses windows that shards have applied: they are derived again, with
// ends where the shards stand (I3).
func TestDeltasLoseTheirTail(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.run("shards: 4\ncheckpoint: {interval: 50ms}\n")
	for range 5 {
		likes(t, p.URL, 20)
		time.Sleep(50 * time.Millisecond)
	}
	liked(t, p, 100)
	restore := c.save("DELTAS")
	for range 2 {
		likes(t, p.URL, 20)
		time.Sleep(50 * time.Millisecond)
	}
	liked(t, p, 140)
	restore()
	for range 20 {
		likes(t, p.URL, 10)
		time.Sleep(50 * time.Millisecond)
	}
	liked(t, p, 340)
	p.Stop()
	p.Start()
	liked(t, p, 340)
}

// A log that was recreated begins anywhere: a node without state, too, comes to
// where it begins.
func TestDeltasMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.run("shards: 4\n")
	likes(t, a.URL, 100)
	liked(t, a, 100)
	a.Stop()
	nc := a.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(context.Background(), "DELTAS"); err != nil {
		t.Fatal(err)
	}
	a.Start()
	likes(t, a.URL, 100)
	liked(t, a, 200)
	b := c.run("shards: 4\n")
	b.WaitReady()
	a.Stop()
	liked(t, b, 200)
	likes(t, b.URL, 1)
	liked(t, b, 201)
}

// A node that derives for itself what DELTAS no longer holds is killed on the
// way, and goes on from there.
func TestCatchUpKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.run("shards: 4\ncheckpoint: {interval: 20ms}\n")
	likes(t, a.URL, 30_000)
	liked(t, a, 30_000)
	stream := natstest.Stream(t, a.Connect(), "DELTAS")
	if err := stream.Purge(context.Background(), jetstream.WithPurgeSequence(stream.CachedInfo().State.LastSeq)); err != nil {
		t.Fatal(err)
	}
	b := c.run("shards: 4\n")
	a.Stop() // else b takes from it what it lacks
	b.Kill()
	if err := os.RemoveAll(filepath.Join(b.Dir, "data", "badger")); err != nil {
		t.Fatal(err)
	}
	// Windows of one event make the way long.
	b.Configure(replicas + "shards: 4\nwindows: {events: 1}\ncheckpoint: {interval: 10ms}\n")
	log, err := os.ReadFile(b.Log())
	if err != nil {
		t.Fatal(err)
	}
	const derives = "deriving windows again"
	before := strings.Count(string(log), derives)
	for i := range 5 {
		b.Spawn()
		if i == 0 { // later it may have come to the end by itself
			e2e.Until(t, "it has to catch up", func() bool {
				log, err := os.ReadFile(b.Log())
				return err == nil && strings.Count(string(log), derives) > before
			})
		}
		time.Sleep(time.Duration(20+100*i) * time.Millisecond)
		b.Kill()
	}
	b.Start()
	b.WaitReady()
	liked(t, b, 30_000)
	likes(t, b.URL, 1)
	liked(t, b, 30_001)
}

// Two nodes with the same configuration, of which one has had another column
// before.
func TestHistoriesDiffer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const now = "shards: 4\ncounters: {post: {like: {}}}\nrules: {like: [{add: post.like, key: post}]}\n"
	a := c.run("shards: 4\ncounters: {post: {like: {}, odd: {}}}\nrules: {like: [{add: post.like, key: post}]}\n")
	likes(t, a.URL, 10)
	liked(t, a, 10)
	a.Stop()
	a.Configure(now)
	a.Start()
	b := c.run(now)
	likes(t, a.URL, 10)
	if _, err := client.New(a.Connect()).Publish(context.Background(), client.AdjustDel("post", 43)); err != nil {
		t.Fatal(err)
	}
	b.WaitReady()
	a.WaitReady()
	a.Stop()
	liked(t, b, 20)
}
