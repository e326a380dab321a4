package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestDeadletters(t *testing.T) {
	n := newPlace(t).start(t)
	n.want("no dead letters", "deadletters")
	n.want(`{"letters":[],"more":false}`, "deadletters", "--json")
	n.do("deadletters", "show", "1").fails(t, 1, "there is no dead letter 1: there are none")
	n.do("deadletters", "show", "0").fails(t, 1, "there is no dead letter 0: there are none")

	js := n.connect(t)
	bodies := []string{"not json", `{"actor":1,"target":1}`, "\x00\xff\x1b[2J\u009b", strings.Repeat("é", 3000)}
	for i, body := range bodies {
		message := &nats.Msg{Subject: "events.follow", Data: []byte(body), Header: nats.Header{"Trace": {fmt.Sprint("t", i), "\x1b[2J"}, "Nats-Msg-Id": {fmt.Sprint("id", i)}}}
		if _, err := js.PublishMsg(message); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Until(t, "refused", func() bool { return strings.Count(n.do("deadletters").out, "\n") == 5 })

	// "Refused events are logged in at most one line a minute": all within
	// a minute in one line.
	if text := n.log.String(); strings.Count(text, "events are refused") != 1 || !strings.Contains(text, `"position":1024,"reason":"json"`) {
		t.Errorf("the log has\n%s", text)
	}

	r := n.do("deadletters")
	lines := strings.Split(r.out, "\n")
	if r.code != 0 || !strings.HasPrefix(lines[0], "SEQ  TIME ") || !strings.HasPrefix(lines[1], "  4  ") || !strings.Contains(lines[1], "  4096  ") ||
		!strings.HasSuffix(lines[1], strings.Repeat("é", 60)+"…") || !strings.HasPrefix(lines[4], "  1  ") || strings.ContainsAny(r.out, "\x00\x1b\u009b") {
		t.Errorf("%q", r.out)
	}
	if r := n.do("deadletters", "--reason", "self"); r.code != 0 || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, `user 1 follows themself  {"actor":1,"target":1}`) {
		t.Errorf("%+v", r)
	}
	if r := n.do("deadletters", "--limit", "2"); r.code != 0 || strings.Count(r.out, "\n") != 4 || !strings.HasSuffix(r.out, "more: --limit 20\n") {
		t.Errorf("%+v", r)
	}
	got := document(t, n.do("deadletters", "--limit", "1", "--reason", "json", "--json").out)
	letter := got["letters"].([]any)[0].(map[string]any)
	if got["more"] != true || letter["seq"] != 4.0 || letter["position"] != "4096" || letter["event_seq"] != 4.0 || letter["line"] != 0.0 ||
		letter["reason"] != "json" || letter["time"] == "" || letter["error"] == "" || letter["begins"] != strings.Repeat("é", 60)+"…" {
		t.Errorf("%v", got)
	}

	// Whole, with headers; harmless to a terminal, and as it is with --json.
	r = n.do("deadletters", "show", "3")
	for _, want := range []string{"deadletter.json at ", "\nTrace: t2\nTrace: \\x1b[2J\n", "\nTidemark-Nats-Msg-Id: id2\n", "\nTidemark-Sequence: 3\n", "\n\n\\x00\\xff\\x1b[2J\\u009b\n"} {
		if !strings.Contains(r.out, want) || r.code != 0 {
			t.Errorf("%q does not say %q", r.out, want)
		}
	}
	if r := n.do("deadletters", "show", "4"); !strings.HasSuffix(r.out, "\n\n"+bodies[3]+"\n") {
		t.Errorf("%+v", r)
	}
	for i, body := range bodies {
		got := document(t, n.do("deadletters", "show", fmt.Sprint(i+1), "--json").out)
		said, isText := got["body"].(string)
		if !isText {
			raw, err := base64.StdEncoding.DecodeString(got["body_base64"].(string))
			if err != nil {
				t.Error(err)
			}
			said = string(raw)
		}
		if said != body || got["seq"] != float64(i+1) || got["headers"].(map[string]any)["Trace"].([]any)[0] != fmt.Sprint("t", i) {
			t.Errorf("%d: %v", i+1, got)
		}
	}
	n.do("deadletters", "show", "5").fails(t, 1, "there is no dead letter 5: there are those from 1 to 4")

	if err := js.DeleteStream("DEADLETTER"); err != nil {
		t.Fatal(err)
	}
	if r := n.do("deadletters"); r.code != 0 && !strings.Contains(r.err, "no stream DEADLETTER") { // or it has been made again
		t.Errorf("%+v", r)
	}
}
