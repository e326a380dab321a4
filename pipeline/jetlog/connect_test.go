package jetlog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// "What Connect's errors wrap when a server is there and the two cannot agree."
func TestConnectSaysWhatAServerRefuses(t *testing.T) {
	authority, stranger := natstest.NewAuthority(t), natstest.NewAuthority(t)
	cert, key := authority.Issue("server")
	secure := fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}\n", cert, key, authority.File)
	public, seed := natstest.Nkey(t)
	_, other := natstest.Nkey(t)
	known := fmt.Sprintf("authorization {users: [{nkey: %s}]}\n", public)
	operator, creds := natstest.Credentials(t)
	_, unknown := natstest.Credentials(t)
	cert, key = authority.Issue("client")
	mine := jetlog.TLSOptions{CA: authority.File, Certificate: cert, Key: key}
	cert, key = stranger.Issue("client")

	type try struct {
		name string
		o    jetlog.ConnectOptions
		want error
	}
	for config, tries := range map[string][]try{
		secure: {
			{"all is well", jetlog.ConnectOptions{TLS: mine}, nil},
			{"no CA", jetlog.ConnectOptions{}, jetlog.ErrAuthority},
			{"another CA", jetlog.ConnectOptions{TLS: jetlog.TLSOptions{CA: stranger.File, Certificate: mine.Certificate, Key: mine.Key}}, jetlog.ErrAuthority},
			{"no certificate", jetlog.ConnectOptions{TLS: jetlog.TLSOptions{CA: authority.File}}, jetlog.ErrCertificate},
			{"a stranger's certificate", jetlog.ConnectOptions{TLS: jetlog.TLSOptions{CA: authority.File, Certificate: cert, Key: key}}, jetlog.ErrCertificate},
		},
		known: {
			{"all is well", jetlog.ConnectOptions{NkeySeedFile: seed}, nil},
			{"no nkey", jetlog.ConnectOptions{}, jetlog.ErrCredentials},
			{"another nkey", jetlog.ConnectOptions{NkeySeedFile: other}, jetlog.ErrCredentials},
			{"credentials", jetlog.ConnectOptions{CredentialsFile: creds}, jetlog.ErrCredentials},
		},
		operator: {
			{"all is well", jetlog.ConnectOptions{CredentialsFile: creds}, nil},
			{"no credentials", jetlog.ConnectOptions{}, jetlog.ErrCredentials},
			{"another's credentials", jetlog.ConnectOptions{CredentialsFile: unknown}, jetlog.ErrCredentials},
			{"an nkey", jetlog.ConnectOptions{NkeySeedFile: seed}, jetlog.ErrCredentials},
		},
		"": {
			{"an nkey where none is wanted", jetlog.ConnectOptions{NkeySeedFile: seed}, jetlog.ErrCredentials},
		},
	} {
		server := natstest.NewOutside(t, config)
		for _, c := range tries {
			c.o.URL = server.URL()
			nc, err := jetlog.Connect(c.o)
			if err == nil {
				nc.Close()
			}
			if !errors.Is(err, c.want) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, want %v, in one line", c.name, err, c.want)
			}
		}
	}
}

// A server without JetStream, or an account without, is said to be that.
func TestOpenStreamsWithoutJetStream(t *testing.T) {
	for name, config := range map[string]string{
		"the server's":  "jetstream: false\n",
		"the account's": "accounts {A {users: [{user: a, password: b}]}}\nno_auth_user: a\n",
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: natstest.NewOutside(t, config).URL()})
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, err = jetlog.OpenStreams(t.Context(), nc, jetlog.StreamOptions{})
			if err == nil || jetlog.Passing(err) || !strings.Contains(err.Error(), "the server has no JetStream for this account") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// "after that the connection is kept up for ever, also through refusals": an
// operator mends the server's users, and nobody has to start anything again.
func TestConnectionOutlivesARefusal(t *testing.T) {
	t.Parallel()
	public, seed := natstest.Nkey(t)
	other, _ := natstest.Nkey(t)
	users := func(public string) string { return fmt.Sprintf("authorization {users: [{nkey: %s}]}\n", public) }
	server := natstest.NewOutside(t, users(public))
	var log e2e.Lines
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: server.URL(), NkeySeedFile: seed, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(e2e.Patience); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) || nc.IsClosed() {
				t.Fatalf("%s: did not come; the connection is %v\n%s", what, nc.Status(), log.String())
			}
		}
	}
	server.Stop()
	server.Start(users(other))
	until("three refusals", func() bool { return strings.Count(log.String(), "authorization violation") >= 3 })
	server.Stop()
	server.Start(users(public))
	until("connected again", nc.IsConnected)
}

func TestConnectNamesWhatItCannotReach(t *testing.T) {
	address := natstest.FreeAddress(t)
	for _, url := range []string{"nats://me:hunter2@" + address, "nats://hunter2@" + address, "me:hunter2@" + address, "nats://me:hunter2%zz@" + address, "nats://me:hunter2#x@" + address, "nats://me:hunter2,x@" + address} {
		_, err := jetlog.Connect(jetlog.ConnectOptions{URL: url})
		if err == nil || !strings.Contains(err.Error(), "[secret]@"+address) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	_, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://x", NkeySeedFile: "/nowhere/seed"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/seed") {
		t.Errorf("got %v", err)
	}
	_, err = jetlog.Connect(jetlog.ConnectOptions{URL: "nats://x", CredentialsFile: "/nowhere/creds"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/creds") {
		t.Errorf("got %v", err)
	}
}
