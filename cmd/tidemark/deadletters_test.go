package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestDeadletters(t *testing.T) {
	t.Parallel()
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

	t.Run("purge and summary", func(t *testing.T) { purgeAndSummary(t, n) })
}

// docs/contract.md: "`deadletters purge [--reason R] [--before TIME] [--yes]` ·
// `deadletters summary`"
func purgeAndSummary(t *testing.T, n *process) {
	js := n.connect(t)
	n.good("deadletters", "purge", "--yes")
	n.want("no dead letters", "deadletters", "summary")
	n.want(`{"letters":0,"reasons":[]}`, "deadletters", "summary", "--json")
	letters := float64(n.lettersEnd(t))
	n.refuse(js, [2]string{"events.like", "x"}, [2]string{"events.like", "{}"}, [2]string{"events.like", "y"})
	r := n.do("deadletters", "summary")
	lines := strings.Split(r.out, "\n")
	if r.code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[0], "REASON  LETTERS  OLDEST") || !strings.HasPrefix(lines[1], "json          2  ") || !strings.HasPrefix(lines[2], "id            1  ") {
		t.Errorf("%q", r.out)
	}
	got := document(t, n.do("deadletters", "summary", "--json").out)
	first := got["reasons"].([]any)[0].(map[string]any)
	if got["letters"] != 3.0 || first["reason"] != "json" || first["oldest"].(map[string]any)["seq"] != letters+1 || first["newest"].(map[string]any)["seq"] != letters+3 {
		t.Errorf("%v", got)
	}

	n.do("deadletters", "purge").fails(t, 2, "this would delete all dead letters, 3 of them: give --yes, or --reason or --before")
	n.do("deadletters", "purge", "--before", "soon").fails(t, 2, "2026-01-31")
	n.do("deadletters", "purge", "--before", "0s").fails(t, 2, "all were kept before it")
	n.do("deadletters", "purge", "--before", "2999-01-01").fails(t, 2, "lies ahead")
	n.do("deadletters", "purge", "--reason", "x").fails(t, 2, "is unknown")
	n.want("0 dead letters deleted", "deadletters", "purge", "--before", "7d")
	n.want("1 dead letter deleted", "deadletters", "purge", "--reason", "id")
	n.want("0 dead letters deleted", "deadletters", "purge", "--before", time.Now().Add(-time.Hour).Format(time.RFC3339))
	n.want(`{"purged":2}`, "deadletters", "purge", "--yes", "--json")
	n.want("no dead letters", "deadletters")
}
