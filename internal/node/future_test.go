package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
)

// docs/contract.md: "A position or sequence further past the log's end than could be
// under way is refused at once (400)." What is nearer waits in places of its own: a client that
// asks for what it just wrote is answered while those places are full.
func TestWaitsForTheFuture(t *testing.T) {
	n := startWith(t, func(c *config.Config) { c.Limits.Requests = 16 }) // 4 places of the future
	nc, err := nats.Connect(n.URL(), e2e.Inside(t, n.KeyFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject, body string) (data []byte, refused string) {
		t.Helper()
		m, err := nc.Request(subject, []byte(body), 20*time.Second)
		if err != nil {
			t.Fatalf("%s %s: %v", subject, body, err)
		}
		return m.Data, strings.TrimSpace(m.Header.Get("Nats-Service-Error-Code") + " " + m.Header.Get("Nats-Service-Error"))
	}
	like := func() (seq uint64) {
		t.Helper()
		data, _ := ask("events.like", `{"actor":8,"post":60,"author":7}`)
		var ack struct{ Seq uint64 }
		if err := json.Unmarshal(data, &ack); err != nil || ack.Seq == 0 {
			t.Fatalf("%s %v", data, err)
		}
		return ack.Seq
	}
	get := `{"counter":"post","ids":[60],"columns":["like"],"timeout_ms":15000,`

	end := like()
	for _, far := range []string{fmt.Sprintf(`"min_seq":%d`, end+1<<16+1), `"min_position":"18446744073709551615"`} {
		want := fmt.Sprintf("is past the log's end by more than could be under way: the last message known is %d ", end)
		if _, refused := ask("tidemark.get", get+far+`}`); !strings.HasPrefix(refused, "400 min_") || !strings.Contains(refused, want) {
			t.Errorf("%s: %q", far, refused)
		}
	}

	// Far more than there are places for anybody.
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const flood = 200
	for i := range flood {
		// In steps: in a crowd of its own the flood would be refused sooner.
		if _, refused := ask("tidemark.get", get+fmt.Sprintf(`"min_seq":%d}`, like())); refused != "" {
			t.Fatalf("an honest writer, beside %d who wait for the future: %s", i, refused)
		}
		if err := nc.PublishRequest("tidemark.get", inbox, []byte(`{"counter":"post","ids":[60],"min_seq":60000,"timeout_ms":60000}`)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range flood - 4 {
		m, err := answers.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("refusal %d of %d: %v", i, flood-4, err)
		}
		if got := m.Header.Get("Nats-Service-Error"); got != "busy: 4 requests that wait for what the log does not hold yet are in flight; ask again later" {
			t.Errorf("%q %s", got, m.Data)
		}
	}
	data, refused := ask("tidemark.get", get+fmt.Sprintf(`"min_seq":%d}`, like()))
	if want := fmt.Sprintf(`{"rows":[{"id":"60","like":%d}],`, flood+2); !strings.HasPrefix(string(data), want) {
		t.Errorf("%s %s, want %s", data, refused, want)
	}
}

// With EVENTS gone nobody can say where the log ends: nothing hangs.
func TestNobodySaysWhereTheLogEnds(t *testing.T) {
	n := startWith(t, func(*config.Config) {})
	nc, err := nats.Connect(n.URL(), e2e.Inside(t, n.KeyFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	// What the node knows of the log is known before it goes.
	if m, err := nc.Request("tidemark.schema", []byte(`{"min_seq":999999999,"timeout_ms":60000}`), 30*time.Second); err != nil || m.Header.Get("Nats-Service-Error-Code") != "400" {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := js.DeleteStream("EVENTS"); err != nil {
		t.Fatal(err)
	}
	for far, want := range map[string]string{
		"7":         "min_seq 7 was not reached within 300 ms",
		"999999999": "min_seq 999999999 is past the log's end", // by what was known before
	} {
		m, err := nc.Request("tidemark.schema", []byte(`{"min_seq":`+far+`,"timeout_ms":300}`), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get("Nats-Service-Error"); !strings.HasPrefix(got, want) {
			t.Errorf("%q %s", got, m.Data)
		}
	}
}
