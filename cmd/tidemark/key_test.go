package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/contract.md: "Every command that lacks the node key says which key it tried, where it
// looked, and how to give it. `degrade`, `nodes` and `shards` without arguments need none."
func TestCommandsWithoutTheKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n := p.start(t)
	n.want("1", "incr", "42.cntrn")
	here := t.TempDir()
	for _, dir := range []string{"data", "data-demo"} {
		if err := os.Mkdir(filepath.Join(here, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(environment []string, args ...string) result {
		t.Helper()
		return commandIn(t, here, environment, append(args, "--nats", n.nats)...)
	}
	needing := [][]string{
		{"verify", "--all"},
		{"recount", "post", "1"},
		{"rebuild", "--status"},
		{"degrade", "reads=all"},
		{"nodes", "drain", "a"},
		{"deadletters"},
		{"backup", "nats:B"},
		{"backups", "nats:B"},
		{"restore", "nats:B", "--data-dir", "other"},
		{"events", "archive", "archive"},
		{"config", "adopt", "--config", "none.yaml"},
		{"slowlog"},
	}
	for _, args := range needing {
		ask(nil, args...).fails(t, 1, "no key was given, and there is no data directory with one here; give --nkey DATA_DIR/node.nk of the node, or set TIDEMARK_NKEY")
	}
	for _, args := range [][]string{{"degrade"}, {"nodes"}, {"shards"}, {"get", "post", "42"}} {
		if r := ask(nil, args...); r.code != 0 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	stale := filepath.Join("data", "node.nk")
	if err := os.WriteFile(filepath.Join(here, stale), []byte("SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(nil, "verify", "--all").fails(t, 1, "the key "+stale+" (of the data directory here) is none of this server's; give --nkey")
	ask(nil, "verify", "--all", "--nkey", stale).fails(t, 1, stale+" (of --nkey) is none of this server's")
	ask([]string{"TIDEMARK_NKEY=missing"}, "verify", "--all").fails(t, 1, "missing", "no such file", "$TIDEMARK_NKEY")
	if r := commandIn(t, here, []string{"TIDEMARK_NKEY=missing"}, "version"); r.code != 0 {
		t.Errorf("version: %+v", r)
	}
	if r := ask(nil, "get", "post", "42"); r.code != 0 {
		t.Errorf("with a key of another server here: %+v", r)
	}
	// The key of a demo that was started here is found, whatever else is here.
	if err := os.Link(n.key, filepath.Join(here, "data-demo", "node.nk")); err != nil {
		t.Fatal(err)
	}
	if r := ask(nil, "verify", "--all"); r.code != 0 || !strings.Contains(r.out, "all as the log says") {
		t.Errorf("with the demo's key: %+v", r)
	}
}
