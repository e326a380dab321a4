package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

const viewConfig = `
counters:
  post: {like: {bits: 8}, view: {bits: 32}}
rules:
  like: [{add: post.like, key: post}]
  view: [{add: post.view, key: post}]
shards: 16
`

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "new.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// docs/contract.md: "`rebuild [--config FILE] [--wait]` · `rebuild --status` · `--abort`
// · `--back` | a new generation"; "`--dry-run` shows and stops … without a terminal and without either
// it begins, unless it drops counters, columns or rules: that is wrong usage (2)".
func TestRebuild(t *testing.T) {
	t.Parallel()
	n := newPlace(t).start(t)
	next := file(t, viewConfig)
	n.want("generation 1 serves; there was no rebuild", "rebuild", "--status")
	n.do("rebuild", "--abort").fails(t, 1, "there is no rebuild under way")
	n.do("rebuild", "--back").fails(t, 1, "there is no earlier generation to go back to")
	n.do("rebuild", "--accept").fails(t, 1, "there is no rebuild under way")
	faulty := file(t, "shards: 0\nrules:\n  like: [{add: pots.like, key: post}]\n")
	r := n.do("rebuild", "--config", faulty)
	for _, text := range []string{faulty + ":1: shards: ", faulty + ":3: rules.like", "2 mistakes"} {
		if r.code != 2 || !strings.Contains(r.err, text) {
			t.Errorf("%q is not in %+v", text, r)
		}
	}

	n.publish("like actor=7 post=42 author=9")
	shown := n.good("rebuild", "--config", next, "--dry-run")
	for _, line := range []string{
		"generation 1 serves; the new one\n", "  adds column post.view\n", "  drops counter unread\n", "  shards 4 → 16\n",
		"  no longer has the rule of comment that adds to post.comment (key post)\n", " of EVENTS\n", " of disk on node ",
		"generation 1 is kept for 1h after the switch: 'tidemark rebuild --back' returns to it\n",
	} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q is not in\n%s", line, shown)
		}
	}
	if got := document(t, n.good("rebuild", "--config", next, "--dry-run", "--json")); got["messages"] == nil || got["confirm"] == nil {
		t.Errorf("%v", got)
	}
	r = n.do("rebuild", "--config", next)
	if r.code != 2 || !strings.Contains(r.err, "  no longer has the rule of comment that adds to post.comment") ||
		!strings.Contains(r.err, "nothing was begun: it drops what stands above as 'no longer has', and standard input is no terminal") {
		t.Errorf("%+v", r)
	}
	n.want("generation 1 serves; there was no rebuild", "rebuild", "--status")

	r = n.do("rebuild", "--config", next, "--yes", "--wait")
	if r.code != 0 || !strings.HasPrefix(r.out, "generation 2 is building: drops counter user; drops counter unread; ") ||
		!strings.HasSuffix(r.out, "\ngeneration 2 serves; generation 1 is kept up to date: 'tidemark rebuild --back' has it serve again\n") {
		t.Errorf("%+v", r)
	}
	n.do("rebuild", "--yes").code1(t, "no rebuild was begun: it deletes generation 1, which is kept and alone counts ")
	n.do("rebuild", "--yes", "--drop-kept", "3").code1(t, "no rebuild was begun: generation 3 is not the one that is kept (1)")
	n.want("generation 1 serves; generation 2 is kept up to date: 'tidemark rebuild --back' has it serve again", "rebuild", "--back")
	n.want("1", "get", "42.cntan")
}

// led stands in for the node that leads a rebuild: how it says that it stands, one after the other.
type led struct {
	mu     sync.Mutex
	stands []node.RebuildStatus
	fail   map[string]error // a verb is refused, once
	silent int              // how many more who ask hear of no node that routes
	asked  []string
}

