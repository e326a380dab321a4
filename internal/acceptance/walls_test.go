package acceptance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/walls"
)

// jetStreamAPI returns every subject of JetStream's API that nats-server knows, from its
// source.
func jetStreamAPI(t *testing.T) (subjects []string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2/server").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(out)), "jetstream_api.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			if s, err := strconv.Unquote(text.Value); err == nil && strings.HasPrefix(s, "$JS.API.") && !strings.Contains(s, "%") {
				subjects = append(subjects, regexp.MustCompile(`[*>]`).ReplaceAllString(strings.TrimSuffix(s, "."), "EVENTS"))
			}
		}
		return true
	})
	if len(subjects) < 30 {
		t.Fatalf("JetStream's API has %d subjects", len(subjects))
	}
	return subjects
}

// docs/security.md: "Everything else is refused by the server." From a connection without
// credentials to the default embedded server of a real process.
func TestWallsOfAProcess(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\nnode: a\n")
	p.WaitReady()
	stranger := newParty(t, p.URL)
	closed := append(jetStreamAPI(t), "$KV.TIDEMARK.member.a", "$KV.TIDEMARK.generations", "$JS.ACK.x", "$SYS.REQ.SERVER.PING",
		"deadletter.json", "tidemark.slowlog", "tidemark.internal.x", "tidemark.internal.member.a", "tidemark.internal.deltas.x",
		"tidemark.hold.a", "tidemark.hold.a.g1", "tidemark.node.a.rebuild", "tidemark.node.a.backup",
		"events.resent.1.0", "_INBOX.of.another")
	wide := []string{">", "*", "events.>", "events.like", "tidemark.>", "tidemark.get", "$SRV.>", "$JS.EVENT.>"}
	stranger.denies(closed, slices.Concat(closed[:len(closed)-1], wide))
	// The doors answer.
	for _, query := range walls.Queries() {
		if query == "inbox" || query == "live" { // not built yet
			continue
		}
		if _, err := stranger.Request("tidemark."+query, []byte("{}"), time.Minute); err != nil {
			t.Errorf("tidemark.%s: %v", query, err)
		}
	}
	refused, err := stranger.Request("tidemark.get", []byte(`{"counter":"pots","ids":["42"]}`), time.Minute)
	if err != nil || refused.Header.Get("Nats-Service-Error-Code") != "404" || refused.Header.Get("Nats-Service-Error") == "" {
		t.Errorf("%+v, %v", refused, err)
	}
	for _, subject := range []string{"$SRV.PING", "$SRV.INFO.tidemark"} {
		if _, err := stranger.Request(subject, nil, time.Minute); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
	likes(t, p.URL, 10)
	liked(t, p, 10)
}

// docs/security.md: "Another process on this server needs it as `nats.nkey`." Without it a
// start ends, and says what to set.
func TestProcessesNeedTheKey(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	for name, settings := range map[string]string{"holds": "shards: 4\n", "only answers": answersOnly} {
		without := e2e.Prepare(t, e2e.Setup{URL: p.URL, Settings: settings})
		without.Spawn()
		e2e.Until(t, "it ends", func() bool { return without.Ended() != nil })
		log := logOf(t, without)
		if without.Ended().ExitCode() != 1 || !strings.Contains(log, "set nats.nkey") || !strings.Contains(log, walls.KeyFile) {
			t.Errorf("one that %s: %v\n%s", name, without.Ended(), log)
		}
		with := e2e.Prepare(t, e2e.Setup{URL: p.URL, Key: p.Key, Settings: settings})
		with.Start()
		with.Stop()
	}
}
