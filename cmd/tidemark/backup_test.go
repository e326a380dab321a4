package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A place that cannot be looked at is not one without backups, and a directory with
// counts is refused before a configuration is asked for that would not help.
func TestBackups(t *testing.T) {
	n := shared(t)
	nowhere, to := filepath.Join(t.TempDir(), "nowhere"), t.TempDir()
	for _, args := range [][]string{{"backups", nowhere}, {"backups", nowhere, "--json"}} {
		r := n.do(args...)
		r.fails(t, 1, nowhere, "no such file or directory")
		if r.out != "" || strings.Contains(r.err, "backup: ") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	n.want("1", "incr", "1100.cntcm")
	n.good("backup", to)
	n.do("restore", to, "--data-dir", n.data).fails(t, 1, "has counts: choose another directory")
	if r := n.do("restore", to, "--data-dir", filepath.Join(t.TempDir(), "new")); r.code != 0 { // whatever shards its configuration has
		t.Errorf("%+v", r)
	}

	// docs/contract.md: "`restore FROM --data-dir DIR [--at POSITION|TIME]` · `backups`": a
	// time is written as for deadletters, and both say it in the same way.
	made := document(t, n.good("backups", to, "--json"))["backups"].([]any)[0].(map[string]any)
	restore := func(at string) result {
		return n.do("restore", to, "--data-dir", filepath.Join(t.TempDir(), "then"), "--config", n.config, "--json", "--at", at)
	}
	restore("2001-01-31").fails(t, 1, "there is no backup at or below log time 2001-01-3")
	restore("2001-31-01").fails(t, 2, "neither a position nor a time")
	restore("9999999999").fails(t, 1, "position 9999999999 is past the end of the events")
	for _, at := range []string{"2999-01-01T00:00:00Z", made["position"].(string)} {
		got := document(t, restore(at).out)
		if got["backup"] != made["id"] || got["position"] != made["position"] || got["time"] != made["time"] || got["bytes"] != made["bytes"] || len(got) != 4 {
			t.Errorf("restored at %s is %v, and the backup %v", at, got, made)
		}
	}
}
