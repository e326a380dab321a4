package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// unpack are the parts of a bundle.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	parts := map[string]string{}
	for name, text := range e2e.Unpack(t, path) {
		parts[strings.TrimPrefix(name, "tidemark-debug/")] = text
	}
	return parts
}

// A bundle of a node that runs has everything, and none of the secrets that its
// configuration, its environment, its key and its log have.
func TestDebugBundle(t *testing.T) {
	t.Parallel()
	const token, password = "t0ken-Which-nobody-may-see", "pa55word-Which-nobody-may-see"
	p := newPlace(t)
	tokens, clients, log := filepath.Join(p.dir, "tokens"), filepath.Join(p.dir, "clients"), filepath.Join(p.dir, "log")
	for path, text := range map[string]string{
		tokens: token + " gateway\n", clients: "someone:" + password + " operator\n",
		log: "first\nlost nats://someone:" + password + "@h:1\nAuthorization: Bearer " + token + "\nlast\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.configure(t, "api: {tokens: "+tokens+"}\nnats: {listen: '127.0.0.1:0', auth: "+clients+", "+smallStreams+"}\n")
	n := p.start(t)
	seed, err := os.ReadFile(n.key)
	if err != nil {
		t.Fatal(err)
	}
	n.want("1", "incr", "43.cntrn")
	e2e.Until(t, "the shards are assigned", func() bool { return strings.Contains(n.do("shards").out, " ready") })
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	r := tidemark(t, "--nats", "nats://someone:"+password+"@"+strings.TrimPrefix(n.nats, "nats://"),
		"debug", "bundle", file, "--config", p.config, "--url", n.url, "--log", log, "--cpu", "1s")
	if r.code != 0 || r.err != "" {
		t.Fatalf("%+v", r)
	}
	parts := unpack(t, file)
	for name, has := range map[string]string{
		"about.txt": "tidemark ", "config.txt": "api.tokens: " + tokens, "check.json": `"stream EVENTS"`, "metrics.txt": "tidemark_events_total",
		"readyz.txt": "ok", "nodes.json": `"state": "up"`, "shards.json": `"shard": 3`, "slowlog.json": `"slowest"`, "log.txt": "last",
		"goroutines.txt": "goroutine ", "heap.pb.gz": "\x1f\x8b", "goroutine.pb.gz": "\x1f\x8b", "cpu.pb.gz": "\x1f\x8b",
	} {
		if !strings.Contains(parts[name], has) {
			t.Errorf("%s has no %q: %.500q", name, has, parts[name])
		}
	}
	for name, text := range parts {
		for _, secret := range []string{token, password, strings.TrimSpace(string(seed))} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	if parts["missing.txt"] != "" || len(parts) != 13 {
		t.Errorf("%d parts, missing: %s", len(parts), parts["missing.txt"])
	}
	command(t, nil, "", "debug", "bundle", file, "--config", p.config).fails(t, 1, "file exists")
}

// Without a node the bundle has what there is, and says what is missing.
func TestDebugBundleWithoutANode(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	r := command(t, []string{"NATS_URL=nats://a:sesame-s3same@127.0.0.1:1"}, "", "debug", "bundle", file, "--config", p.config)
	parts := unpack(t, file)
	if r.code != 0 || !strings.Contains(parts["config.txt"], "data_dir: "+p.data) {
		t.Errorf("%+v, %q", r, parts)
	}
	for _, missing := range []string{"metrics.txt: ", "readyz.txt: ", "nodes, shards, slowlog: no tidemark answers", "log.txt: the node logs to standard error"} {
		if !strings.Contains(parts["missing.txt"], missing) || !strings.Contains(r.err, missing) {
			t.Errorf("%q is not missing: %s", missing, parts["missing.txt"])
		}
	}
	for name, text := range parts {
		if strings.Contains(text, "s3same") {
			t.Errorf("%s has the password:\n%s", name, text)
		}
	}
	command(t, nil, "", "debug", "bundle", file+"2", "--cpu", "1.5s").fails(t, 2, "whole seconds")
}

// Without the node's key the bundle says what the server does not let it ask.
func TestDebugBundleOfAStranger(t *testing.T) {
	n := shared(t)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	r := command(t, []string{"NATS_URL=" + n.nats}, "", "debug", "bundle", file, "--config", newPlace(t).config, "--url", n.url, "--cpu", "0s")
	parts := unpack(t, file)
	if r.code != 0 || !strings.Contains(parts["nodes.json"], `"state": "up"`) || !strings.Contains(parts["missing.txt"], "slowlog.json: ") ||
		!strings.Contains(parts["missing.txt"], "does not let this client do so") {
		t.Errorf("%+v, missing: %s", r, parts["missing.txt"])
	}
}
