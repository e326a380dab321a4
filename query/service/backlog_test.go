package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Every request that arrives is answered, also when more arrives at once than
// may wait: the rest is told to come back. nats.go alone drops what is above
// 64 MiB.
func TestMoreThanMayWait(t *testing.T) {
	r := start(t)
	release := make(chan struct{})
	r.reader.Before = func() { <-release }
	answers, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	const flood = 3600
	body := []byte(`{"counter":"post","ids":[1],"columns":["like"]` + strings.Repeat(" ", 20_000) + `}`) // 69 MiB of them
	for range flood {
		if err := r.nc.PublishRequest("tidemark.get", answers.Subject, body); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Until(t, "all have arrived", func() bool { return r.serving.Stats().InMsgs >= flood })
	close(release)
	right, busy := 0, 0
	for range flood {
		m, err := answers.NextMsg(time.Minute)
		switch {
		case err != nil:
			t.Fatalf("%d right, %d refused, and then of %d: %v", right, busy, flood, err)
		case string(m.Data) == `{"rows":[{"id":"1","like":0}],"as_of":"0"}`:
			right++
		case m.Header.Get("Nats-Service-Error") == "busy: more than 32 MiB of requests wait for this node; ask again later" && m.Header.Get("Nats-Service-Error-Code") == "503":
			busy++
		default:
			t.Fatalf("%+v", m)
		}
	}
	if most := 32 << 20 / len(body); right < most-200 || right > most {
		t.Errorf("%d are answered and %d told to come back; %d may wait", right, busy, most)
	}
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.answers("stats", ``, `{"tidemark_events_total":12}`)
}

// What no endpoint sees does not pile up in the figure.
func TestNothingWaitsOnceAllIsTaken(t *testing.T) {
	r := start(t)
	ping := make([]byte, 512<<10)
	for range 100 { // 50 MiB
		if err := r.nc.Publish("$SRV.PING.tidemark", ping); err != nil {
			t.Fatal(err)
		}
		r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	}
}
