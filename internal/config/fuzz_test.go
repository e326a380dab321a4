package config

import (
	"errors"
	"strings"
	"testing"
)

// Whatever the text: no panic; either a configuration that makes a schema, or
// faults with a line each, in order.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "a", "shards: 1", "nats: {listen: ':1'}", "windows: {bytes: 1MiB, delay: 1d}",
		"counters: &a {p: {l: {bits: 9, suffix: s, default: 1}}, q: *a}",
		"rules: {v: [{add: post.like, key: k, if: self}]}", "rules: {v: [{add: post.like, key: k, once: [a, b], keep: 1s}, {add: post.like, key: k, once: c}]}", "channels: {g: {kind: dot}}",
		"? [a]\n: b", "<<: {shards: 2}", "\"a\\nb\": 1", "--- 1\n--- 2", "node: ${A}", "shards: ${B:-3}", "node: $${x}", "zone: ${", "nats:\n  tls: {cert: [}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := parseIn("f.yaml", text, newEnvironment([]string{"A=a", "B={", "C=a: b\nc: d"}))
		if err == nil {
			if _, err := c.Schema(); err != nil {
				t.Fatal(err)
			}
			return
		}
		var faults Faults
		if !errors.As(err, &faults) || len(faults) == 0 || c != nil {
			t.Fatalf("config %v, error %v", c, err)
		}
		if lines := strings.Count(err.Error(), "\n") + 1; lines != len(faults) {
			t.Fatalf("%d faults on %d lines: %v", len(faults), lines, err)
		}
		last := 1
		for _, fault := range faults {
			if fault.Line < last {
				t.Fatalf("line %d after %d: %v", fault.Line, last, err)
			}
			last = fault.Line
		}
	})
}
