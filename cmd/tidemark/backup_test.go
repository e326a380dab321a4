package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A place that cannot be looked at is not one without backups, and a directory with
// counts is refused before a configuration is asked for that would not help.
func TestBackupsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n := p.start(t)
	nowhere, to := filepath.Join(t.TempDir(), "nowhere"), t.TempDir()
	for _, args := range [][]string{{"backups", nowhere}, {"backups", nowhere, "--json"}} {
		r := n.do(args...)
		r.fails(t, 1, nowhere, "no such file or directory")
		if r.out != "" || strings.Contains(r.err, "backup: ") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	n.want("1", "incr", "42.cntcm")
	if r := n.do("backup", to); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	// Its configuration has other shards than the backup: said only where the directory is free.
	n.do("restore", to, "--data-dir", p.data).fails(t, 1, "has counts: choose another directory")
	n.do("restore", to, "--data-dir", filepath.Join(to, "new")).fails(t, 1, "set shards: ")
}
