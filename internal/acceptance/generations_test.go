package acceptance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// askFor sends a request to whichever process takes it, and gives the reply: its body,
// or the error that its headers state.
func askFor(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	reply, err := nc.Request(subject, []byte(body), 5*time.Second)
	if err != nil {
		return err.Error()
	}
	return asked(reply)
}

// publishLines publishes events as one pack, and gives the position of its last line.
func publishLines(t *testing.T, nc *nats.Conn, lines []string) client.Position {
	t.Helper()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish("events.pack", []byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return client.Position(ack.Sequence*1024 + uint64(len(lines)) - 1)
}

// refusedUpToNow is how many dead letters there are.
func refusedUpToNow(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	return natstest.Stream(t, nc, jetlog.DeadLetterStream).CachedInfo().State.Msgs
}

// docs/contract.md: "What is counted is one for all nodes of a generation: counters,
// rules, channels, `channels_open`, `feed.*`, `limits.channels`, `limits.notices`,
// `inactive_after`." Two processes with other files give one answer, also when the second
// one is alone: its own file would have it count a dot as a number, 130 posts, 7 notices,
// and a channel more.
func TestOtherFilesCountAlike(t *testing.T) {
	t.Parallel()
	server := natstest.Apart(t)
	const few = "shards: 8\ncluster: {replicas: 2}\ncheckpoint: {interval: 200ms}\nrouter: {lease_renew: 50ms, lease_expiry: 400ms}\n"
	a := e2e.RunOn(t, server.URL, "node: a\n"+few+
		"channels: {games: {kind: dot}, system: {kind: notice}}\nchannels_open: false\nfeed: {posts_per_author: 120}\nlimits: {notices: 5}\n")
	b := e2e.RunOn(t, server.URL, "node: b\n"+few)
	nc := a.Connect()
	waitBoth(t, nc, 8)
	publishLines(t, nc, []string{`{"type":"follow","actor":1,"target":2}`, `{"type":"read","actor":1,"what":["all"]}`})
	var lines []string
	for i := 1; i <= 130; i++ {
		lines = append(lines, fmt.Sprintf(`{"type":"post","actor":2,"post":%d}`, i))
	}
	for i := 1; i <= 7; i++ {
		lines = append(lines, fmt.Sprintf(`{"type":"notice","channel":"system","notice":%d}`, i))
	}
	lines = append(lines, `{"type":"notice","channel":"games","notice":1}`, `{"type":"notice","channel":"more","notice":1}`)
	publishLines(t, nc, lines)
	at := lastPosition(t, nc)

	answers := func(when string, p *e2e.Process) {
		t.Helper()
		nc := p.Connect()
		seen := map[string]int{}
		for range 40 {
			var reply struct {
				Users []json.RawMessage `json:"users"`
			}
			text := askFor(t, nc, "tidemark.unread", fmt.Sprintf(`{"users":["1"],"min_position":"%d","timeout_ms":4000}`, at))
			if err := json.Unmarshal([]byte(text), &reply); err != nil || len(reply.Users) != 1 {
				seen[text]++
				continue
			}
			seen[string(reply.Users[0])]++
		}
		const want = `"feed":120,"counts":{"repost":0,"comment":0,"mention":0,"like":0,"follower":0,"message":0},"channels":{"system":5},"dots":{"games":true}}`
		for text := range seen {
			if !strings.Contains(text, want) || len(seen) > 1 {
				t.Fatalf("%s: %v, want %s", when, seen, want)
			}
		}
		if n := refusedUpToNow(t, nc); n != 1 {
			t.Errorf("%s: %d dead letters, want that of the channel which is not open", when, n)
		}
	}
	answers("both", a)
	if out := a.Do("nodes"); !strings.Contains(out, "counts differently from what serves") {
		t.Errorf("nodes says\n%s", out)
	}
	a.Stop()
	b.Stop()
	b.Start()
	b.WaitReady()
	at = publishLines(t, b.Connect(), []string{`{"type":"like","actor":3,"post":9,"author":2}`})
	answers("the one whose file differs, alone", b)
}

// superseded are two processes that hold everything of generation 1, stopped; what they
// held is backed up, and 5 likes are counted.
type superseded struct {
	t    *testing.T
	a, b *e2e.Process
	nc   *nats.Conn
	to   string // the backup
}

func newSuperseded(t *testing.T) *superseded {
	t.Helper()
	server := natstest.Apart(t)
	const settings = "shards: 8\ncluster: {replicas: 2, replace_after: 1h}\ncheckpoint: {interval: 200ms}\nrouter: {lease_renew: 50ms, lease_expiry: 400ms}\n"
	s := &superseded{t: t, a: e2e.RunOn(t, server.URL, "node: a\n"+settings), b: e2e.RunOn(t, server.URL, "node: b\n"+settings), to: filepath.Join(t.TempDir(), "backups")}
	s.nc = s.a.Connect()
	waitBoth(t, s.nc, 8)
	s.like(5)
	s.b.Do("backup", s.to)
	return s
}

// like has post 42 liked so many times more.
func (s *superseded) like(n int) {
	s.t.Helper()
	publishLines(s.t, s.nc, slices.Repeat([]string{`{"type":"like","actor":3,"post":42,"author":9}`}, n))
}

// rebuild has a process bring generation 2 to serve, which counts touches.
func (s *superseded) rebuild(p *e2e.Process) {
	s.t.Helper()
	doSoon(s.t, p, "rebuild", "--config", written(s.t, "shards: 8\n"+moreColumns), "--wait", "--yes")
}

// touched asks for the column of generation 2, until it is so.
func (s *superseded) touched(want int) {
	s.t.Helper()
	last := ""
	for deadline := time.Now().Add(e2e.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		last = s.ask()
		if strings.Contains(last, fmt.Sprintf(`"touched":%d}`, want)) && !strings.Contains(last, "degraded") {
			return
		}
	}
	s.t.Fatalf("it is not answered by generation 2 with %d: %s", want, last)
}

func (s *superseded) ask() string {
	return askFor(s.t, s.nc, "tidemark.get", `{"counter":"post","ids":["42"],"columns":["touched"]}`)
}

// never has no process answer by generation 1: it has no such column (404), and no whole
// answer is another number. It ends with done.
func (s *superseded) never(want int) (done func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			text := s.ask()
			whole := strings.Contains(text, `"rows"`) && !strings.Contains(text, "degraded")
			if strings.Contains(text, "no column") || whole && !strings.Contains(text, fmt.Sprintf(`"touched":%d}`, want)) {
				s.t.Errorf("it is answered %s, want %d", text, want)
				return
			}
		}
	}()
	return func() { close(stop); <-ended }
}

