package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command that docs/contract.md names is one, with the flags that it names.
func TestContractCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	help := func(command []string) string {
		t.Helper()
		r := tidemark(t, append([]string{"help"}, command...)...)
		if r.code != 0 {
			t.Errorf("docs/contract.md names the command %q: %+v", command, r)
		}
		return r.out
	}
	_, section, _ := strings.Cut(text, "\n## Commands\n")
	section, _, _ = strings.Cut(section, "\n## ")
	more := strings.Join(regexp.MustCompile(`(?s)\nCommands: .*?(\n\n|$)`).FindAllString(text, -1), "")
	word, flag, span := regexp.MustCompile(`^[a-z]+$`), regexp.MustCompile(`--[a-z]+`), regexp.MustCompile("`([^`]+)`")
	var names []string
	shown := "" // of the command that was named last
	for _, match := range span.FindAllStringSubmatch(section+more, -1) {
		var command []string
		for _, w := range strings.Fields(strings.TrimPrefix(match[1], "tidemark ")) {
			if !word.MatchString(w) {
				break
			}
			command = append(command, w)
		}
		if len(command) > 0 {
			names = append(names, strings.Join(command, " "))
			shown = help(command)
		}
		for _, f := range flag.FindAllString(match[1], -1) {
			if len(command) == 0 && (f == "--json" || f == "--nats") { // "on every query command"
				continue
			}
			if !strings.Contains(shown, f) {
				t.Errorf("docs/contract.md names %s, which help does not have:\n%s", f, shown)
			}
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != 42 {
		t.Errorf("%d commands: %q", len(names), names)
	}
	for _, query := range []string{"get", "unread", "feed", "following", "followers", "stats"} {
		if page := help([]string{query}); !strings.Contains(page, "--json") || !strings.Contains(page, "--nats") {
			t.Errorf("docs/contract.md: \"`--json` on every query command\": help %s:\n%s", query, page)
		}
	}
}
