package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query/client"
)

// What two looks at three nodes show: b has started again in between, c is away, and d did
// not give its figures.
func TestTopView(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	look := func(at time.Time, a, b figures) *sample {
		return &sample{at: at, figures: map[string]figures{"a": a, "b": b}, nodes: client.Nodes{Nodes: []client.Node{
			{Node: "a", State: "up", Roles: []string{"route", "hold"}, Routes: true, Shards: 1, LagKnown: true, Lag: 12 * time.Millisecond},
			{Node: "b", State: "up", Roles: []string{"hold", "answer"}, Shards: 1, LagKnown: true},
			{Node: "c\x1b[2J", State: "away", Roles: []string{"hold"}},
			{Node: "d", State: "up", Roles: []string{"answer"}, LagKnown: true},
		}}, shards: client.Shards{Replicas: 2, Shards: []client.Shard{
			{Shard: 0, Holders: []client.Holder{{Node: "a", State: "ready"}, {Node: "b", State: "loading", Loaded: 0.5}}},
			{Shard: 1, Holders: []client.Holder{{Node: "c", State: "away"}}},
		}}}
	}
	before := look(at,
		figures{"tidemark_events_total": 1000, `tidemark_query_seconds_count{code="200",endpoint="get"}`: 10, `tidemark_query_seconds_sum{code="200",endpoint="get"}`: 1},
		figures{`tidemark_query_seconds_count{code="200",endpoint="get"}`: 500})
	now := look(at.Add(2*time.Second),
		figures{
			"tidemark_events_total": 3000, "tidemark_lag_seconds": 0.25, "tidemark_lag_messages": 7, "tidemark_memory_bytes": 1 << 20, "process_resident_memory_bytes": 3 << 20,
			`tidemark_deadletters_total{reason="id"}`: 1, `tidemark_deadletters_total{reason="json"}`: 1,
			`tidemark_query_seconds_count{code="200",endpoint="get"}`: 18, `tidemark_query_seconds_sum{code="200",endpoint="get"}`: 1.04,
			`tidemark_query_seconds_count{code="504",endpoint="unread"}`: 2, `tidemark_query_seconds_count{code="200",endpoint="stats"}`: 9,
		},
		figures{"tidemark_events_total": 0, `tidemark_query_seconds_count{code="200",endpoint="get"}`: 4})
	want := `
2026-05-01 12:00:02.000, over 2.0s
without the figures of d, which did not give them
events    1000  a second
lag      0.25s  of the oldest event not applied; 7 messages wait
visible   12ms  from published to visible
answers      7  a second, each 2.86ms
errors       1  a second
refused      1  events a second: tidemark deadletters
shards       2  1 loading, 1 that nobody answers for, 1 with one copy left

NODE   STATE  ROLES        ROUTES  SHARDS  LOADING  EVENTS/S    LAG  ANSWERS/S    EACH  ERRORS/S  MEMORY
a      up     route,hold   yes          1        0      1000  0.25s          5  4.00ms         1  3.0MiB
b      up     hold,answer  -            1        1         0      -          2     0ms         0       -
c [2J  away   hold         -            0        0         -      -          -       -         -       -
d      up     answer       -            0        0         -      -          -       -         -       -
`
	var out strings.Builder
	v := viewOf(before, now)
	v.At = time.Date(2026, 5, 1, 12, 0, 2, 0, time.Local)
	if err := v.print(&out); err != nil || "\n"+out.String() != want {
		t.Errorf("%v\n%s\nwant%s", err, out.String(), want)
	}
}

// docs/contract.md: "`top [--once] [--json]`, live in the terminal": each document is a line. What the rates add
// up to is what was published and asked.
func TestTop(t *testing.T) {
	n := shared(t)
	args := []string{"top", "--json", "--interval", "100ms"}
	top := exec.CommandContext(t.Context(), binary, append(n.flags(), args...)...)
	pipe, err := top.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := top.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Process.Kill() })
	lines := bufio.NewScanner(pipe)
	var events, answers, errors, refused float64
	next := func() (v view) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("top ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil || v.Events == nil || len(v.Nodes) != 1 {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		events, answers = events+*v.Events*v.Seconds, answers+*v.Answers*v.Seconds
		errors, refused = errors+*v.Errors*v.Seconds, refused+*v.Refused*v.Seconds
		return v
	}
	next()
	aComment := `{"type":"comment","actor":1,"post":2002,"author":3}` + "\n"
	if r := n.feed(strings.Repeat(aComment, 30)+"{}\n", "import", "-", "--wait", "--json"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	n.want("30", "get", "2002.post.comment")
	n.do("get", "2.pots.like").fails(t, 1, "pots")
	e2e.Until(t, "top shows all of it", func() bool {
		next()
		return math.Round(events) >= 30 && math.Round(refused) >= 1 && math.Round(errors) >= 1
	})
	if math.Round(events) != 30 || math.Round(refused) != 1 || math.Round(errors) != 1 || math.Round(answers) < 2 {
		t.Errorf("%v events, %v refused, %v errors, %v answers", events, refused, errors, answers)
	}
	if err := top.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		continue
	}
	if err := top.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
	if r := n.do("top", "--once", "--interval", "100ms"); r.code != 0 || !strings.Contains(r.out, "all answered for") || strings.Contains(r.out, "\x1b") {
		t.Errorf("%+v", r)
	}
}
