package acceptance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// README.md: "To tell clients apart use `nats.auth`, or a server of yours with accounts and
// TLS". A node counts and answers there, and so do the commands; one that is
// refused says in one line what to set.
func TestOutsideServer(t *testing.T) {
	t.Parallel()
	authority, stranger := natstest.NewAuthority(t), natstest.NewAuthority(t)
	cert, key := authority.Issue("server")
	secure := fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}\n", cert, key, authority.File)
	cert, key = authority.Issue("client")
	mine := fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}", authority.File, cert, key)
	flags := []string{"--tls-ca", authority.File, "--tls-cert", cert, "--tls-key", key}
	client := []nats.Option{nats.RootCAs(authority.File), nats.ClientCert(cert, key)}

	t.Run("TLS and an nkey", func(t *testing.T) {
		public, seed := natstest.Nkey(t)
		server := natstest.NewOutside(t, secure+fmt.Sprintf("authorization {users: [{nkey: %s}]}\n", public))
		nkey, err := nats.NkeyOptionFromSeed(seed)
		if err != nil {
			t.Fatal(err)
		}
		counts(t, server, mine+", nkey: "+seed, append(flags, "--nkey", seed), append(client, nkey)...)

		_, other := natstest.Nkey(t)
		refused(t, server, mine, "set nats.credentials or nats.nkey")
		refused(t, server, mine+", nkey: "+other, "nats.nkey is not what it wants")
		refused(t, server, "nkey: "+seed, "set nats.tls.ca")
		refused(t, server, fmt.Sprintf("nkey: %s, tls: {ca: %s, cert: %s, key: %s}", seed, stranger.File, cert, key), "set nats.tls.ca")
		refused(t, server, fmt.Sprintf("nkey: %s, tls: {ca: %s}", seed, authority.File), "set nats.tls.cert and nats.tls.key")
	})
	t.Run("a credentials file", func(t *testing.T) {
		config, creds := natstest.Credentials(t)
		server := natstest.NewOutside(t, config)
		refused(t, server, "replicas: 3, credentials: "+creds, "lower nats.replicas")
		counts(t, server, "credentials: "+creds, []string{"--creds", creds}, nats.UserCredentials(creds))

		_, other := natstest.Credentials(t)
		refused(t, server, "", "set nats.credentials or nats.nkey")
		refused(t, server, "credentials: "+other, "nats.credentials or nats.nkey is not what it wants")
		refused(t, server, "credentials: /nowhere.creds", "/nowhere.creds")
	})
}

// counts runs a node on a server, and asks it as a client of NATS and by the
// commands, also after the server was away.
func counts(t *testing.T, server *natstest.Outside, settings string, flags []string, options ...nats.Option) {
	t.Helper()
	p := e2e.Prepare(t, e2e.Setup{URL: server.URL(), NATS: settings, Settings: "shards: 4\n"})
	p.Start()
	likes(t, p.URL, 100, options...)
	liked(t, p, 100, options...)
	if got := p.Do(append([]string{"get", "post", "42", "--columns", "like"}, flags...)...); !strings.Contains(got, "100") {
		t.Errorf("the command says %s", got)
	}
	server.Stop()
	server.Restart()
	p.WaitReady()
	likes(t, p.URL, 1, options...)
	liked(t, p, 101, options...)
	p.Stop()
}

// refused starts a node in vain: it says one line, which names what to set.
func refused(t *testing.T, server *natstest.Outside, settings, want string) {
	t.Helper()
	p := e2e.Prepare(t, e2e.Setup{URL: server.URL(), NATS: settings, Settings: "shards: 4\n"})
	p.Spawn()
	e2e.Until(t, "it ends, with nats: {"+settings+"}", func() bool { return p.Ended() != nil })
	text, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	if said := string(text); strings.Count(said, "\n") != 1 || !strings.Contains(said, want) || p.Ended().ExitCode() != 1 {
		t.Errorf("nats: {%s}: %v, want one line with %q, got:\n%s", settings, p.Ended(), want, said)
	}
	t.Logf("%s", text)
}
