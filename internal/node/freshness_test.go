package node

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// docs/contract.md: "A process that cannot (suspended, …) answers with "degraded": true,
// "stale_ms": N, and with "partial": false 503": also where the machine was suspended,
// with all of its processes, and an answer is asked before the log is. "So wait: true of
// tidemark.read holds against every later whole answer, whoever gives it": also a node whose
// file has a longer freshness, which calls older answers whole.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var suspended atomic.Int64
	clock := func() time.Duration { return kit.SinceBoot() + time.Duration(suspended.Load()) }
	n, err := Start(t.Context(), s.Config("a", "route hold answer"), Options{Logger: silent, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, ask := range [][2]string{
		{"get", `{"counter":"post","ids":["42"]%s}`},
		{"explain", `{"number":"post.like","id":"42"%s}`},
	} {
		for _, partial := range []string{"", `,"partial":false`} {
			body := fmt.Sprintf(ask[1], partial)
			whole := func() error {
				if reply := s.Ask(ask[0], body); !strings.HasPrefix(reply, "{") || strings.Contains(reply, `"degraded"`) {
					return fmt.Errorf("%s", reply)
				}
				return nil
			}
			s.Until(ask[0]+" is answered whole", whole)
			s.Until(ask[0]+" is degraded after a suspension", func() error { // unless the log is asked in between
				suspended.Add(int64(10 * time.Second))
				reply := s.Ask(ask[0], body)
				if partial == "" && strings.Contains(reply, `"degraded":true,"stale_ms":`) || partial != "" &&
					strings.HasPrefix(reply, "503 ") {
					return nil
				}
				return fmt.Errorf("%s", reply)
			})
			s.Until(ask[0]+" is answered whole again", whole)
		}
	}

	other := s.Config("b", "answer")
	other.Freshness = 5 * time.Second
	waits := func(want time.Duration) func() error {
		return func() error {
			if is := n.Serving().Inside().FreshnessWait(); is != want {
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
