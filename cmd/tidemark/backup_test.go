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
	restore("2999-01-01T00:00:00Z").fails(t, 2, "lies ahead")
	got := document(t, restore(made["position"].(string)).out)
	if got["backup"] != made["id"] || got["position"] != made["position"] || got["time"] != made["time"] || got["bytes"] != made["bytes"] || len(got) != 4 {
		t.Errorf("restored is %v, and the backup %v", got, made)
	}
	// docs/contract.md: "`restore --at` without a zone says in its first line which moment it took."
	r := command(t, []string{"TZ=Asia/Tokyo"}, "", "restore", to, "--data-dir", filepath.Join(t.TempDir(), "then"), "--nats", n.nats, "--nkey", n.key, "--at", "2001-01-31T12:00:00")
	if first, _, _ := strings.Cut(r.out, "\n"); !strings.HasPrefix(first, "as of 2001-01-31T12:00:00") || !strings.Contains(first, ", which is 2001-01-3") {
		t.Errorf("%+v", r)
	}
}
