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
	r = command(t, []string{"TIDEMARK_HTTP_LISTEN=:8099"}, "", "config", "check")
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
