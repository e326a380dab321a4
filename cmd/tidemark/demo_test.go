package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// The demo says that it is made up, and the commands that it tells to try
// work and show numbers that move.
func TestDemo(t *testing.T) {
	p := newPlace(t)
	n := p.start(t, "--demo")
	e2e.Until(t, "the text", func() bool { return strings.Contains(n.out.String(), "Ctrl-C stops it.") })
	text := n.out.String()
	for _, want := range []string{"MADE-UP", "synthetic", n.url + "/demo/", n.url + "/metrics", n.url + "/readyz", n.nats, p.data + "-demo"} {
		if !strings.Contains(text, want) {
			t.Errorf("does not say %s:\n%s", want, text)
		}
	}
	// docs/contract.md: "SIGHUP ends nothing."
	if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "SIGHUP is heard", func() bool { return strings.Contains(n.log.String(), "SIGHUP") })
	commands := regexp.MustCompile(`(?m)^  `+regexp.QuoteMeta(binary)+` (.*)$`).FindAllStringSubmatch(text, -1)
	if len(commands) != 3 || !strings.Contains(text, "may set any counter and mark as read for any user, by NATS and HTTP.") {
		t.Fatalf("%d commands to try:\n%s", len(commands), text)
	}
	for _, command := range commands {
		args := strings.Fields(command[1])
		before := tidemark(t, args...)
		if args[0] == "verify" {
			if before.code != 0 || !strings.Contains(before.out, "all as the log says") {
				t.Errorf("%s: %+v", command[1], before)
			}
			continue
		}
		if before.code != 0 || before.err != "" {
			t.Errorf("%s: %+v", command[1], before)
		}
		e2e.Until(t, "numbers move", func() bool { return tidemark(t, args...).out != before.out })
	}
	if code := n.stop(syscall.SIGINT); code != 0 {
		t.Errorf("exit code %d", code)
	}
	absent(t, p.data)

	// Made-up numbers and real ones do not mix.
	p.data += "-demo"
	p.configure(t, "")
	p.refuses(t, "made-up numbers", "--demo")
	p.configure(t, "nats: {url: 'nats://127.0.0.1:1'}\n")
	tidemark(t, "run", "--demo", "--config", p.config).fails(t, 2, "embedded server only")
}
