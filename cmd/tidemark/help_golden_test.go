package main

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/golden"
)

// The help of every command, as one text: a change shows in the diff.
func TestGoldenHelp(t *testing.T) {
	var text strings.Builder
	show := func(name string) {
		r := command(t, []string{"COLUMNS=80"}, "", append([]string{"help"}, strings.Fields(name)...)...)
		if r.code != 0 || r.err != "" || r.out == "" {
			t.Errorf("help %s: %+v", name, r)
		}
		// docs/contract.md: "`help [COMMAND]`"
		again := command(t, []string{"COLUMNS=80"}, "", append(strings.Fields(name), "--help")...)
		if again != r && name != "help" {
			t.Errorf("%s --help: %+v", name, again)
		}
		text.WriteString("$ tidemark help " + name + "\n" + r.out + "\n")
	}
	show("")
	for _, leaf := range newParser(terminal{}).Model.Leaves(false) {
		show(strings.TrimPrefix(leaf.Path(), "tidemark "))
	}
	golden.Check(t, "help", text.String())
}
