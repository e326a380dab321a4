package node

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"gopkg.in/yaml.v3"
)

// snippet is what README shows in another language, as far as it can be done
// here: what it publishes, what it asks, and what it says comes of it.
type snippet struct {
	event, question map[string]any
	publish, ask    string // subjects
	prints          []any
}

// readSnippet takes the snippet apart. Object literals of JavaScript and
// dictionaries of Python are both flow mappings of YAML.
func readSnippet(t *testing.T, text string) (s snippet) {
	t.Helper()
	for pattern, to := range map[string]any{
		`event = (\{.*?\})`:                      &s.event,
		`question = (\{.*?\})[;\n]`:              &s.question,
		`\.publish\("([^"]+)"`:                   &s.publish,
		`\.request\("([^"]+)"`:                   &s.ask,
		`(?:console\.log|print)\(.*(\[ ?\{.*\])`: &s.prints,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("README's snippet has nothing like %s:\n%s", pattern, text)
		}
		if err := yaml.Unmarshal([]byte(found[1]), to); err != nil {
			t.Fatalf("%s: %v", found[1], err)
		}
	}
	return s
}

// What README shows in Node and in Python comes to what it says, with a plain
// connection. The libraries' own calls are not made here: there is neither.
func readmeReadsYourWrites(t *testing.T, _ *Node, nc *nats.Conn) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n### Read your own writes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	request := func(subject string, body any) (reply map[string]any) {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.Request(subject, data, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			t.Fatalf("%s: %v: %s", m.Header.Get("Nats-Service-Error"), err, m.Data)
		}
		return reply
	}
	for _, language := range []string{"js", "python"} {
		_, text, found := strings.Cut(section, "\n```"+language+"\n")
		text, _, _ = strings.Cut(text, "\n```")
		if !found {
			t.Fatalf("README has no snippet in %s", language)
		}
		s := readSnippet(t, text)
		ack := request(s.publish, s.event)
		if s.question["min_seq"] != "ack.seq" {
			t.Fatalf("the question in %s does not ask for what was acknowledged: %v", language, s.question)
		}
		s.question["min_seq"] = ack["seq"]
		got, _ := json.Marshal(request(s.ask, s.question)["rows"])
		want, _ := json.Marshal(s.prints)
		if string(got) != string(want) {
			t.Errorf("in %s: %s comes of it, README says %s", language, got, want)
		}
	}
}
