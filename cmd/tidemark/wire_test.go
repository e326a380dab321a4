package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// The client of another ecosystem: NATS and JSON by hand, nothing of ours.
func TestPlainNATS(t *testing.T) {
	n := newPlace(t).start(t)
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
	if ack := ask("events.like", `{"actor":7,"post":"42","author":9}`); !strings.Contains(string(ack.Data), `"stream":"EVENTS"`) {
		t.Errorf("%s", ack.Data)
	}
	ask("events.pack", `{"type":"like","actor":8,"post":42,"author":9}`+"\n"+`{"type":"comment","actor":8,"post":42,"author":9}`)

	// "`tidemark.get` | `{"counter":"post","ids":["42",43],"columns":["like"]}`"
	want := `{"rows":[{"id":"42","like":2},{"id":"43","like":0}]`
	e2e.Until(t, want, func() bool {
		return strings.HasPrefix(string(ask("tidemark.get", `{"counter":"post","ids":["42",43],"columns":["like"]}`).Data), want)
	})

	// docs/contract.md: "Errors use the micro headers `Nats-Service-Error` and
	// `Nats-Service-Error-Code`"
	for body, code := range map[string]string{
		`{"counter":"pots","ids":["42"]}`:                                       "404",
		`{"counter":"post","ids":["0"]}`:                                        "400",
		`{"counter":"post","ids":["42"],"min_seq":99,"timeout_ms":10}`:          "504",
		`{"counter":"post","ids":["42"],"min_position":"18446744073709551615"}`: "400",
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

	t.Run("dead letters", func(t *testing.T) { deadLetters(t, n, nc) })
}

// docs/contract.md: "Anything that cannot be understood … goes to stream `DEADLETTER`,
// subject `deadletter.<reason>`: the body (of a pack, the line) and the headers as they
// came, with headers for the source sequence, line and reason added; it is counted in
// metrics, and the pipeline goes on."
func deadLetters(t *testing.T, n *process, nc *nats.Conn) {
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	letters, err := n.connect(t).SubscribeSync("deadletter.>", nats.DeliverAll())
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"not json", `{"actor":0,"post":42,"author":9}`} {
		msg := &nats.Msg{Subject: "events.like", Data: []byte(body), Header: nats.Header{"Trace": {"abc"}}}
		if _, err := js.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	bad := `{"type":"nope","actor":1}`
	if _, err := js.Publish("events.pack", []byte(`{"type":"like","actor":9,"post":42,"author":9}`+"\n"+bad)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ body, reason, line, trace string }{
		{"not json", "json", "0", "abc"},
		{`{"actor":0,"post":42,"author":9}`, "id", "0", "abc"},
		{bad, "type", "1", ""},
	} {
		m, err := letters.NextMsg(time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", want.body, err)
		}
		if string(m.Data) != want.body || m.Subject != "deadletter."+want.reason {
			t.Errorf("%s: %s", m.Subject, m.Data)
		}
		h := m.Header
		if h.Get("Trace") != want.trace || h.Get("Tidemark-Reason") != want.reason || h.Get("Tidemark-Line") != want.line || h.Get("Tidemark-Sequence") == "" {
			t.Errorf("%s: headers %v", want.body, h)
		}
	}
	e2e.Until(t, "the pipeline goes on", func() bool { return n.do("get", "42.cntan").out == "3\n" })
	e2e.Until(t, "counted in metrics", func() bool {
		_, body := n.page("/metrics")
		for _, reason := range []string{"json", "id", "type"} {
			if !strings.Contains(body, `tidemark_deadletters_total{reason="`+reason+`"} 1`+"\n") {
				return false
			}
		}
		return true
	})
}
