package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/node/fit"
)

// docs/run.md: "The exit code is 0 when all is fit, 1 when something is bad, and 2 for
// wrong usage or a configuration with mistakes."
func TestCheckTheMachine(t *testing.T) {
	p := newPlace(t)
	r := command(t, nil, "", "check", "--config", p.config)
	if r.code != 0 || !strings.HasSuffix(r.out, "\nfit\n") || !strings.Contains(r.out, "no node runs here") {
		t.Errorf("before the start: %+v", r)
	}
	n := shared(t)
	r = n.do("check", "--config", n.config)
	if r.code != 0 || !strings.Contains(r.out, "good  stream EVENTS") || !strings.Contains(r.out, "producer, reader, gateway, application, operator, node") {
		t.Errorf("while it runs: %+v", r)
	}
	if err := os.Chmod(n.key, 0o644); err != nil {
		t.Fatal(err)
	}
	r = n.do("check", "--config", n.config, "--json")
	if err := os.Chmod(n.key, 0o600); err != nil {
		t.Fatal(err)
	}
	var report fit.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 1 || report.Fit || r.err != "" {
		t.Errorf("with a key that all may read: %v, %+v", err, r)
	}
	// Without the key the client is an application, and may do no more.
	r = command(t, []string{"NATS_URL=" + n.nats}, "", "check", "--config", p.config)
	if r.code != 1 || !strings.Contains(r.out, "bad   rights") || !strings.Contains(r.out, "-> give the node's key") {
		t.Errorf("without the key: %+v", r)
	}
	p.configure(t, "http: {lissten: 1}")
	if r = command(t, nil, "", "check", "--config", p.config); r.code != 2 {
		t.Errorf("a mistake: %+v", r)
	}
	command(t, nil, "", "check", "--nonsense").fails(t, 2, "nonsense")
}
