package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

const aLike = `{"type":"like","actor":1,"post":2,"author":3}` + "\n"

// everyWay has commands of each way in which commands ask: one question, pages, DEADLETTER,
// the bucket, a node's work, an import.
var everyWay = [][]string{
	{"stats"},
	{"publish", "like", "actor=1", "post=2", "author=3"},
	{"following", "7"},
	{"deadletters"},
	{"nodes", "drain", "a"},
	{"verify"},
	{"rebuild", "--status"},
	{"import", "-"},
	{"backup", "/nowhere"},
}

// failEach runs each command against a server. Each must fail with these words.
func failEach(t *testing.T, url string, why ...string) {
	t.Helper()
	for _, args := range everyWay {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			t.Parallel()
			command(t, []string{"NATS_URL=" + url}, aLike, append(args, "--timeout", "2s")...).fails(t, 1, why...)
		})
	}
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
	t.Run("speaks first", func(t *testing.T) { failEach(t, ssh, ssh, "what listens there does not speak NATS") })
	http := "nats://" + web.Listener.Addr().String()
	t.Run("waits", func(t *testing.T) {
		failEach(t, http, http, "it is another service, or a server that is suspended or stops")
	})

	p := newPlace(t)
	p.configure(t, "nats: {url: '"+ssh+"'}\n")
	n := p.spawn(t)
	<-n.ended
	if log := n.log.String(); n.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(log, "does not speak NATS") {
		t.Errorf("a node: exit code %d\n%s", n.cmd.ProcessState.ExitCode(), log)
	}
}

func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"the server's":  "jetstream: false\n",
		"the account's": "accounts {A {users: [{user: a, password: b}]}}\nno_auth_user: a\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := natstest.NewOutside(t, config)
			t.Run("commands", func(t *testing.T) { failEach(t, server.URL(), server.URL(), "has no JetStream for this account") })
			p := newPlace(t)
			p.configure(t, "nats: {url: '"+server.URL()+"'}\n")
			n := p.spawn(t)
			<-n.ended
			if log := n.log.String(); n.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(log, "the server has no JetStream for this account") {
				t.Errorf("a node: exit code %d\n%s", n.cmd.ProcessState.ExitCode(), log)
			}
		})
	}
}

// A user who may do nothing but subscribe is shown the server's own words, soon.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	const users = "authorization {users: [{user: all, password: p}, {user: few, password: p, permissions: {publish: {deny: %q}}}]}\n"
	server := natstest.NewOutside(t, fmt.Sprintf(users, ">"))
	p := newPlace(t)
	as := func(user string) string { return strings.Replace(server.URL(), "//", "//"+user+":p@", 1) }
	p.configure(t, "nats: {url: '"+as("all")+"'}\n")
	n := p.start(t)
	t.Run("all", func(t *testing.T) {
		failEach(t, as("few"), "does not let this client do so: Permissions Violation for Publish to")
	})

	t.Run("one subject", func(t *testing.T) {
		n.stop(os.Interrupt)
		server.Stop()
		server.Start(fmt.Sprintf(users, "events.>"))
		n := p.start(t)
		n.nats = as("few")
		n.do("publish", "like", "actor=1", "post=2", "author=3").fails(t, 1, `do so: Permissions Violation for Publish to "events.like"`)
		n.do("incr", "42.cntcm").fails(t, 1, `do so: Permissions Violation for Publish to "events.adjust"`)
		n.feed(aLike, "import", "-").fails(t, 1, `do so: Permissions Violation for Publish to "events.pack"`)
		n.want("0", "get", "42.cntcm")
	})
	t.Run("a node", func(t *testing.T) {
		server := natstest.NewOutside(t, fmt.Sprintf(users, "$JS.API.>"))
		p := newPlace(t)
		p.configure(t, "nats: {url: '"+strings.Replace(server.URL(), "//", "//few:p@", 1)+"'}\n")
		n := p.spawn(t)
		<-n.ended
		log := n.log.String()
		last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
		if n.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "Permissions Violation for Publish to") {
			t.Errorf("exit code %d\n%s", n.cmd.ProcessState.ExitCode(), log)
		}
	})
}
