package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// README.md: "To tell clients apart use `nats.auth`, or a server of yours with accounts and
// TLS". A process counts and answers there, by TLS and an nkey or by a credentials file, and so
// do the commands; also after the server was away. One that is refused says in one line what
// to set; jetlog's tests have all that it may be refused for.
func TestOutsideServer(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	authority := natstest.NewAuthority(t)
	cert, key := authority.Issue("server")
	public, seed := natstest.Nkey(t)
	nkey, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	secure := fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}\nauthorization {users: [{nkey: %s}]}\n", cert, key, authority.File, public)
	cert, key = authority.Issue("client")
	mine := fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}", authority.File, cert, key)
	known, creds := natstest.Credentials(t)
	for _, c := range []struct {
		name, config, settings string
		flags                  []string
		options                []nats.Option
		without, told          string // settings that are refused
	}{
		{
			"TLS and an nkey", secure, mine + ", nkey: " + seed,
			[]string{"--tls-ca", authority.File, "--tls-cert", cert, "--tls-key", key, "--nkey", seed},
			[]nats.Option{nats.RootCAs(authority.File), nats.ClientCert(cert, key), nkey},
			mine, "set nats.credentials or nats.nkey",
		},
		{
			"a credentials file", known, "credentials: " + creds,
			[]string{"--creds", creds},
			[]nats.Option{nats.UserCredentials(creds)},
			"replicas: 3, credentials: " + creds, "lower nats.replicas",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := natstest.NewOutside(t, c.config)
			refused := e2e.Prepare(t, e2e.Setup{URL: server.URL(), NATS: c.without, Settings: "shards: 4\n"})
			refused.Spawn()
			e2e.Until(t, "it ends", func() bool { return refused.Ended() != nil })
			if said := logOf(t, refused); strings.Count(said, "\n") != 1 || !strings.Contains(said, c.told) || refused.Ended().ExitCode() != 1 {
				t.Errorf("nats: {%s}: %v, want one line with %q, got:\n%s", c.without, refused.Ended(), c.told, said)
			}
			p := e2e.Prepare(t, e2e.Setup{URL: server.URL(), NATS: c.settings, Settings: "shards: 4\n"})
			p.Start()
			likes(t, p.URL, 100, c.options...)
			liked(t, p, 100, c.options...)
			if got := p.Do(append([]string{"get", "post", "42", "--columns", "like"}, c.flags...)...); !strings.Contains(got, "100") {
				t.Errorf("the command says %s", got)
			}
			server.Stop()
			server.Restart()
			p.WaitReady()
			likes(t, p.URL, 1, c.options...)
			liked(t, p, 101, c.options...)
		})
	}
}
