package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// A process that only answers does as 'tidemark degrade' says, and so do the nodes that it
// asks: docs/degradation.md: "what is only on disk is `missing`", "reads off".
func TestThinDegrade(t *testing.T) {
	t.Parallel()
	const packs, lines = 60, 1000 // more rows and outboxes than memory.budget holds
	s := newSite(t)
	c := s.Config("holder", "route hold")
	c.Memory.Budget, c.Badger.MemTable, c.Checkpoint.Rows, c.Checkpoint.Interval = 34<<20, 8<<20, 4000, 100*time.Millisecond
	holder := s.Start(c)
	thin := s.Start(s.Config("thin", "answer"))
	s.Ready(thin)
	js, err := jetstream.New(s.NC, jetstream.WithPublishAsyncMaxPending(64))
	if err != nil {
		t.Fatal(err)
	}
	author := func(i int) uint64 { return uint64(i+1) * 2654435761 }
	for p := range packs {
		var pack strings.Builder
		for i := range lines {
			fmt.Fprintf(&pack, `{"type":"post","actor":%d,"post":%d}`+"\n", author(p*lines+i), p*lines+i+1)
		}
		if _, err := js.PublishAsync("events.pack", []byte(strings.TrimSpace(pack.String()))); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	last := pipeline.At(packs, lines-1)
	if err := holder.WaitApplied(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	degrade := func(d cluster.Degrade) {
		t.Helper()
		if err := holder.Serving().Inside().Members.Degrade(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("\ntidemark_reads_step{step=%q} 1\n", d.Reads)
		for _, n := range []*Node{holder, thin} {
			s.Until(n.name+" follows", func() error {
				if !strings.Contains(s.Page(n, "/metrics"), line) {
					return fmt.Errorf("no line %s", line)
				}
				return nil
			})
		}
	}
	next := 0
	get := func() (missing int) {
		t.Helper()
		var ids []string
		for i := range 500 {
			ids = append(ids, fmt.Sprint(author((next+i*1199)%(packs*lines))))
		}
		next += 7
		text := ""
		s.Until("an answer", func() error { // on a busy machine the holder may not be heard of for a moment
			text = s.Ask("get", `{"counter":"user","ids":[`+strings.Join(ids, ",")+`],"columns":["post"],"min_position":`+last.String()+`}`)
			if strings.HasPrefix(text, "503 not ready") || strings.HasPrefix(text, "504 ") {
				return errors.New(text)
			}
			return nil
		})
		var reply struct {
			Rows []struct {
				ID   string
				Post *int
			}
			Degraded bool
			Missing  []string
		}
		if err := json.Unmarshal([]byte(text), &reply); err != nil || len(reply.Rows) != len(ids) ||
			reply.Degraded != (len(reply.Missing) > 0) {
			t.Fatalf("%v: %.300s", err, text)
		}
		for _, row := range reply.Rows {
			switch {
			case row.Post == nil:
				missing++
			case *row.Post != 1:
				t.Fatalf("user %s has %d posts", row.ID, *row.Post)
			}
		}
		if missing != len(reply.Missing) {
			t.Fatalf("%d rows are empty, %d named as missing", missing, len(reply.Missing))
		}
		return missing
	}
	whole := func(when string) {
		t.Helper()
		s.Until("all rows "+when, func() error { // a holder that is not heard of for a moment leaves its rows out
			if missing := get(); missing > 0 {
				return fmt.Errorf("%d are missing", missing)
			}
			return nil
		})
	}
	whole("at first")

	degrade(cluster.Degrade{Reads: cluster.ReadsMemory, Writes: cluster.WritesOn})
	if missing := get(); missing == 0 {
		t.Error("nothing is missing with memory alone")
	}
	if holder.Serving().Sinks().Stats.Left.Load() == 0 {
		t.Error("what is left on disk is not counted")
	}
	if page := s.Page(thin, "/readyz"); !strings.HasPrefix(page, "200 ") ||
		!strings.Contains(page, "reads are from memory only") {
		t.Error(page)
	}

	degrade(cluster.Degrade{Reads: cluster.ReadsOff, Writes: cluster.WritesRefuse})
	for _, q := range sixQueries[:6] {
		s.Asks(q.subject, strings.ReplaceAll(q.body, "%s", ""), "503 reads are off: switched off for all nodes, by hand; 'tidemark degrade reads=all' ends it")
	}
	s.Asks("schema", `{}`, `"counters"`)
	s.Asks("nodes", `{}`, `"thin"`)
	s.Asks("read", `{"user":7,"what":["all"]}`, "503 writes are refused: for all nodes, by hand")
	if page := s.Page(thin, "/metrics"); !strings.Contains(page, `tidemark_writes_step{step="refuse"} 1`) {
		t.Error("a process that only answers does not show that writes are refused")
	}

	degrade(cluster.Normal)
	whole("afterwards")
	s.Until("events are taken", func() error {
		_, err := js.Publish(t.Context(), "events.like", []byte(`{"actor":8,"post":1,"author":9}`))
		return err
	})
}
