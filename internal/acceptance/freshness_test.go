package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// freshness is the least that may be set.
const (
	freshness         = time.Second
	freshnessSettings = "shards: 4\nfreshness: 1s\n"
)

// question is a request and its answer, which may come long after it.
type question struct {
	subject    string
	whole      bool // "partial": false
	sent, came time.Time
	code       string // "": an answer
	asOf       pipeline.Position
	degraded   bool
	stale      time.Duration
}

// asker asks and does not wait: what a suspended node finds in its buffers, it answers
// when it goes on.
type asker struct {
	t     *testing.T
	nc    *nats.Conn
	inbox string

	mu    sync.Mutex
	asked []*question
}

func newAsker(t *testing.T, url string) *asker {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	a := &asker{t: t, nc: nc, inbox: nats.NewInbox() + "."}
	if _, err := nc.Subscribe(a.inbox+"*", a.take); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *asker) take(m *nats.Msg) {
	n, err := strconv.Atoi(strings.TrimPrefix(m.Subject, a.inbox))
	if err != nil {
		return
	}
	var reply struct {
		AsOf     pipeline.Position `json:"as_of,string"`
		Degraded bool              `json:"degraded"`
		StaleMS  int64             `json:"stale_ms"`
	}
	_ = json.Unmarshal(m.Data, &reply)
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[n]
	q.came, q.code = time.Now(), m.Header.Get("Nats-Service-Error-Code")
	q.asOf, q.degraded, q.stale = reply.AsOf, reply.Degraded, time.Duration(reply.StaleMS)*time.Millisecond
}

// ask asks for a badge and counts of some users and posts, each with and without
// "partial": false.
func (a *asker) ask() {
	id := len(a.asked)%40 + 1
	for subject, list := range map[string]string{"tidemark.get": `"counter":"post","ids"`, "tidemark.unread": `"users"`} {
		for _, whole := range []bool{false, true} {
			body := fmt.Sprintf(`{%s:["%d"],"partial":%t}`, list, id, !whole)
			a.mu.Lock()
			n := len(a.asked)
			a.asked = append(a.asked, &question{subject: subject, whole: whole, sent: time.Now()})
			a.mu.Unlock()
			if err := a.nc.PublishRequest(subject, a.inbox+strconv.Itoa(n), []byte(body)); err != nil {
				a.t.Error(err)
			}
		}
	}
}

// askEvery is the pace of questions.
const askEvery = 20 * time.Millisecond

// askTimes asks so often.
func (a *asker) askTimes(n int) {
	for range n {
		a.ask()
		time.Sleep(askEvery) // the pace
	}
}

// askUntil asks until something is so of the answers to what was asked since.
func (a *asker) askUntil(since time.Time, what string, is func(answers []question) bool) {
	a.t.Helper()
	e2e.Until(a.t, what, func() bool {
		a.askTimes(1)
		return is(a.answers(since))
	})
}

// answers are those that have come to what was sent since.
func (a *asker) answers(since time.Time) (all []question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.asked {
		if !q.came.IsZero() && !q.sent.Before(since) {
			all = append(all, *q)
		}
	}
	return all
}

// holdTrue sees that every answer that is not said to be degraded is as far as it must be:
// as what was acknowledged a freshness before it was asked, and as a read that waited.
// Requests that refuse a part get none that is said to be degraded.
func (i *insister) holdTrue(t *testing.T, answers []question, waited pipeline.Position) (whole, degraded, refused int) {
	t.Helper()
	for _, q := range answers {
		least := max(waited, i.before(q.sent.Add(-freshness)))
		switch {
		case q.code == "503" && q.whole:
			refused++
		case q.code != "":
			t.Errorf("%s: code %s", q.subject, q.code)
		case q.degraded && (q.stale <= 0 || q.whole):
			t.Errorf("%s, partial %t: degraded, stale by %v", q.subject, !q.whole, q.stale)
		case q.degraded:
			degraded++
		case q.asOf < least:
			t.Errorf("%s: an answer as of %s is not said to be degraded and should be as of %s at least; it came after %v",
				q.subject, q.asOf, least, q.came.Sub(q.sent))
		default:
			whole++
		}
		if t.Failed() {
			return whole, degraded, refused
		}
	}
	return whole, degraded, refused
}

