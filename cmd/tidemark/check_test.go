package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program reads its own environment, with a file and without one, and
// config check names the variables, not what they hold.
func TestCheckNamesVariables(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "url")
	for path, text := range map[string]string{file: "node: ${POD}\n", secret: "nats://me:hidden@nats:4222\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := command(t, []string{"POD=pod-0", "TIDEMARK_NATS_URL_FILE=" + secret}, "", "config", "check", file)
	if r.code != 0 || !strings.HasSuffix(r.out, "from the environment: POD, TIDEMARK_NATS_URL_FILE\n") ||
		!strings.Contains(r.out, "pod-0") || strings.Contains(r.out, "hidden") {
		t.Errorf("%+v", r)
	}
	r = command(t, []string{"TIDEMARK_HTTP_LISTEN=127.0.0.1:8099"}, "", "config", "check")
	if r.code != 0 || !strings.Contains(r.out, ":8099") || !strings.HasSuffix(r.out, "from the environment: TIDEMARK_HTTP_LISTEN\n") {
		t.Errorf("%+v", r)
	}
	r = command(t, []string{"TIDEMARK_HTTP_LISTN=:8099"}, "", "config", "check")
	if r.code != 2 || !strings.Contains(r.err, `TIDEMARK_HTTP_LISTN:1: unknown variable; did you mean "TIDEMARK_HTTP_LISTEN"?`) {
		t.Errorf("%+v", r)
	}
	if r = tidemark(t, "config", "check"); strings.Contains(r.out, "environment") {
		t.Errorf("%+v", r)
	}
}

// docs/contract.md: "A config with a mistake is refused at start, all mistakes listed
// with file and line."
func TestConfigMistakes(t *testing.T) {
	p := newPlace(t)
	p.configure(t, "shards: 0\nwindow: {}\nrules:\n  like: [{add: pots.like, key: post}]\n")
	for _, args := range [][]string{
		{"run", "--config", p.config},
		{"config", "check", "--config", p.config},
		{"config", "check", p.config},
	} {
		r := tidemark(t, args...)
		lines := strings.Split(strings.TrimSpace(r.err), "\n")
		if r.code != 2 || r.out != "" || len(lines) != 4 {
			t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
		for i, start := range []string{p.config + ":5: shards: ", p.config + ":6: window: ", p.config + ":8: rules.like", "tidemark: " + p.config + ": 3 mistakes"} {
			if !strings.HasPrefix(lines[i], start) {
				t.Errorf("%q does not begin with %q", lines[i], start)
			}
		}
	}
	absent(t, p.data)
}

func TestConfigCheck(t *testing.T) {
	p := newPlace(t)
	r := tidemark(t, "config", "check", "--config", p.config)
	if r.code != 0 || r.err != "" || !strings.HasPrefix(r.out, p.config+": good\n") || !strings.Contains(r.out, "post (3), user (9), unread (6)") {
		t.Errorf("%+v", r)
	}
	if r := tidemark(t, "config", "check"); r.code != 0 || !strings.HasPrefix(r.out, "built-in defaults: good\n") {
		t.Errorf("%+v", r)
	}
}
