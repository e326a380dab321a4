package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/sinks/audit"
)

// leaders stand in for the nodes' side of a rebuild, on a real server: what they
// say is what these tests are about. That nodes say it is held elsewhere.
type leaders struct {
	t   *testing.T
	nc  *nats.Conn
	url string

	mu      sync.Mutex // the test has it but while a command runs
	routes  string     // the node that routes; "": none
	set     generation.Set
	asked   []string // verbs and requests
	statusN int
	status  func(n int, s *node.RebuildStatus) // changes the n-th status
	fail    map[string]error                   // a verb is refused, once it is done
	loses   []string                           // what the generation that is kept alone counts
}

func newLeaders(t *testing.T, names ...string) *leaders {
	t.Helper()
	server, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), StoreBytesMax: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	counting, err := config.Default().Counting()
	if err != nil {
		t.Fatal(err)
	}
	first, err := generation.Start(counting)
	if err != nil {
		t.Fatal(err)
	}
	l := &leaders{t: t, nc: nc, set: first, url: server.URL(), routes: names[0], fail: map[string]error{}}
	if _, err := nc.Subscribe("tidemark.nodes", func(m *nats.Msg) { _ = m.Respond(l.nodes(names)) }); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s, err := job.Serve(nc, name, map[string]job.Handler{
			node.RebuildStatusVerb: l.verb(name, "status"),
			node.RebuildPlanVerb:   l.verb(name, "plan"),
			node.RebuildVerb:       l.verb(name, "rebuild"),
			node.RebuildAbortVerb:  l.verb(name, "abort"),
			node.RebuildBackVerb:   l.verb(name, "back"),
			node.RebuildAcceptVerb: l.verb(name, "accept"),
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
	l.mu.Lock()
	t.Cleanup(l.mu.Unlock)
	return l
}

func (l *leaders) nodes(names []string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"node":%q,"roles":["route","hold","answer"],"state":"up","routes":%v,"applied":"0"}`, name, name == l.routes))
	}
	return []byte(`{"epoch":1,"nodes":[` + strings.Join(list, ",") + `]}`)
}

func (l *leaders) verb(name, verb string) job.Handler {
	return func(_ context.Context, request []byte, _ func(any)) (any, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if name != l.routes {
			return nil, &job.Error{Code: job.CodeGone, Text: name + " does not route"}
		}
		reply, err := l.do(verb, request)
		if err == nil && l.fail[verb] != nil {
			err = l.fail[verb]
			delete(l.fail, verb)
		}
		return reply, err
	}
}

func (l *leaders) do(verb string, request []byte) (reply any, err error) {
	if verb == "status" {
		l.statusN++
		s := l.statusNow()
		if l.status != nil {
			l.status(l.statusN, s)
		}
		return s, nil
	}
	if verb == "plan" {
		_, _, plan, err := l.plan(request)
		return plan, err
	}
	l.asked = append(l.asked, verb)
	next := l.set
	switch verb {
	case "rebuild":
		_, ask, plan, err := l.plan(request)
		if err != nil {
			return nil, err
		}
		if ask.Confirm != plan.Confirm {
			return nil, fmt.Errorf("confirmed is %q", ask.Confirm)
		}
		if next, err = l.set.Begin(ask.Counting, ask.Accept); err != nil {
			return nil, err
		}
		l.set = next
		return node.RebuildBegun{Building: next.Building, Changes: plan.Changes}, nil
	case "abort":
		next, err = l.set.Abort("somebody asked for it")
	case "back":
		next, err = l.set.Back(0)
	case "accept":
		next, err = l.set.Accepted()
	}
	if err != nil {
		return nil, err
	}
	l.set = next
	return l.statusNow(), nil
}

// plan is what a request comes to.
func (l *leaders) plan(request []byte) (now json.RawMessage, ask *node.RebuildAsk, p *node.RebuildPlan, err error) {
	if l.set.Building != 0 {
		return nil, nil, nil, generation.ErrUnderWay
	}
	ask = new(node.RebuildAsk)
	if err := json.Unmarshal(request, ask); err != nil {
		return nil, nil, nil, err
	}
	if now, err = config.Default().Counting(); err != nil {
		return nil, nil, nil, err
	}
	if ask.Counting == nil {
		ask.Counting = now
	}
	to, err := config.Default().CountingBy(ask.Counting)
	if err != nil {
		return nil, nil, nil, err
	}
	p = &node.RebuildPlan{
		Serving: l.set.Serving, Drops: config.Drops(config.Default(), to), Keep: "24h", Messages: 7, Confirm: "c",
		Deletes: l.set.Kept, Loses: l.loses, Nodes: []node.RebuildDisk{{Node: "a", Needs: 3 << 20, Free: 5 << 30}},
	}
	p.Changes, err = config.Changes(config.Default(), to)
	return now, ask, p, err
}

func (l *leaders) statusNow() *node.RebuildStatus {
	s := l.set
	if s.State == generation.Switched { // as a node: what was accepted needs no words
		s.Why = ""
	}
	return &node.RebuildStatus{
		Serving: s.Serving, Building: s.Building, Kept: s.Kept, Newest: s.Newest, State: s.State, Position: 1023, Of: 2047, ETA: 9, Differs: s.Differs, Why: s.Why,
		Waits: s.Compared && s.Differs > 0 && !s.Accept, Examples: []audit.Difference{}, Nodes: []node.RebuildNode{},
	}
}

// must changes the set.
func (l *leaders) must(next generation.Set, err error) {
	if err != nil {
		l.t.Error(err)
		return
	}
	l.set = next
}

// compared has the generation that is building compared.
func (l *leaders) compared(differs uint64, why string) {
	l.must(l.set.Compare())
	l.must(l.set.Found(differs, why))
}

func (l *leaders) run(args ...string) result {
	l.t.Helper()
	l.mu.Unlock()
	defer l.mu.Lock()
	return command(l.t, []string{"NATS_URL=" + l.url}, "", append([]string{"rebuild"}, args...)...)
}

// want runs a command that must end so.
func (l *leaders) want(code int, out string, args ...string) result {
	l.t.Helper()
	r := l.run(args...)
	if r.code != code || r.out != out+"\n" {
		l.t.Errorf("tidemark rebuild %s: exit code %d, want %d\n%s%s\nwant\n%s", strings.Join(args, " "), r.code, code, r.out, r.err, out)
	}
	return r
}

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
// · `--back` | a new generation; `--status --json`:
// `{"serving":1,"building":2,"state":"none|building|
// comparing|switched|aborted","position":"…","of":"…","eta_s":9,"differs":0}`"
func TestRebuild(t *testing.T) {
	t.Parallel()
	l := newLeaders(t, "a")
	l.want(0, "generation 1 serves; there was no rebuild", "--status")
	l.run("--abort").fails(t, 1, "there is no rebuild under way")
	l.run("--back").fails(t, 1, "there is no earlier generation to go back to")
	l.run("--accept").fails(t, 1, "there is no rebuild under way")

	text := "counters:\n  post: {like: {bits: 8}, view: {bits: 32}}\n  user: {following: {bits: 16}}\nrules: {}\nshards: 16\n"
	l.want(0, "generation 2 is building: drops counter unread; drops column post.repost; drops column post.comment; "+
		"post.like: suffix cntan → none; adds column post.view; drops column user.post; drops column user.original; drops column user.follower; drops column user.friend; "+
		"drops column user.reposted; drops column user.commented; drops column user.mentioned; drops column user.liked; "+
		"drops the rules for post; drops the rules for comment; drops the rules for like; drops the rules for mention; drops the rules for message; shards 64 → 16\n"+
		"'tidemark rebuild --status' shows how far it is", "--yes", "--config", file(t, text))
	l.run("--yes", "--config", file(t, text)).fails(t, 1, "a rebuild is under way")
	l.want(0, "generation 1 serves; generation 2 is building, at 1023 of 2047, 49 %, 9s left", "--status")
	got := document(t, l.run("--status", "--json").out)
	for key, want := range map[string]any{"serving": 1.0, "building": 2.0, "state": "building", "position": "1023", "of": "2047", "eta_s": 9.0, "differs": 0.0} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	l.want(0, "generation 1 serves; the rebuild was aborted\nwhy: somebody asked for it", "--abort")
	l.want(0, `{"building":3,"changes":[]}`, "--yes", "--json")
	l.want(0, "generation 1 serves; the rebuild was aborted\nwhy: somebody asked for it", "--abort")
	l.want(0, "generation 4 is building: it counts as the one that serves\n'tidemark rebuild --status' shows how far it is", "--yes")
	l.compared(0, "")
	l.must(l.set.Switch(0))
	l.want(0, "generation 4 serves; generation 1 is kept up to date: 'tidemark rebuild --back' has it serve again", "--status")
	l.want(0, "generation 1 serves; generation 4 is kept up to date: 'tidemark rebuild --back' has it serve again", "--back")
	l.must(l.set.Drop())
	l.want(0, "generation 1 serves; the one before is dropped", "--status")

	faulty := file(t, "shards: 0\nrules:\n  like: [{add: pots.like, key: post}]\n")
	if r := l.run("--config", faulty); r.code != 2 || !strings.Contains(r.err, faulty+":1: shards: ") || !strings.Contains(r.err, faulty+":3: rules.like") || !strings.Contains(r.err, "2 mistakes") {
		t.Errorf("%+v", r)
	}
	if l.set.Building != 0 {
		t.Error("a file with mistakes has begun something")
	}
}

// --wait ends with 0 once the new generation serves, and with 1 if it was aborted or
// differs; then with examples.
func TestRebuildWait(t *testing.T) {
	t.Parallel()
	l := newLeaders(t, "a")
	after := func(n int, do func()) {
		l.statusN = 0
		l.status = func(at int, s *node.RebuildStatus) {
			if at == n {
				do()
				*s = *l.statusNow()
			}
		}
	}
	after(4, func() { l.compared(0, ""); l.must(l.set.Switch(0)) })
	stale := l.status
	l.status = func(n int, s *node.RebuildStatus) {
		if stale(n, s); n == 2 { // another node leads, which has not heard of it yet
			s.Building, s.Newest, s.State = 0, 1, generation.None
		}
	}
	if r := l.want(0, "generation 2 is building: it counts as the one that serves\n"+
		"generation 2 serves; generation 1 is kept up to date: 'tidemark rebuild --back' has it serve again", "--yes", "--wait"); !strings.Contains(r.err, "rebuild: generation 2 is building, at 1023 of 2047, 49 %, 9s left\n") {
		t.Errorf("the way there is told as %q", r.err)
	}
	l.must(l.set.Drop())
	after(3, func() { l.must(l.set.Abort("EVENTS begins at 7")) })
	l.want(1, "generation 3 is building: it counts as the one that serves\ngeneration 2 serves; the rebuild was aborted\nwhy: EVENTS begins at 7", "--yes", "--wait")
	// docs/contract.md: "With `--wait` the exit code is 0 once the new one serves, and 1 if
	// it was aborted or differs": also if it was aborted before the command looked.
	aborted := "generation 2 serves; the rebuild was aborted\nwhy: EVENTS begins at 7"
	if r := l.want(1, aborted, "--status", "--wait"); r.err != "" {
		t.Errorf("%q", r.err)
	}
	l.want(0, aborted, "--status")

	after(3, func() { l.compared(2, "that of 7 is mixed") })
	differ := l.status
	l.status = func(n int, s *node.RebuildStatus) {
		differ(n, s)
		if s.Waits {
			s.Examples = []audit.Difference{{Counter: "post", ID: 42, Column: "like", Is: 3, Should: 4, At: 1023, Node: "a", Generation: 2}, {Counter: "user", ID: 7, Column: "liked\x1b", Is: -1, Should: 0, At: 51199, Node: "b", Generation: 4}}
		}
	}
	const differs = "COUNTER  ID  COLUMN  IS  SHOULD     AT  GENERATION  NODE\n" +
		"post     42  like     3       4   1023           2  a\n" +
		"user      7  liked   -1       0  51199           4  b\n" +
		"generation 2 serves; generation 4 waits, it or the one that serves differs from the log in 2 ids: 'tidemark rebuild --accept' has it serve all the same, '--abort' drops it\nwhy: that of 7 is mixed"
	if r := l.want(1, "generation 4 is building: it counts as the one that serves\n"+differs, "--yes", "--wait"); strings.Contains(r.err, "tidemark: ") {
		t.Errorf("%q", r.err)
	}
	l.want(0, differs, "--status")
	l.status = nil
	// docs/contract.md: "One that differs serves only with `--accept`."
	after(3, func() { l.must(l.set.Switch(0)) })
	l.want(0, "generation 4 serves; generation 2 is kept up to date: 'tidemark rebuild --back' has it serve again", "--accept", "--wait")
	l.status = nil
	l.want(0, "generation 4 serves; generation 2 is kept up to date: 'tidemark rebuild --back' has it serve again", "--status", "--wait")
	l.must(l.set.Drop())

	after(4, func() { l.compared(0, ""); l.must(l.set.Switch(0)) })
	r := l.run("--yes", "--wait", "--json", "--config", file(t, viewConfig+"channels: {games: {kind: dot}}\n"), "--accept")
	if got := document(t, r.out); r.code != 0 || got["serving"] != 5.0 || got["state"] != "switched" || !l.set.Accept {
		t.Errorf("%+v", r)
	}
}

// docs/contract.md: "`--dry-run` shows and stops … without a terminal and without either
// it begins, unless it drops counters, columns or rules: that is wrong usage (2)".
func TestRebuildShows(t *testing.T) {
	t.Parallel()
	l := newLeaders(t, "a")
	next := file(t, viewConfig)
	if r := l.run("--config", next); r.code != 2 || !strings.Contains(r.err, "  no longer has the rule of comment that adds to post.comment") ||
		!strings.Contains(r.err, "nothing was begun: it drops what stands above as 'no longer has', and standard input is no terminal") || l.set.Building != 0 {
		t.Errorf("%+v", r)
	}
	if r := l.want(0, "generation 2 is building: it counts as the one that serves\n'tidemark rebuild --status' shows how far it is"); !strings.Contains(r.err, "generation 1 serves; the new one\n") {
		t.Errorf("it shows %q", r.err)
	}
	l.must(l.set.Abort(""))
	l.asked = nil
	r := l.run("--config", next, "--dry-run")
	for _, line := range []string{
		"generation 1 serves; the new one", "  adds column post.view", "  drops counter unread", "  shards 64 → 16",
		"  no longer has the rule of comment that adds to post.comment (key post)", "  reads 7 messages of EVENTS", "  needs some 3.0MiB of disk on node a, of 5.0GiB free",
		"generation 1 is kept for 24h after the switch: 'tidemark rebuild --back' returns to it",
	} {
		if r.code != 0 || !strings.Contains(r.out, line+"\n") {
			t.Errorf("%q is not in\n%s%s", line, r.out, r.err)
		}
	}
	if got := document(t, l.run("--config", next, "--dry-run", "--json").out); got["messages"] != "7" || got["confirm"] != "c" {
		t.Errorf("%v", got)
	}
	l.must(l.set.Begin(json.RawMessage(`{}`), false))
	l.compared(0, "")
	l.must(l.set.Switch(0))
	l.loses = []string{"column post.view"}
	if out := l.run("--dry-run").out; !strings.Contains(out, "generation 1, which is kept now and is deleted") || !strings.Contains(out, "loses column post.view, which generation 1 alone still has") {
		t.Error(out)
	}
	l.run("--yes").code1(t, "no rebuild was begun: it deletes generation 1, which is kept and alone counts column post.view.")
	l.run("--yes", "--drop-kept", "3").code1(t, "no rebuild was begun: generation 3 is not the one that is kept (1)")
	if len(l.asked) != 0 {
		t.Errorf("asked for: %v", l.asked)
	}
}

// The leader may die at any moment: the next one is found, and nothing is done twice.
func TestRebuildLeaderDies(t *testing.T) {
	t.Parallel()
	l := newLeaders(t, "a", "b")
	l.routes = ""
	l.run("--status", "--timeout", "1s").code1(t, "no node routes at the moment")
	l.routes = "a"
	dies := func(verb string) { // it has done it, and is gone before it says so
		l.fail[verb] = &job.Error{Code: job.CodeGone, Text: "the node stops"}
		l.status = func(n int, s *node.RebuildStatus) {}
	}
	dies("rebuild")
	l.want(0, "generation 2 is building\n'tidemark rebuild --status' shows how far it is", "--yes", "--config", file(t, viewConfig))
	l.compared(0, "")
	l.must(l.set.Switch(0))
	dies("back")
	l.want(0, "generation 1 serves; generation 2 is kept up to date: 'tidemark rebuild --back' has it serve again", "--back")
	l.must(l.set.Drop())
	l.must(l.set.Begin(json.RawMessage(`{}`), false))
	dies("abort")
	l.want(0, "generation 1 serves; the rebuild was aborted\nwhy: somebody asked for it", "--abort")
	if got := strings.Join(l.asked, " "); got != "rebuild back abort" {
		t.Errorf("asked for: %s", got)
	}

	// While somebody waits, there is nobody for a while, then another.
	l.statusN = 0
	l.status = func(n int, s *node.RebuildStatus) {
		switch n {
		case 3:
			l.routes = ""
			go func() {
				time.Sleep(6 * time.Second) // longer than --timeout
				l.mu.Lock()
				defer l.mu.Unlock()
				l.routes = "b"
			}()
		case 5:
			l.compared(0, "")
			l.must(l.set.Switch(0))
		}
	}
	r := l.run("--yes", "--wait", "--timeout", "2s")
	if r.code != 0 || !strings.Contains(r.out, "generation 4 serves;") || strings.Count(r.err, "no node routes at the moment") != 1 {
		t.Errorf("%+v", r)
	}
	// What a node has refused is not asked again.
	l.status, l.statusN = nil, 0
	l.fail["rebuild"] = errors.New("EVENTS begins at 7: events 1 to 6 are missing")
	l.must(l.set.Drop())
	l.run("--yes", "--wait").code1(t, "EVENTS begins at 7: events 1 to 6 are missing")
}

// code1 checks that a command failed, the last line says why.
func (r result) code1(t *testing.T, why string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if r.code != 1 || !strings.HasPrefix(lines[len(lines)-1], "tidemark: "+why) {
		t.Errorf("exit code %d, want 1 and %q:\n%s", r.code, why, r.err)
	}
}
