package config_test

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
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
	after, words, err := config.Adopt("a.yaml", []byte(before), nil, counting)
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
	again, words, err := config.Adopt("a.yaml", after, nil, counting)
	if err != nil || len(words) != 0 || string(again) != text {
		t.Errorf("a second time: %v, %v", words, err)
	}
	for name, file := range map[string]string{"empty": "", "comments": "# nothing\n", "null": "counters:\nfeed:\n"} {
		if _, _, err := config.Adopt("a.yaml", []byte(file), nil, counting); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := config.Adopt("a.yaml", []byte("shards: x"), nil, counting); err == nil || !strings.Contains(err.Error(), "a.yaml:1") {
		t.Errorf("a file with a mistake: %v", err)
	}
	if _, _, err := config.Adopt("a.yaml", []byte(before), nil, []byte("{}")); err == nil {
		t.Error("a record that states nothing is adopted")
	}
	anchored := "x: &c {post: {like: {bits: 8}}}\ncounters: *c\n"
	if _, _, err := config.Adopt("a.yaml", []byte(anchored), nil, counting); err == nil {
		t.Error("a file with a mistake is adopted")
	}
}

// A file may have ${NAME}. A variable that sets what is counted wins over the file: where
// it says something else than what serves, the file is left as it is.
func TestAdoptByTheEnvironment(t *testing.T) {
	serves := config.Default()
	serves.Shards = 16
	counting, err := serves.Counting()
	if err != nil {
		t.Fatal(err)
	}
	const before = "node: ${HOSTNAME} # of the pod\nshards: ${SHARDS:-8}\n"
	environ := []string{"HOSTNAME=pod-0", "TIDEMARK_HTTP_LISTEN=127.0.0.1:1"}
	after, words, err := config.Adopt("a.yaml", []byte(before), environ, counting)
	if err != nil || strings.Join(words, "; ") != "shards 8 → 16" || string(after) != "node: ${HOSTNAME} # of the pod\nshards: 16\n" {
		t.Errorf("%v, %v\n%s", err, words, after)
	}
	_, words, err = config.Adopt("a.yaml", []byte(before), append(environ, "TIDEMARK_SHARDS=16"), counting)
	if err != nil || len(words) > 0 {
		t.Errorf("the variable says what serves: %v, %v", err, words)
	}
	_, _, err = config.Adopt("a.yaml", []byte(before), append(environ, "TIDEMARK_SHARDS=4"), counting)
	if err == nil || !strings.Contains(err.Error(), "a.yaml is not changed: the environment sets TIDEMARK_SHARDS, which wins over the file: unset it") || !strings.Contains(err.Error(), "shards 4 → 16") {
		t.Errorf("%v", err)
	}
}
