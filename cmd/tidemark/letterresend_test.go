package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// refuse publishes events that are refused, and waits for their letters.
func (n *process) refuse(js nats.JetStreamContext, events ...[2]string) {
	n.t.Helper()
	before, err := js.StreamInfo("DEADLETTER")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range events {
		if _, err := js.PublishMsg(&nats.Msg{Subject: e[0], Data: []byte(e[1]), Header: nats.Header{"Trace": {"t"}}}); err != nil {
			n.t.Fatal(err)
		}
	}
	e2e.Until(n.t, "refused", func() bool {
		after, err := js.StreamInfo("DEADLETTER")
		return err == nil && after.State.LastSeq >= before.State.LastSeq+uint64(len(events))
	})
}

// "`resend SEQ…`": docs/contract.md: "sends refused events again, mended or as they came:
// counted once"
func TestResend(t *testing.T) {
	t.Parallel()
	n := newPlace(t).start(t)
	js := n.connect(t)
	n.refuse(js,
		[2]string{"events.like", `{"actor":0,"post":42,"author":9}`},                                          // 1
		[2]string{"events.like", `not json`},                                                                  // 2
		[2]string{"events.lkie", `{"actor":1,"post":42,"author":9}`},                                          // 3
		[2]string{"events.view", `{"video":5}`},                                                               // 4
		[2]string{"events.pack", `{"type":"like","actor":1,"post":42,"author":0}`},                            // 5: the line alone
		[2]string{"events.like", `{"type":"follow","actor":1,"target":2}`},                                    // 6
		[2]string{"events.pack", strings.Repeat(`{"type":"like","actor":1,"post":43,"author":9}`+"\n", 1025)}, // 7
	)
	like := `{"actor":7,"post":42,"author":9}`

	// What would still be refused is not sent, and says so.
	r := n.do("deadletters", "resend", "1")
	r.fails(t, 1, "1 of 1 dead letter not counted")
	if r.out != "1: not sent: it would be refused (id): actor: 0 is not an id\n" {
		t.Errorf("%q", r.out)
	}
	n.do("deadletters", "resend", "1", "--data", `{"actor":7}`).fails(t, 1, "not counted")
	n.do("deadletters", "resend", "1", "--data", `{"type":"li ke"}`).fails(t, 1, "not counted")
	n.do("deadletters", "resend", "6").fails(t, 1, "not counted")
	n.do("deadletters", "resend", "7").fails(t, 1, "not counted")
	n.want("0", "get", "42.cntan")

	// Mended: counted, once.
	if r := n.do("deadletters", "resend", "1", "--data", like); r.code != 0 || r.out != "1: counted, at position 8192\n" {
		t.Errorf("%+v", r)
	}
	n.want("1", "get", "42.cntan")
	n.do("deadletters", "resend", "1", "--data", like).fails(t, 1, "not counted") // it is no dead letter any more
	if r := n.feed(like+"\n", "deadletters", "resend", "2", "--file", "-"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := n.do("deadletters", "resend", "3", "--type", "like"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := n.do("deadletters", "resend", "5", "--data", `{"type":"like","actor":1,"post":42,"author":9}`, "--json"); r.code != 0 ||
		r.out != `{"counts":{"counted":1},"letters":[{"seq":5,"result":"counted","position":"11264"}]}`+"\n" {
		t.Errorf("%+v", r)
	}
	if r := n.do("deadletters", "resend", "6", "--type", "follow"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	n.want("4", "get", "42.cntan")
	m, err := js.GetMsg("EVENTS", 8)
	if err != nil || !strings.HasPrefix(m.Subject, "events.resent.1024-") || string(m.Data) != like || m.Header.Get("Trace") != "t" || m.Header.Get("Tidemark-Type") != "like" {
		t.Errorf("%+v %v", m, err)
	}

	// What the rules that serve would refuse again is not sent, and kept.
	r = n.do("deadletters", "resend", "4", "99", "0")
	r.fails(t, 1, "3 of 3 dead letters not counted")
	if want := "0: not there: there is no such dead letter: it was sent again, or deleted, or never was\n" +
		"4: not sent: it would be refused (type): no rule knows the type view\n" +
		"99: not there: there is no such dead letter: it was sent again, or deleted, or never was\n1 not sent, 2 not there\n"; r.out != want {
		t.Errorf("%q", r.out)
	}
	if r := n.do("deadletters", "show", "4"); !strings.Contains(r.out, `{"video":5}`) {
		t.Errorf("%+v", r)
	}

	// By a file that counts otherwise it is sent. What the node refuses again is said, and kept.
	views := filepath.Join(t.TempDir(), "views.yaml")
	if err := os.WriteFile(views, []byte("counters: {video: {view: {bits: 8, suffix: views}}}\nrules: {view: [{add: video.view, key: video}]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = n.do("deadletters", "resend", "4", "99", "0", "--config", views)
	r.fails(t, 1, "3 of 3 dead letters not counted")
	// docs/replay.md: "The event as it came stands in EVENTS as well: a later rebuild by rules that take it counts both, and the command warns of that."
	if want := "0: not there: there is no such dead letter: it was sent again, or deleted, or never was\n" +
		"4: refused, at position 13312: type: no rule knows the type view; it is kept: tidemark deadletters show 8\n" +
		"99: not there: there is no such dead letter: it was sent again, or deleted, or never was\n1 refused, 2 not there\n" +
		"warning: what was sent as it came stays in EVENTS where it came, too: a later rebuild or 'repair --replay' by rules that take it counts both\n"; r.out != want {
		t.Errorf("%q", r.out)
	}
	if r := n.do("deadletters", "show", "8"); !strings.Contains(r.out, `{"video":5}`) {
		t.Errorf("%+v", r)
	}
}

// Hundreds at once, which are mended by their type or counted by other rules: each counts once, and
// the letters of those that were sent go.
func TestResendMany(t *testing.T) {
	t.Parallel()
	n := newPlace(t).start(t)
	js := n.connect(t)
	var likes [][2]string
	for i := range 300 { // more than are sent at once
		likes = append(likes, [2]string{"events.lik", fmt.Sprintf(`{"actor":%d,"post":5,"author":9}`, i+1)})
	}
	n.refuse(js, append(likes, [2]string{"events.lik", `{"actor":0,"post":5,"author":9}`})...)
	r := n.do("deadletters", "resend", "--reason", "type", "--type", "like")
	r.fails(t, 1, "1 of 301 dead letters not counted")
	if want := "301: not sent: it would be refused (id): actor: 0 is not an id\n300 counted, 1 not sent\n"; r.out != want {
		t.Errorf("%q, want %q", r.out, want)
	}
	n.want("300", "get", "5.cntan")
	if out := n.good("deadletters", "summary"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "type          1  ") {
		t.Errorf("%q", out)
	}
}