// "A record that is older never wins over one that a node holds": a
// rebuild to generation 2, both stop, one comes back from a backup of before and starts
// first. Nobody is answered by generation 1, also after the other one has returned, which
// keeps what it has.
func TestRestoredStartsFirst(t *testing.T) {
	t.Parallel()
	s := newSuperseded(t)
	s.rebuild(s.a)
	s.touched(5)
	s.like(1)
	s.touched(6)
	s.a.Stop()
	s.b.Stop()
	data := filepath.Join(s.a.Dir, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	s.a.Do("restore", s.to, "--data-dir", data, "--config", s.a.Config())
	done := s.never(6)
	s.a.Start()
	time.Sleep(2 * time.Second)
	s.b.Start()
	s.b.WaitReady()
	s.touched(6)
	time.Sleep(6 * time.Second) // it was switched back and deleted by then
	done()
	if st := stateOf(t, s.b); st.Serving != 2 {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(s.b.Dir, "data", "generations", "2", "badger")); err != nil {
		t.Error(err)
	}
}

// "A superseded generation never serves by itself": a node that was
// forgotten returns alone with the data directory of generation 1. It counts generation 2
// from EVENTS, and refuses nothing that this one counts.
func TestSupersededReturnsAlone(t *testing.T) {
	t.Parallel()
	s := newSuperseded(t)
	s.a.Stop()
	s.b.Do("nodes", "forget", "a")
	next := strings.Replace("shards: 8\n"+moreColumns, "rules:\n", "rules:\n  view: [{add: post.touched, key: post}]\n", 1)
	doSoon(t, s.b, "rebuild", "--config", written(t, next), "--wait", "--yes")
	s.touched(5)
	s.b.Stop()
	done := s.never(10)
	publishLines(t, s.nc, slices.Repeat([]string{`{"type":"view","post":42}`}, 5))
	s.a.Start()
	doSoon(t, s.a, "nodes", "forget", "b") // else it waits for b, which holds generation 2
	s.touched(10)
	done()
	if n := refusedUpToNow(t, s.nc); n != 0 {
		t.Errorf("%d events are refused", n)
	}
	if st := stateOf(t, s.a); st.Serving != 2 {
		t.Errorf("%+v", st)
	}
}
