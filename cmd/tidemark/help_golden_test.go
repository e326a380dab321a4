package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/help.golden")

// The help of every command, as one text: a change shows in the diff.
func TestGoldenHelp(t *testing.T) {
	var text strings.Builder
	show := func(name string) {
		r := command(t, []string{"COLUMNS=80"}, "", append([]string{"help"}, strings.Fields(name)...)...)
		if r.code != 0 || r.out == "" {
			t.Errorf("help %s: %+v", name, r)
		}
		text.WriteString("$ tidemark help " + name + "\n" + r.out + "\n")
	}
	show("")
	for _, leaf := range newParser(terminal{}).Model.Leaves(false) {
		show(strings.TrimPrefix(leaf.Path(), "tidemark "))
	}
	const file = "testdata/help.golden"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("help differs from %s (-update rewrites it; look at the diff)", file)
	}
}
