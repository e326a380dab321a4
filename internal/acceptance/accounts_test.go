package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/query/client"
)

// party is a connection as some user of a server.
type party struct {
	*testing.T
	*nats.Conn
	denied chan error // what the server refuses
}

func newParty(t *testing.T, url string) *party {
	t.Helper()
	p := &party{T: t, denied: make(chan error, 2000)}
	denied := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.denied <- err })
	var err error
	if p.Conn, err = nats.Connect(url, denied); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Conn.Close)
	return p
}

// refuses does something that the server must refuse for want of permission.
func (p *party) refuses(what, subject string, do func() error) {
	p.Helper()
	what += " " + subject
	err := errors.Join(do(), p.Flush())
	if err != nil {
		p.Fatalf("%s: %v", what, err)
	}
	select {
	case err := <-p.denied:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
			p.Errorf("%s: %v", what, err)
		}
	case <-time.After(e2e.Patience):
		p.Errorf("%s is allowed", what)
	}
}

// denies says that a party may neither publish nor subscribe to subjects.
func (p *party) denies(publish, subscribe []string) {
	p.Helper()
	for _, subject := range publish {
		p.refuses("publish to", subject, func() error { return p.Publish(subject, []byte("{}")) })
	}
	for _, subject := range subscribe {
		p.refuses("subscribe to", subject, func() error {
			_, err := p.SubscribeSync(subject)
			return err
		})
	}
}

// boundsSubscriptions says that a party may not have more subscriptions than most.
func (p *party) boundsSubscriptions(most int) {
	p.Helper()
	for i := range most + 1 {
		if _, err := p.Subscribe(fmt.Sprint("_INBOX.many.", i), func(*nats.Msg) {}); err != nil {
			p.Fatal(err)
		}
	}
	select {
	case err := <-p.denied:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			p.Error(err)
		}
	case <-time.After(e2e.Patience):
		p.Errorf("%d subscriptions are allowed", most+1)
	}
}

// The ready accounts file on a real server: each user can do what it must, and none what
// docs/security.md says is forbidden.
func TestAccounts(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	file, err := os.ReadFile(filepath.Join(e2e.Root(), "deploy", "nats-accounts.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"node", "operator", "producer", "reader", "gateway"} {
		// Read by this file alone, so that other tests may run beside.
		name := "TIDEMARK_" + strings.ToUpper(user) + "_PASSWORD"
		if err := os.Setenv(name, "secret-of-"+user); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Unsetenv(name) })
	}
	server := natstest.NewOutside(t, string(file))
	as := func(user string) string {
		return strings.Replace(server.URL(), "nats://", "nats://"+user+":secret-of-"+user+"@", 1)
	}
	ctx := context.Background()

	// A node counts what a producer publishes, and answers a client; so does one
	// that takes over, and one that has to derive again.
	p := e2e.RunOn(t, as("node"), "shards: 4\n")
	p.WaitReady()
	likes(t, as("producer"), 100)
	liked(t, &e2e.Process{URL: as("reader")}, 100)
	operator := newParty(t, as("operator"))
	js := streamsOf(t, operator.Conn)
	if err := js.DeleteStream(ctx, "DELTAS"); err != nil {
		t.Fatal(err)
	}
	likes(t, as("producer"), 100)
	liked(t, &e2e.Process{URL: as("reader")}, 200)
	p.Stop()
	likes(t, as("producer"), 100)
	p.Start()
	liked(t, &e2e.Process{URL: as("reader")}, 300)

	producer, asks, app := newParty(t, as("producer")), newParty(t, as("reader")), newParty(t, as("gateway"))
	if _, err := client.New(app.Conn).Read(ctx, client.ReadRequest{User: 7, What: []string{"all"}}); err != nil {
		t.Errorf("an application's read: %v", err)
	}
	p.Do("incr", "--nats", as("operator"), "42.cntan", "5")
	liked(t, &e2e.Process{URL: as("reader")}, 305)

	// An operator has everything counted again, by other rules.
	doSoon(t, p, "rebuild", "--yes", "--nats", as("operator"), "--config", written(t, "shards: 8\n"+moreColumns), "--wait")
	liked(t, &e2e.Process{URL: as("reader")}, 305)
	likes(t, as("producer"), 10)
	liked(t, &e2e.Process{URL: as("reader")}, 315)

	stream, err := js.Stream(ctx, "DELTAS2")
	if err != nil {
		t.Fatal(err)
	}
	internal := []string{
		stream.CachedInfo().Config.Subjects[0], "tidemark.internal.moved.x.like", "deadletter.json", "$KV.TIDEMARK.router",
		"$JS.API.STREAM.DELETE.DELTAS", "$JS.API.STREAM.DELETE.DELTAS2", "$KV.TIDEMARK.generations",
		"$JS.API.STREAM.INFO.DELTAS", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.MSG.DELETE.EVENTS",
		"$JS.API.CONSUMER.CREATE.EVENTS", "$SRV.PING", "_INBOX.somebody",
		"tidemark.hold.a", "tidemark.hold.a.runs", "tidemark.node.a.verify", "tidemark.node.a.rebuild", "tidemark.internal.member.a",
	}
	listen := []string{
		"tidemark.get", "tidemark.>", "events.>", "tidemark.internal.>", "tidemark.hold.>", "tidemark.hold.*",
		"tidemark.node.>", "$JS.EVENT.>", "$KV.>", ">",
	}
	producer.denies(append(internal, "events.adjust", "events.read", "events.pack", "tidemark.get", "tidemark.read"), listen)
	asks.denies(append(internal, "events.like", "events.adjust", "tidemark.read", "tidemark.slowlog", "tidemark.stats"), listen)
	app.denies(append(internal, "events.like", "events.adjust", "tidemark.slowlog"), listen)

	// Nothing that is said in one account is heard in another.
	heard := make(chan *nats.Msg, 1000)
	if _, err := producer.ChanSubscribe("_INBOX.>", heard); err != nil {
		t.Fatal(err)
	}
	liked(t, &e2e.Process{URL: as("reader")}, 315)
	if err := producer.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 {
		m := <-heard
		t.Errorf("a producer hears %s: %s", m.Subject, m.Data)
	}
	p.WaitReady()
	producer.boundsSubscriptions(1000)
	asks.boundsSubscriptions(1000)
}
