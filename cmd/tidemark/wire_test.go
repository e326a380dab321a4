package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// The client of another ecosystem: NATS and JSON by hand, nothing of ours.
func TestPlainNATS(t *testing.T) {
	n := shared(t)
	nc, err := nats.Connect(n.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject, body string) *nats.Msg {
		t.Helper()
		reply, err := nc.Request(subject, []byte(body), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return reply
	}

	// docs/contract.md: "Producers publish to JetStream stream `EVENTS`, subject
	// `events.<type>`; the body is one JSON object, or up to 1,024 of them, one a line
	// (NDJSON): a *pack*."
	if ack := ask("events.like", `{"actor":7,"post":"2242","author":9}`); !strings.Contains(string(ack.Data), `"stream":"EVENTS"`) {
		t.Errorf("%s", ack.Data)
	}
	ask("events.pack", `{"type":"like","actor":8,"post":2242,"author":9}`+"\n"+`{"type":"comment","actor":8,"post":2242,"author":9}`)

	// "`tidemark.get` | `{"counter":"post","ids":["42",43],"columns":["like"]}`"
	want := `{"rows":[{"id":"2242","like":2},{"id":"2243","like":0}]`
	e2e.Until(t, want, func() bool {
		return strings.HasPrefix(string(ask("tidemark.get", `{"counter":"post","ids":["2242",2243],"columns":["like"]}`).Data), want)
	})

	// docs/contract.md: "Errors use the micro headers `Nats-Service-Error` and
	// `Nats-Service-Error-Code`"
	for body, code := range map[string]string{
		`{"counter":"pots","ids":["42"]}`:                                                             "404",
		`{"counter":"post","ids":["0"]}`:                                                              "400",
		`{"counter":"post","ids":["42"],"min_position":"18446744073709551615"}`:                       "400",
		fmt.Sprintf(`{"counter":"post","ids":["42"],"min_seq":%d,"timeout_ms":10}`, n.eventsEnd(t)+9): "504",
	} {
		reply := ask("tidemark.get", body)
		if reply.Header.Get("Nats-Service-Error-Code") != code || reply.Header.Get("Nats-Service-Error") == "" {
			t.Errorf("%s: %v", body, reply.Header)
		}
	}

	// docs/contract.md: "NATS micro service `tidemark` (so `nats micro ls/info/stats` show
	// it)"
	if reply := ask("$SRV.INFO.tidemark", ""); !strings.Contains(string(reply.Data), `"subject":"tidemark.get"`) {
		t.Errorf("%s", reply.Data)
	}
}
