package node

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/kit"
)

// docs/contract.md: "A process that cannot (suspended, …) answers with "degraded": true,
// "stale_ms": N, and with "partial": false 503": also where the machine was suspended,
// with all of its processes, and an answer is asked before the log is.
func TestSuspendedMachine(t *testing.T) {
	s := newSite(t)
	var suspended atomic.Int64
	n, err := Start(t.Context(), s.Config("a", "route hold answer"), Options{
		Logger: slog.New(slog.DiscardHandler), Clock: func() time.Duration { return kit.SinceBoot() + time.Duration(suspended.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	type answer struct {
		Degraded bool  `json:"degraded"`
		StaleMS  int64 `json:"stale_ms"`
	}
	ask := func(subject, body string) (a answer, code string) {
		t.Helper()
		m, err := s.NC.Request("tidemark."+subject, []byte(body), e2e.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if code = m.Header.Get("Nats-Service-Error-Code"); code != "" {
			return a, code
		}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Fatal(err)
		}
		return a, ""
	}
	for subject, body := range map[string]string{
		"get":       `{"counter":"post","ids":["42"]%s}`,
		"unread":    `{"users":["7"]%s}`,
		"feed":      `{"user":"7"%s}`,
		"following": `{"user":"7"%s}`,
		"followers": `{"user":"7"%s}`,
		"explain":   `{"number":"post.like","id":"42"%s}`,
	} {
		for body, refused := range map[string]bool{fmt.Sprintf(body, ""): false, fmt.Sprintf(body, `,"partial":false`): true} {
			whole := func() error {
				if a, code := ask(subject, body); a.Degraded || code != "" {
					return fmt.Errorf("%+v, code %q", a, code)
				}
				return nil
			}
			s.Until(subject+" is answered whole", whole)
			s.Until(subject+" is degraded after a suspension", func() error { // unless the log is asked in between
				suspended.Add(int64(10 * time.Second))
				a, code := ask(subject, body)
				switch {
				case refused && code == "503", !refused && a.Degraded && a.StaleMS >= 9000:
					return nil
				case refused && code != "", a.Degraded:
					t.Fatalf("%s: %+v, code %q", subject, a, code)
				}
				return fmt.Errorf("%+v, code %q", a, code)
			})
			s.Until(subject+" is answered whole again", whole)
		}
	}
}

// docs/contract.md: "So wait: true of tidemark.read holds against every later whole
// answer, whoever gives it": also a node whose file has a longer freshness, which calls older answers whole.
func TestWaitForTheLongestFreshness(t *testing.T) {
	s := newSite(t)
	a, other := s.Start(s.Config("a", "route hold answer")), s.Config("b", "answer")
	s.Ready(a)
	other.Freshness = 5 * time.Second
	waits := func(want time.Duration) func() error {
		return func() error {
			if is := a.Serving().Inside().FreshnessWait(); is != want {
				return fmt.Errorf("it waits for %v, want %v", is, want)
			}
			return nil
		}
	}
	b := s.Start(other)
	s.Until("a read at a waits for b", waits(4600*time.Millisecond))
	s.Stop(b)
	s.Until("b has stopped", waits(1840*time.Millisecond))
}
