package acceptance_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/query/client"
)

// How long it takes from kill -9 of a holder until every answer is whole again, and from
// kill -9 of the router until events count again, at default settings. Times are only
// reported: another machine, or one that does something else besides, has others.
// -nodes.full measures more of them.
func TestNodesFailover(t *testing.T) {
	t.Parallel()
	kills := 2
	if *nodesFull {
		kills = 6
	}
	_, lines := slice(t, follows, follows+5_000)
	random := rand.New(rand.NewPCG(1, 1))
	feed := newFeed(t, lines, 60, random)
	f := newFleet(t, natstest.Apart(t).URL, "", "a", "b", "c", "d")
	feed.publish(t, f.nc, len(feed.messages), time.Second)
	if _, err := f.client.Get(t.Context(), client.GetRequest{
		Counter: "post", IDs: feed.posts[:1], MinPosition: client.Acked(feed.acked.Load()), Timeout: time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	var whole, routed []time.Duration
	for range kills {
		r := &nodesRun{fleet: f, random: random}
		p := f.holders[r.any(f.router())]
		begun, end := probe(t, f.nc, feed.posts)
		p.Kill()
		time.Sleep(3 * time.Second)
		whole = append(whole, end().Sub(begun))
		p.Start()
		f.waitWhole()

		p = f.holders[f.router()]
		p.Kill()
		killed := time.Now()
		count(t, f.nc)
		routed = append(routed, time.Since(killed))
		p.Start()
		f.waitWhole()
	}
	slices.Sort(whole)
	slices.Sort(routed)
	t.Logf("kill -9 of a holder until every answer is whole again: median %v, longest %v", whole[kills/2], whole[kills-1])
	t.Logf("kill -9 of the router until events count again: median %v, longest %v", routed[kills/2], routed[kills-1])
}

// probe asks from many goroutines, from a moment on. end stops, and gives the end of the last
// answer that was not whole or took long; the moment, if there was none.
func probe(t *testing.T, nc *nats.Conn, ids []uint64) (begun time.Time, end func() time.Time) {
	const askers, long = 8, 150 * time.Millisecond
	begun = time.Now()
	var mu sync.Mutex
	last, stop := begun, make(chan struct{})
	var work sync.WaitGroup
	for range askers {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				asked := time.Now()
				got, err := client.New(nc).Get(context.Background(), client.GetRequest{Counter: "post", IDs: ids[:min(len(ids), 500)]})
				if now := time.Now(); err != nil || got.Degraded || now.Sub(asked) > long {
					mu.Lock()
					last = now
					mu.Unlock()
				}
			}
		})
	}
	return begun, func() time.Time {
		close(stop)
		work.Wait()
		return last
	}
}

// count publishes an event, and returns when it is counted.
func count(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), "events.like", []byte(`{"actor":1,"post":42,"author":7}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(nc).Get(t.Context(), client.GetRequest{
		Counter: "post", IDs: []uint64{42}, MinPosition: client.Acked(ack.Sequence), Timeout: time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
}
