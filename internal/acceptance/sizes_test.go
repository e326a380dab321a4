package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// idsMax is limits.ids: docs/contract.md: "At most 10,000 ids (or users) a request."
const idsMax = 10_000

// As many ids as the contract says are answered by a node as it comes, also when ids and counts
// are long, which only a real server's bound of a message shows; on a node whose
// transactions are smallest, with all of it in one shard. 100,000 ids that nobody has heard of
// are answered like all others, and leave nothing behind.
func TestLargestRequests(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	p := e2e.Run(t, "shards: 1\nmemory: {budget: 36MiB}\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 7500}\n")
	nc := p.Connect()
	const first, unheard = 1<<64 - 1 - idsMax, uint64(1 << 50)
	reached(t, nc, store(t, nc, func(add func(client.Event)) {
		for i := range uint64(idsMax) {
			for _, column := range userColumns[:9] {
				add(client.AdjustSet("user", first+i, column, 1<<40))
			}
			for _, column := range append(ledgerColumns["unread."], "message") {
				add(client.AdjustSet("unread", first+i, column, 1<<40))
			}
			add(client.Follow(1+i, 1_000_001+i)) // two edges and four rows
		}
	}))
	ask := func(endpoint, body string) string {
		t.Helper()
		reply, err := nc.Request("tidemark."+endpoint, []byte(body), e2e.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return string(reply.Data) + reply.Header.Get("Nats-Service-Error")
	}
	for _, c := range []struct {
		endpoint, body, part string
		want                 int
	}{
		{"get", `{"counter":"user","ids":` + list(first, idsMax) + `}`, fmt.Sprint(1 << 40), 9 * idsMax},
		{"unread", `{"users":` + list(first, idsMax) + `}`, fmt.Sprint(1 << 40), 6 * idsMax},
		{"get", `{"counter":"user","columns":["follower"],"ids":` + list(1_000_001, idsMax) + `}`, `"follower":1}`, idsMax},
	} {
		if got := ask(c.endpoint, c.body); strings.Count(got, c.part) != c.want {
			t.Errorf("%s: %d counts, want %d: %.300s", c.endpoint, strings.Count(got, c.part), c.want, got)
		}
	}

	unknown := func(from, to uint64) {
		t.Helper()
		for at := from; at < to; at += idsMax {
			got := ask("get", `{"counter":"post","columns":["like"],"ids":`+list(at, idsMax)+`}`)
			if n := strings.Count(got, `"like":0}`); n != idsMax {
				t.Fatalf("%d of %d ids without anything: %.300s", n, idsMax, got)
			}
		}
	}
	unknown(unheard, unheard+20_000) // the buffers of large requests are there after this
	rows := figure(t, p, "tidemark_row_bytes")
	unknown(unheard<<1, unheard<<1+100_000)
	// To remember 100,000 ids would take 1.6 MB of rows. Absences found on disk are kept in
	// the cache of rows read, which is an eighth of the rows' memory.
	if grown := figure(t, p, "tidemark_row_bytes") - rows; grown > 1<<20 {
		t.Errorf("rows take %.0f bytes more than before", grown)
	}
}

// store publishes events in full packs and does not wait for answers.
func store(t *testing.T, nc *nats.Conn, write func(add func(client.Event))) client.Position {
	t.Helper()
	p, err := client.New(nc).NewPacker(client.PackOptions{LinesMax: pipeline.PackMax, Delay: -1})
	if err != nil {
		t.Fatal(err)
	}
	write(func(e client.Event) {
		if err == nil {
			err = p.Add(e)
		}
	})
	if err := errors.Join(err, p.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	return p.Position()
}

// reached returns once answers have a position in.
func reached(t *testing.T, nc *nats.Conn, at client.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e2e.Patience)
	defer cancel()
	request := client.GetRequest{Counter: "post", IDs: []uint64{1}, MinPosition: at, Timeout: time.Minute}
	if _, err := client.New(nc).Get(ctx, request); err != nil {
		t.Fatalf("position %d is not answered: %v", at, err)
	}
}

// list is a JSON array of n ids from the first on.
func list(first uint64, n int) string {
	b := []byte{'['}
	for i := range uint64(n) {
		b = append(strconv.AppendUint(b, first+i, 10), ',')
	}
	return string(append(b[:len(b)-1], ']'))
}

// page is the body of one of a process's pages.
func page(t *testing.T, p *e2e.Process, path string) string {
	t.Helper()
	c := http.Client{Timeout: time.Minute}
	r, err := c.Get(p.HTTP + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
