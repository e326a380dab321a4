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
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// standsIn has a process stand in for another one, and others for it soon.
const standsIn = "shards: 4\ncluster: {replicas: 2, replace_after: 3s}\ncheckpoint: {interval: 50ms}\n"

// down stops a server for as long as something is done.
func down(t *testing.T, server *natstest.Member, do func()) {
	t.Helper()
	server.Stop()
	do()
	server.Start()
	e2e.Until(t, "the server is there again", func() bool {
		nc, err := nats.Connect(server.URL)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// saveStream copies a stream; the function it returns puts the copy back, as a power cut does
// with what was not on disk. The server is down, both times.
func saveStream(t *testing.T, store, account, stream string) (restore func()) {
	at, kept := filepath.Join(store, "jetstream", account, "streams", stream), filepath.Join(t.TempDir(), stream)
	replace := func(from, to string) {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	replace(at, kept)
	return func() { replace(kept, at) }
}

// oneLike is of post 42.
var oneLike = []byte(`{"type":"like","actor":1,"post":42,"author":7}`)

// likes publishes likes of post 42; all are acknowledged when it returns. One that is
// not, because the server has just been started, is published again by its id.
func likes(t *testing.T, url string, n int, options ...nats.Option) {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	of, acks, js := nats.NewInbox(), make([]jetstream.PubAckFuture, n), streamsOf(t, nc)
	id := func(i int) string { return fmt.Sprint(of, " ", i) }
	for i := range n {
		if acks[i], err = js.PublishAsync("events.like", oneLike, patient, jetstream.WithMsgID(id(i))); err != nil {
			t.Fatal(err)
		}
	}
	within := time.After(e2e.Patience)
	for i, ack := range acks {
		select {
		case <-ack.Ok():
		case <-ack.Err():
			if _, err := publishOnce(js, "events.like", id(i), oneLike); err != nil {
				t.Fatal(err)
			}
		case <-within:
			t.Fatalf("%d of %d likes are not acknowledged within %v", n-i, n, e2e.Patience)
		}
	}
}

// liked waits until post 42 has so many likes in many answers in a row. Any node answers, and
// one may be behind another: all have it then. None may ever have more.
func liked(t *testing.T, p *e2e.Process, want int64, options ...nats.Option) {
	t.Helper()
	c, err := client.Connect(p.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const steady = 10
	row := 0
	e2e.Until(t, fmt.Sprintf("%d likes in %d answers", want, steady), func() bool {
		reply, err := c.Get(context.Background(), client.GetRequest{Counter: "post", IDs: []uint64{42}, Columns: []string{"like"}})
		row++
		if err != nil || reply.Degraded || reply.Rows[0].Values[0] < want {
			row = 0
		} else if got := reply.Rows[0].Values[0]; got > want {
			t.Fatalf("%d likes, want %d", got, want)
		}
		return row == steady
	})
}

// "No sequence ever means two events." (I10) What is lost counts no more, and what producers
// were acknowledged since then counts. The simulation has more of it; here the streams are
// nats-server's.
func TestEventsLoseTheirTail(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	t.Run("while the node runs", func(t *testing.T) {
		t.Parallel()
		server, restore := natstest.Apart(t), func() {}
		p := e2e.RunOn(t, server.URL, standsIn)
		likes(t, p.URL, 100)
		liked(t, p, 100)
		down(t, server, func() { restore = saveStream(t, server.StoreDir(), "$G", "EVENTS") })
		likes(t, p.URL, 100)
		liked(t, p, 200)
		down(t, server, restore)
		for range 15 {
			likes(t, p.URL, 10)
		}
		recounted(t, p, 250)
		likes(t, p.URL, 1)
		liked(t, p, 251)
	})
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		p := e2e.Run(t, "shards: 4\n")
		likes(t, p.URL, 1000)
		liked(t, p, 1000)
		p.Stop()
		restore := saveStream(t, filepath.Join(p.Dir, "data", "jetstream"), walls.Inside, "EVENTS")
		p.Start()
		likes(t, p.URL, 1000)
		liked(t, p, 2000)
		p.Stop()
		restore()
		// A producer that is there before the node is.
		insisted := insist(t, p.URL, nats.RetryOnFailedConnect(true), nats.ReconnectWait(time.Millisecond))
		p.Start()
		e2e.Until(t, "events are stored", func() bool { return insisted.stored() > 200 })
		recounted(t, p, 1000+insisted.end())
	})
}

// recounted waits until everything is counted again: the counts are what EVENTS holds.
func recounted(t *testing.T, p *e2e.Process, want int64) {
	t.Helper()
	logged(t, p, "everything is counted again")
	logged(t, p, "another generation serves")
	liked(t, p, want)
}

// What is not EVENTS may be deleted or emptied while nodes run, and strangers may write into
// it: both nodes go on by themselves, each alone too, and what is refused is kept. Forms of it
// with another order of calls are the simulation's.
func TestStreamsDeleted(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	server := natstest.Apart(t)
	nodes := []*e2e.Process{e2e.RunOn(t, server.URL, standsIn), e2e.RunOn(t, server.URL, standsIn)}
	nc := nodes[0].Connect()
	js := streamsOf(t, nc)
	want := int64(0)
	for _, harm := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"a foreign message in DELTAS", func(ctx context.Context) error {
			subject := natstest.Stream(t, nc, jetlog.DeltasStream).CachedInfo().Config.Subjects[0]
			_, err := js.Publish(ctx, subject, []byte("oops"))
			return err
		}},
		{"DELTAS deleted", func(ctx context.Context) error { return js.DeleteStream(ctx, "DELTAS") }},
		{"DELTAS purged", func(ctx context.Context) error { return natstest.Stream(t, nc, "DELTAS").Purge(ctx) }},
		{"DELTAS' last window", func(ctx context.Context) error {
			deltas := natstest.Stream(t, nc, "DELTAS")
			return deltas.DeleteMsg(ctx, deltas.CachedInfo().State.LastSeq)
		}},
		{"the bucket purged", func(ctx context.Context) error { return natstest.Stream(t, nc, "KV_TIDEMARK").Purge(ctx) }},
		{"everything but EVENTS deleted", func(ctx context.Context) error {
			for _, stream := range []string{"DELTAS", "DEADLETTER", "KV_TIDEMARK"} {
				if err := js.DeleteStream(ctx, stream); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		e2e.Until(t, harm.name, func() bool { return harm.do(t.Context()) == nil }) // another one is made meanwhile
		likes(t, server.URL, 100)
		want += 100
		if _, err := js.Publish(t.Context(), "events.like", []byte("not JSON")); err != nil {
			t.Fatal(err)
		}
		liked(t, nodes[0], want)
		for _, name := range []string{"DELTAS", "DEADLETTER", "KV_TIDEMARK"} {
			e2e.Until(t, "stream "+name+" is there", func() bool {
				_, err := js.Stream(t.Context(), name)
				return err == nil
			})
		}
		e2e.Until(t, "a dead letter is kept, after: "+harm.name, func() bool {
			letters, err := js.Stream(t.Context(), "DEADLETTER")
			return err == nil && letters.CachedInfo().State.Msgs > 0
		})
	}
	for i, p := range nodes {
		p.WaitReady()
		nodes[1-i].Stop()
		liked(t, p, want)
		nodes[1-i].Start()
	}
}

// What is lost from the beginning of EVENTS is told, by the log, /readyz and /metrics, and
// counts stand.
func TestEventsLoseTheirBeginning(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	likes(t, p.URL, 100)
	liked(t, p, 100)
	stream := natstest.Stream(t, p.Connect(), jetlog.EventsStream)
	if stream.DeleteMsg(t.Context(), 50) == nil {
		t.Error("an event was taken away from the middle")
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeKeep(10)); err != nil {
		t.Fatal(err)
	}
	logged(t, p, "stream EVENTS has lost its beginning")
	e2e.Until(t, "/readyz tells of 90 messages", func() bool {
		got := page(t, p, "/readyz")
		return strings.HasPrefix(got, "ok\n") && strings.Contains(got, "90 messages")
	})
	if purged := figure(t, p, "tidemark_events_purged_total"); purged != 90 {
		t.Errorf("%v messages are gone by /metrics", purged)
	}
	likes(t, p.URL, 1)
	liked(t, p, 101)
}

// DELTAS that is nearly full is purged although somebody reports, again and again, that it needs
// old windows: else nothing would be counted any more. The simulation has a full DELTAS, but not
// this way out.
func TestGhostReport(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	p := e2e.Prepare(t, e2e.Setup{
		URL: natstest.Apart(t).URL, NATS: "streams: {deltas: {max_bytes: 1MiB}}",
		Settings: "shards: 4\nwindows: {events: 1, bytes: 64KiB}\ncheckpoint: {interval: 1s}\n",
	})
	p.Start()
	bucket, err := streamsOf(t, p.Connect()).KeyValue(t.Context(), "TIDEMARK")
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(20) { // a window for each like: more than DELTAS holds
		if _, err := bucket.PutString(t.Context(), "node.ghost", "1"); err != nil {
			t.Fatal(err)
		}
		likes(t, p.URL, 500)
		liked(t, p, (n+1)*500)
	}
	logged(t, p, "DELTAS is nearly full and reports of nodes hold its purge back")
}