// docs/contract.md: "A process that cannot (suspended, …) answers with "degraded": true,
// "stale_ms": N, and with "partial": false 503; other processes prefer holders that can.
// So wait: true of tidemark.read holds against every later whole answer, whoever gives
// it."
func TestSuspendedHolder(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	settings := freshnessSettings + "cluster: {replicas: 2}\n"
	b := e2e.RunOn(t, server.URL(), "roles: [route, hold]\nnode: b\n"+settings)
	b.WaitReady()
	a := e2e.RunOn(t, server.URL(), "roles: [hold, answer]\nnode: a\n"+settings)
	e2e.RunOn(t, server.URL(), answersOnly+settings)
	asker, writer := newAsker(t, server.URL()), insist(t, server.URL())
	c := client.New(asker.nc)
	waitWhole(t, c, 4)
	readWaited(t, c)
	begun := time.Now()
	asker.askTimes(25)
	a.Signal(syscall.SIGSTOP)
	waited := readWaited(t, c) // without a: it is old by then
	since := time.Now()
	asker.askTimes(50)
	a.Signal(syscall.SIGCONT)
	resumed := time.Now()

	var late []question // that a was asked before it went on
	asker.askUntil(since, "the node that was suspended answers what it was asked", func(answers []question) bool {
		late = nil
		for _, q := range answers {
			if q.sent.Before(resumed.Add(-askEvery)) && q.came.After(resumed) {
				late = append(late, q)
			}
		}
		return len(late) > 0
	})
	asker.askTimes(50)
	whole, degraded, refused := writer.holdTrue(t, late, waited)
	t.Logf("of what it was asked while it was suspended: %d whole, %d degraded, %d refused", whole, degraded, refused)
	whole, degraded, refused = writer.holdTrue(t, asker.answers(since), waited)
	t.Logf("after the read: %d whole, %d degraded, %d refused", whole, degraded, refused)
	writer.holdTrue(t, asker.answers(begun), 0)
	asker.askUntil(time.Now(), "an answer is whole after the node went on", func(answers []question) bool {
		whole, _, _ := writer.holdTrue(t, answers, waited)
		return whole > 0 || t.Failed()
	})
}

// readWaited is a read that waits until every later answer shows it. A node that is
// suspended is asked, too, as long as its server knows of it: then another one is.
func readWaited(t *testing.T, c *client.Client) pipeline.Position {
	t.Helper()
	var p pipeline.Position
	e2e.Until(t, "a read is visible", func() (ok bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var err error
		p, err = c.Read(ctx, client.ReadRequest{User: 2, What: []string{"all"}, Wait: true, Timeout: 2300 * time.Millisecond})
		return err == nil
	})
	return p
}

// docs/contract.md: "A process that cannot (…, cut off, on the minority's side, its log's
// leader gone) answers with "degraded": true, "stale_ms": N": also while its server takes
// itself for the leader of EVENTS.
func TestCutOffNode(t *testing.T) {
	t.Parallel()
	cluster := natstest.NewCluster(t)
	var nodes []*e2e.Process
	for i, m := range cluster.Servers {
		settings := fmt.Sprintf("node: n%d\ncluster: {replicas: 3}\n", i) + freshnessSettings
		p := e2e.Prepare(t, e2e.Setup{URL: m.URL, NATS: clusterStreams, Settings: settings})
		p.Spawn()
		nodes = append(nodes, p)
	}
	for _, p := range nodes {
		p.WaitReady() // the one that is cut off then answers itself
	}
	cluster.WaitWhole()
	cut := cluster.Servers[0]
	cluster.Lead(cut, "EVENTS")
	writer := insist(t, cluster.Servers[1].URL+","+cluster.Servers[2].URL)
	asker := newAsker(t, cut.URL)
	wholeNow := func(what string) {
		t.Helper()
		asker.askUntil(time.Now(), what, func(answers []question) bool {
			return slices.ContainsFunc(answers, func(q question) bool { return q.code == "" && !q.degraded && q.asOf > 0 })
		})
	}
	wholeNow("the node answers whole")
	since := time.Now()
	asker.askTimes(25)
	cluster.Cut(cut)
	// Longer than what was answered a moment before may be called fresh.
	asker.askUntil(time.Now(), "answers are degraded", func(answers []question) bool {
		return slices.ContainsFunc(answers, func(q question) bool { return q.degraded }) &&
			slices.ContainsFunc(answers, func(q question) bool { return q.code == "503" })
	})
	lost := time.Now()
	e2e.Until(t, "the others store events", func() bool { return writer.before(time.Now()) > writer.before(lost) })
	most := 400
	if testing.Short() {
		most = 100
	}
	asker.askTimes(most)
	whole, degraded, refused := writer.holdTrue(t, asker.answers(since), 0)
	t.Logf("%d whole, %d degraded, %d refused", whole, degraded, refused)
	if whole, degraded, refused := writer.holdTrue(t, asker.answers(lost), 0); whole > 0 || degraded == 0 || refused == 0 {
		t.Errorf("cut off, a node gave %d whole answers, %d degraded ones, and refused %d", whole, degraded, refused)
	}
	cluster.Mend(cut)
	wholeNow("the node answers whole after the cut")
	since = time.Now()
	asker.askTimes(25)
	writer.holdTrue(t, asker.answers(since), 0)
}
