package config_test

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
)

// A file is made to count what serves: comments and all other keys stay, and only the keys
// that differ are set.
func TestAdopt(t *testing.T) {
	const before = `# of this machine
node: a # its name
shards: 8
feed:
  posts_per_author: 120 # few
  retention: 30d
channels: {games: {kind: dot}}
memory: {budget: 256MiB}
`
	serves := config.Default()
	serves.Shards, serves.ChannelsOpen, serves.Limits.Notices = 16, false, 7
	serves.Counters[0].Columns = append(serves.Counters[0].Columns, config.Column{Name: "yes", Bits: 8, Max: 63})
	counting, err := serves.Counting()
	if err != nil {
		t.Fatal(err)
	}
	after, words, err := config.Adopt("a.yaml", []byte(before), counting)
	if err != nil {
		t.Fatal(err)
	}
	is, err := config.Parse("a.yaml", after)
	if err != nil {
		t.Fatalf("%v\n%s", err, after)
	}
	if got, err := is.Counting(); err != nil || string(got) != string(counting) {
		t.Errorf("it counts %s\nnot %s", got, counting)
	}
	text := string(after)
	for _, stays := range []string{"# of this machine", "node: a # its name", "retention: 30d", "# few", "budget: 256MiB"} {
		if !strings.Contains(text, stays) {
			t.Errorf("%q is gone:\n%s", stays, text)
		}
	}
	if len(words) < 4 || strings.Contains(text, "rules:") || !strings.Contains(text, "shards: 16") {
		t.Errorf("%v\n%s", words, text)
	}
	again, words, err := config.Adopt("a.yaml", after, counting)
	if err != nil || len(words) != 0 || string(again) != text {
		t.Errorf("a second time: %v, %v", words, err)
	}
	for name, file := range map[string]string{"empty": "", "comments": "# nothing\n", "null": "counters:\nfeed:\n"} {
		if _, _, err := config.Adopt("a.yaml", []byte(file), counting); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := config.Adopt("a.yaml", []byte("shards: x"), counting); err == nil || !strings.Contains(err.Error(), "a.yaml:1") {
		t.Errorf("a file with a mistake: %v", err)
	}
	if _, _, err := config.Adopt("a.yaml", []byte(before), []byte("{}")); err == nil {
		t.Error("a record that states nothing is adopted")
	}
	anchored := "x: &c {post: {like: {bits: 8}}}\ncounters: *c\n"
	if _, _, err := config.Adopt("a.yaml", []byte(anchored), counting); err == nil {
		t.Error("a file with a mistake is adopted")
	}
}
