package walls_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// open starts an embedded server with walls, and connects inside and outside.
func open(t *testing.T) (inside *nats.Conn, url string) {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Minute, Accounts: walls.Embedded(public, nil, true), JetStream: walls.Inside})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	inside, err = nats.Connect(s.URL(), nats.Nkey(public, key.Sign))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inside.Close)
	js, err := jetstream.New(inside)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return inside, s.URL()
}

// Strangers are let in by the doors, and by nothing else.
func TestWalls(t *testing.T) {
	inside, url := open(t)
	t.Run("doors", func(t *testing.T) { doorsLetIn(t, inside, url) })
	t.Run("walls", func(t *testing.T) { wallsKeepOut(t, inside, url) })
}

func doorsLetIn(t *testing.T, inside *nats.Conn, url string) {
	for _, query := range walls.Queries() {
		if _, err := inside.Subscribe("tidemark."+query, func(m *nats.Msg) { _ = m.Respond([]byte("answer")) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := inside.Flush(); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, query := range walls.Queries() {
		if reply, err := nc.Request("tidemark."+query, nil, time.Minute); err != nil || string(reply.Data) != "answer" {
			t.Errorf("%s: %v", query, err)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ack, err := js.Publish(t.Context(), "events.like", []byte("{}"), jetstream.WithMsgID("1"), jetstream.WithExpectStream("EVENTS"))
		if err != nil || ack.Sequence != 1 {
			t.Errorf("%+v %v", ack, err)
		}
	}
}

func wallsKeepOut(t *testing.T, inside *nats.Conn, url string) {
	heard := make(chan *nats.Msg, 100)
	if _, err := inside.ChanSubscribe(">", heard); err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 1)
	nc, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{
		"$JS.API.INFO", "$JS.API.STREAM.DELETE.EVENTS", "$KV.TIDEMARK.x", "deadletter.json", "tidemark.internal.x", "tidemark.hold.a", "tidemark.node.a.rebuild", "tidemark.slowlog",
		"events.resent.1", "_INBOX.x", "$SYS.REQ.SERVER.PING",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		refused(t, subject, denied)
	}
	for _, subject := range []string{">", "events.>", "tidemark.>", "tidemark.get", "$SRV.>", "$JS.>", "_INBOX_x", "*", "$KV.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		refused(t, subject, denied)
	}
	// An answer goes nowhere but to its asker's account: the first acknowledgement purges
	// nothing, or the second event would be alone.
	if err := nc.PublishRequest("events.like", "$JS.API.STREAM.PURGE.EVENTS", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	// Nor is an answer an event, which the stranger, or a reader, may not publish. The last
	// one shows that those before it have been answered (doorsLetIn does).
	for _, reply := range []string{"events.resent.1.0", "events.adjust"} {
		if err := nc.PublishRequest("tidemark.get", reply, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nc.Request("tidemark.get", nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("events.like", []byte("{}"), time.Minute); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(inside)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "EVENTS")
	if err != nil || s.CachedInfo().State.Msgs != 3 { // one is of doorsLetIn
		t.Errorf("%+v %v", s.CachedInfo().State, err)
	}
	for len(heard) > 0 {
		if m := <-heard; m.Subject != "events.like" && m.Subject != "tidemark.get" && !strings.HasPrefix(m.Subject, "_R_.") && !strings.HasPrefix(m.Subject, "_INBOX.") && !strings.HasPrefix(m.Subject, "$JS.") {
			t.Errorf("%s came inside", m.Subject)
		}
	}
}

func refused(t *testing.T, subject string, denied <-chan error) {
	t.Helper()
	select {
	case err := <-denied:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(time.Minute):
		t.Errorf("%s is allowed", subject)
	}
}

// Each client of a file may do what its role
// may, and others may not come in.
func TestClientsOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), walls.KeyFile)
	node, err := walls.Key(path)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := walls.ReadClients(strings.NewReader("# ours\n\nana:long-enough-password reader\nbob:another-long-password producer\nops:a-third-long-password operator\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Minute, Accounts: walls.Embedded(node, clients, false), JetStream: walls.Inside})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if nc, err := nats.Connect(s.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a stranger: %v", err)
		if err == nil {
			nc.Close()
		}
	}
	for user, c := range map[string]struct{ may, not string }{
		"ana:long-enough-password":  {"tidemark.get", "events.like"},
		"bob:another-long-password": {"events.like", "tidemark.get"},
		"ops:a-third-long-password": {"$JS.API.INFO", ""},
	} {
		name, password, _ := strings.Cut(user, ":")
		denied := make(chan error, 1)
		nc, err := nats.Connect(s.URL(), nats.UserInfo(name, password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(nc.Publish(c.may, nil), nc.Flush()); err != nil || len(denied) > 0 {
			t.Errorf("%s may not %s", name, c.may)
		}
		if c.not != "" {
			_ = nc.Publish(c.not, nil)
			refused(t, c.not, denied)
		}
		nc.Close()
	}
	for text, says := range map[string]string{
		"":                            "there is no key in it",
		"x reader":                    "line 1: it is no public nkey",
		"\na:short reader":            "line 2: a name and a password of 16 characters",
		"a:long-enough-password":      "line 1: a key and a role are needed",
		"a:long-enough-password king": `line 1: the second word is not a role`,
		"a:long-enough-password reader\na:another-long-password operator": "line 2: the key, or the name of the password, stands there twice",
	} {
		if _, err := walls.ReadClients(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

// docs/contract.md: "roles producer, reader, gateway, application, operator, as in
// `nats.auth`. A token that stands twice is refused at start."
func TestTokensOfAFile(t *testing.T) {
	tokens, err := walls.ReadTokens(strings.NewReader("\ufeff# ours\n\na-producers-token producer\nan-applications-token application\r\n"))
	if err != nil || len(tokens) != 2 || tokens.Role("a-producers-token").Name != "producer" ||
		tokens.Role("an-applications-token").Name != "application" || tokens.Role("another-long-token") != nil {
		t.Errorf("%d tokens (%v)", len(tokens), err)
	}
	const token = "long-enough-token-1"
	for text, says := range map[string]string{
		"":             "there is no token in it",
		"short reader": "line 1: the token has fewer than 16 characters",
		"\n" + token:   "line 2: a token and a role are needed",
		token + " x":   `line 1: the second word is not a role: producer, reader, gateway, application, operator`,
		token + " reader\n" + token + " operator": "line 2: the token stands there twice",
		token + " reader\n" + token + " reader":   "line 2: the token stands there twice",
	} {
		if _, err := walls.ReadTokens(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

// docs/contract.md: "`tidemark deploy nats-conf` prints the same for an outside server:
// roles producer, reader, gateway, operator, node."
func TestOutsideIsTheFile(t *testing.T) {
	file, err := os.ReadFile("../../deploy/nats-accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != walls.Outside() {
		t.Error("deploy/nats-accounts.conf is not what 'tidemark deploy nats-conf' prints: write it again")
	}
}