// run runs the command before a server where l leads.
func (l *led) run(t *testing.T, args ...string) result {
	t.Helper()
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	_, err := nc.Subscribe("tidemark.nodes", func(m *nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		routes := "true"
		if l.silent--; l.silent >= 0 {
			routes = "false"
		}
		_ = m.Respond([]byte(`{"epoch":1,"nodes":[{"node":"a","roles":["route"],"state":"up","routes":` + routes + `,"applied":"0"}]}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]job.Handler{}
	for verb, reply := range map[string]func() any{
		node.RebuildStatusVerb: l.next,
		node.RebuildPlanVerb:   func() any { return node.RebuildPlan{Serving: 1, Keep: "24h", Confirm: "c"} },
		node.RebuildVerb:       func() any { return node.RebuildBegun{Building: 2} },
		node.RebuildAbortVerb:  l.next,
		node.RebuildAcceptVerb: l.next,
	} {
		verbs[verb] = func(context.Context, []byte, func(any)) (any, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if verb != node.RebuildStatusVerb && verb != node.RebuildPlanVerb {
				l.asked = append(l.asked, verb)
			}
			if err := l.fail[verb]; err != nil {
				delete(l.fail, verb)
				return nil, err
			}
			return reply(), nil
		}
	}
	s, err := job.Serve(nc, "a", verbs, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return tidemark(t, append([]string{"rebuild", "--nats", server.URL()}, args...)...)
}

// next is how it stands; the last one stays.
func (l *led) next() any {
	s := l.stands[0]
	if len(l.stands) > 1 {
		l.stands = l.stands[1:]
	}
	if s.Examples == nil {
		s.Examples = []check.Difference{}
	}
	s.Nodes = []node.RebuildNode{}
	return s
}

var (
	standsNone     = node.RebuildStatus{Serving: 1, Newest: 1, State: generation.None}
	standsBuilding = node.RebuildStatus{Serving: 1, Building: 2, Newest: 2, State: generation.Building, Position: 1023, Of: 2047, ETA: 9}
	standsSwitched = node.RebuildStatus{Serving: 2, Kept: 1, Newest: 2, State: generation.Switched}
	standsReplaced = node.RebuildStatus{Serving: 2, Kept: 1, Newest: 2, State: generation.Switched, Lost: true}
	standsDropped  = node.RebuildStatus{Serving: 2, Newest: 2, State: generation.Switched}
	standsAborted  = node.RebuildStatus{Serving: 1, Newest: 2, State: generation.Aborted, Why: "EVENTS begins at 7"}
	standsDiffers  = node.RebuildStatus{
		Serving: 1, Building: 2, Newest: 2, State: generation.Comparing, Differs: 2, Waits: true, Why: "that of 7 is mixed",
		Examples: []check.Difference{
			{Counter: "post", ID: 42, Column: "like", Is: 3, Should: 4, At: 1023, Node: "a", Generation: 1},
			{Counter: "user", ID: 7, Column: "liked\x1b", Is: -1, Should: 0, At: 51199, Node: "b", Generation: 2},
		},
	}
)

// docs/contract.md: "With `--wait` the exit code is 0 once the new one serves, and 1 if
// it was aborted or differs", then with examples; "One that differs serves only with `--accept`."
// The leader may die at any moment: the next one is found, and nothing is done twice.
func TestRebuildWait(t *testing.T) {
	t.Parallel()
	const (
		begun    = "generation 2 is building: it counts as the one that serves\n"
		building = "generation 1 serves; generation 2 is building, at 1023 of 2047, 49 %, 9s left\n"
		serves   = "generation 2 serves; generation 1 is kept up to date: 'tidemark rebuild --back' has it serve again\n"
		aborted  = "generation 1 serves; the rebuild was aborted\nwhy: EVENTS begins at 7\n"
		differs  = "COUNTER  ID  COLUMN  IS  SHOULD     AT  GENERATION  NODE\n" +
			"post     42  like     3       4   1023           1  a\n" +
			"user      7  liked   -1       0  51199           2  b\n" +
			"generation 1 serves; generation 2 waits, it or the one that serves differs from the log in 2 ids: " +
			"'tidemark rebuild --accept' has it serve all the same, '--abort' drops it\nwhy: that of 7 is mixed\n"
	)
	gone := &job.Error{Code: job.CodeGone, Text: "the node stops"}
	for name, c := range map[string]struct {
		led  *led
		args string
		code int
		out  string
		err  string
	}{
		"status":  {&led{stands: []node.RebuildStatus{standsBuilding}}, "--status", 0, building, ""},
		"dropped": {&led{stands: []node.RebuildStatus{standsDropped}}, "--status", 0, "generation 2 serves; the one before is dropped\n", ""},
		"lost tail": {
			&led{stands: []node.RebuildStatus{standsReplaced}}, "--status", 0,
			"generation 2 serves; generation 1 has counted events that EVENTS has lost, and will be dropped\n", "",
		},
		"not waited for": {&led{stands: []node.RebuildStatus{standsNone}}, "--yes", 0, begun + "'tidemark rebuild --status' shows how far it is\n", ""},
		"json":           {&led{stands: []node.RebuildStatus{standsNone}}, "--yes --json", 0, `{"building":2,"changes":[]}` + "\n", ""},
		"serves": { // the second status is of another node that leads, which has not heard of it yet
			&led{stands: []node.RebuildStatus{standsNone, standsNone, standsBuilding, standsSwitched}}, "--yes --wait", 0, begun + serves,
			"rebuild: generation 2 is building, at 1023 of 2047, 49 %, 9s left\n",
		},
		"aborted":     {&led{stands: []node.RebuildStatus{standsNone, standsAborted}}, "--yes --wait", 1, begun + aborted, ""},
		"was aborted": {&led{stands: []node.RebuildStatus{standsAborted}}, "--status --wait", 1, aborted, ""},
		"differs":     {&led{stands: []node.RebuildStatus{standsNone, standsDiffers}}, "--yes --wait", 1, begun + differs, ""},
		"accepted":    {&led{stands: []node.RebuildStatus{standsDiffers, standsDiffers, standsSwitched}}, "--accept --wait", 0, serves, ""},
		"dies": { // it has done it, and is gone before it says so
			&led{stands: []node.RebuildStatus{standsNone, standsBuilding}, fail: map[string]error{node.RebuildVerb: gone}}, "--yes", 0,
			"generation 2 is building\n'tidemark rebuild --status' shows how far it is\n", "",
		},
		"dies once aborted": {
			&led{stands: []node.RebuildStatus{standsBuilding, standsAborted}, fail: map[string]error{node.RebuildAbortVerb: gone}}, "--abort", 0, aborted, "",
		},
		"refuses": { // and is not asked again
			&led{stands: []node.RebuildStatus{standsNone}, fail: map[string]error{node.RebuildVerb: errors.New("EVENTS begins at 7")}}, "--yes --wait", 1,
			"", "tidemark: EVENTS begins at 7",
		},
		"nobody leads": {&led{stands: []node.RebuildStatus{standsNone}, silent: 1000}, "--status --timeout 2s", 1, "", "tidemark: no node routes at the moment"},
		"nobody leads for longer than the timeout": {
			&led{stands: []node.RebuildStatus{standsBuilding, standsSwitched}, silent: 8}, "--status --wait --timeout 2s", 0, serves,
			"tidemark: no node routes at the moment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.led.run(t, strings.Fields(c.args)...)
			if r.code != c.code || r.out != c.out || strings.Count(r.err, c.err) != 1 && c.err != "" {
				t.Errorf("exit code %d, want %d\n%s%s\nwant\n%s%s", r.code, c.code, r.out, r.err, c.out, c.err)
			}
			if len(c.led.asked) > 1 {
				t.Errorf("asked for: %v", c.led.asked)
			}
		})
	}
}

// code1 checks that a command failed, the last line says why.
func (r result) code1(t *testing.T, why string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if r.code != 1 || !strings.HasPrefix(lines[len(lines)-1], "tidemark: "+why) {
		t.Errorf("exit code %d, want 1 and %q:\n%s", r.code, why, r.err)
	}
}
