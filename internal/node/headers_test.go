package node

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// Whatever bytes a client has published as headers, each like counts, and a node of which
// such a message is the last one counted starts again and counts on.
func FuzzHeaders(f *testing.F) {
	f.Add("NATS/1.0\r\nno colon here\r\n\r\n", false)
	f.Add("NATS/1.0\r\nA: b\nc\r\n\r\n", true)
	f.Add("NATS/1.0\r\nStatus: 404\r\nNats-Pending-Messages: x\r\n\r\n", true)
	f.Add("\x00\xff\x00", false)
	f.Fuzz(func(t *testing.T, header string, last bool) {
		if len(header) <= 2 {
			t.Skip("between accounts the server puts so short a block before the body, which is a dead letter then")
		}
		c := nodetest.EachLikeCounts()
		c.DataDir, c.NATS.Listen, c.HTTP.Listen, c.Shards = t.TempDir(), "127.0.0.1:0", "", 4
		likes := countLikes(t, c, header, 0, !last)
		if again := countLikes(t, c, header, likes, true); again <= likes {
			t.Errorf("%d likes count after a restart, and %d before", again, likes)
		}
	})
}

// countLikes runs a node, publishes a like with a header block to it, and, with plain, one
// without; it returns how many are stored with those before, all of which must count.
func countLikes(t *testing.T, c *config.Config, header string, before int, plain bool) int {
	t.Helper()
	n, err := Start(t.Context(), c, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("after headers %q: %v", header, err)
	}
	defer n.Close()
	nc, err := nats.Connect(n.nc.ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stored := before
	like := func(header string) {
		body := fmt.Sprintf(`{"actor":%d,"post":42,"author":9}`, stored+1)
		if natstest.PublishRaw(t, n.nc.ConnectedUrl(), "events.like", header, body) != 0 {
			stored++
		}
	}
	like(header)
	if plain {
		like("NATS/1.0\r\n\r\n")
	}
	counted := 0
	e2e.Until(t, fmt.Sprintf("%d likes with headers %q count", stored, header), func() bool {
		reply, err := nc.Request("tidemark.get", []byte(`{"counter":"post","ids":["42"]}`), time.Second)
		if err != nil {
			return false
		}
		var answer struct {
			Rows []struct {
				Like int `json:"like"`
			} `json:"rows"`
		}
		if json.Unmarshal(reply.Data, &answer) == nil && len(answer.Rows) == 1 {
			counted = answer.Rows[0].Like
		}
		return counted == stored
	})
	return stored
}
