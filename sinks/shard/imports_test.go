package shard_test

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tidemark-io/tidemark/"

// "It does no I/O": a shard can reach no disk and no network, neither by itself
// nor by what it imports of ours.
func TestNoIO(t *testing.T) {
	root := "../../"
	seen, left := map[string]bool{}, []string{"sinks/shard"}
	for len(left) > 0 {
		path := left[0]
		left = left[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		p, err := build.ImportDir(root+path, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			if slices.Contains([]string{"os", "io/fs", "net", "net/http", "syscall", "os/exec"}, imported) {
				t.Errorf("%s imports %s: what does I/O belongs to sinks/tier or sinks/cold", path, imported)
			}
			own, ours := strings.CutPrefix(imported, module)
			switch {
			case ours:
				left = append(left, own)
			case strings.Contains(imported, "."):
				t.Errorf("%s imports %s: a shard is a value of ours alone", path, imported)
			}
		}
	}
	if want := []string{"pipeline", "sinks/hot", "sinks/shard"}; len(seen) != len(want) || !seen[want[0]] || !seen[want[1]] {
		t.Errorf("a shard needs %v, want %v", seen, want)
	}
}
