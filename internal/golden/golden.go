// Package golden holds texts against files that are kept beside a test. What such a file
// has is meant to stay: a change shows in the diff of a commit, which says why.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files testdata/*.golden")

// Check fails the test if got is not what testdata/NAME.golden has, and shows the lines
// that differ. With -update it writes the file.
func Check(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("it differs from %s (-update writes it; say in the commit why):\n%s", file, differing(got, string(want)))
	}
}

// differing are the lines that one of two texts has alone; where there are none the order
// differs, and it is the first text.
func differing(got, want string) string {
	of, is := strings.Split(got, "\n"), strings.Split(want, "\n")
	var lines []string
	for _, line := range of {
		if !slices.Contains(is, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(of, line) {
			lines = append(lines, "- "+line)
		}
	}
	if len(lines) == 0 {
		return got
	}
	return strings.Join(lines, "\n")
}
