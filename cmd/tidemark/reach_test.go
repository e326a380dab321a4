package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

const aLike = `{"type":"like","actor":1,"post":2,"author":3}` + "\n"

// everyWay has commands of each way in which commands ask: one question, an event, DEADLETTER, the
// bucket, a node's work, an import.
var everyWay = [][]string{
	{"stats"},
	{"publish", "like", "actor=1", "post=2", "author=3"},
	{"deadletters"},
	{"nodes", "drain", "a"},
	{"rebuild", "--status"},
	{"import", "-"},
}

// tryingAgain ends the line in which a command says what keeps it waiting.
const tryingAgain = "; trying again\n"

// failEach runs each command against a server, with a --timeout of within. Each must fail with
// these words; most do at once.
func failEach(t *testing.T, url, within string, why ...string) {
	t.Helper()
	var all sync.WaitGroup
	for _, args := range everyWay {
		all.Go(func() {
			t.Helper()
			r := command(t, nil, aLike, append(args, "--nats", url, "--timeout", within)...)
			if at := strings.LastIndex(r.err, tryingAgain); at >= 0 {
				r.err = r.err[at+len(tryingAgain):]
			}
			r.fails(t, 1, why...)
		})
	}
	all.Wait()
}

// greets listens and sends a greeting to each client.
func greets(t *testing.T, greeting string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, greeting)
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}

func TestPortThatIsNotNATS(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	ssh := greets(t, "SSH-2.0-OpenSSH_9.6\r\n")
	failEach(t, ssh, "1m", ssh, "what listens there does not speak NATS")
	http := "nats://" + web.Listener.Addr().String()
	failEach(t, http, "1s", http, "it is another service, or a server that is suspended or stops")
	p := newPlace(t)
	p.configure(t, "nats: {url: '"+ssh+"'}\n")
	p.refuses(t, "does not speak NATS")
}

func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"the server's":  "jetstream: false\n",
		"the account's": "accounts {A {users: [{user: a, password: b}]}}\nno_auth_user: a\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := natstest.NewOutside(t, config)
			failEach(t, server.URL(), "10s", server.URL(), "has no JetStream for this account")
			p := newPlace(t)
			p.configure(t, "nats: {url: '"+server.URL()+"'}\n")
			p.refuses(t, "the server has no JetStream for this account")
		})
	}
}

// A user who may not publish is shown the server's own words, soon.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	server := natstest.NewOutside(t, `authorization {users: [
		{user: all, password: p}
		{user: none, password: p, permissions: {publish: {deny: ">"}}}
		{user: events, password: p, permissions: {publish: {deny: "events.>"}}}
		{user: streams, password: p, permissions: {publish: {deny: "$JS.API.>"}}}
		{user: client, password: p, permissions: {publish: ["tidemark.stats", "tidemark.nodes", "tidemark.shards"], subscribe: "_INBOX.>"}}
	]}`)
	as := func(user string) string { return strings.Replace(server.URL(), "//", "//"+user+":p@", 1) }
	p := newPlace(t)
	if !testing.Short() { // the node waits for an answer first
		p.configure(t, "nats: {url: '"+as("streams")+"'}\n")
		p.refuses(t, "Permissions Violation for Publish to")
	}
	p.configure(t, "nats: {url: '"+as("all")+"'}\n")
	n := p.start(t)
	failEach(t, as("none"), "1m", "does not let this client do so: Permissions Violation for Publish to")
	n.nats = as("events")
	n.do("publish", "like", "actor=1", "post=2", "author=3").fails(t, 1, `do so: Permissions Violation for Publish to "events.like"`)
	n.do("incr", "42.cntcm").fails(t, 1, `do so: Permissions Violation for Publish to "events.adjust"`)
	n.feed(aLike, "import", "-").fails(t, 1, `do so: Permissions Violation for Publish to "events.pack"`)
	n.want("0", "get", "42.cntcm")

	// A client without a node's rights sees the figures of the node that answers.
	n.nats = as("client")
	var v view
	out := n.good("top", "--once", "--json", "--interval", "100ms")
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Events == nil || len(v.Without) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}
