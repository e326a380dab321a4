package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func lane(tb testing.TB) *operators.Lane {
	tb.Helper()
	c := config.Default()
	schema, err := c.Schema()
	if err != nil {
		tb.Fatal(err)
	}
	program, err := operators.Compile(schema, c.Rules(), c.Shards, operators.Limits{Events: 8192, Bytes: 512 << 10})
	if err != nil {
		tb.Fatal(err)
	}
	return program.NewLane()
}

// derive counts events by type and fails on dead letters.
func derive(tb testing.TB, messages []pipeline.Message) map[string]int {
	tb.Helper()
	l, last := lane(tb), messages[len(messages)-1].Sequence
	derived, err := l.Derive(0, pipeline.EndOf(last), messages)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range derived {
		for _, letter := range d.Letters {
			tb.Errorf("dead letter: %s: %s: %s", letter.Reason, letter.Detail, letter.Data)
		}
	}
	kinds := map[string]int{}
	for _, m := range messages {
		for line := range bytes.Lines(m.Data) {
			var e struct {
				Type   string
				Delete bool
				Repost uint64 `json:"repost_of"`
			}
			if err := json.Unmarshal(line, &e); err != nil {
				tb.Fatal(err)
			}
			if e.Delete {
				e.Type = "un" + e.Type
			}
			if e.Repost != 0 {
				e.Type = "repost"
			}
			kinds[e.Type]++
		}
	}
	return kinds
}

func read(tb testing.TB, js jetstream.JetStream) (messages []pipeline.Message) {
	tb.Helper()
	stream, err := js.Stream(tb.Context(), jetlog.EventsStream)
	if err != nil {
		tb.Fatal(err)
	}
	for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		m, err := stream.GetMsg(tb.Context(), sequence)
		if err != nil {
			tb.Fatal(err)
		}
		messages = append(messages, pipeline.Message{Sequence: sequence, Time: m.Time.UnixMilli(), Subject: m.Subject, Header: m.Header, Data: m.Data})
	}
	return messages
}

func TestCommunity(t *testing.T) {
	server := natstest.Server(t)
	_, js := natstest.Streams(t, server)
	var log bytes.Buffer
	o := Options{Rate: 20_000, Users: 50, EventsMax: 3000, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := Run(t.Context(), natstest.Connect(t, server), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "synthetic") {
		t.Errorf("the log does not say what it is: %s", log.String())
	}
	kinds := derive(t, read(t, js))
	for _, kind := range strings.Fields("post repost comment like mention message follow notice read unlike unfollow") {
		if kinds[kind] == 0 {
			t.Errorf("no %s", kind)
		}
		if kind != "like" && kind != "follow" && kinds[kind] >= kinds["like"] {
			t.Errorf("more of %s than of like", kind)
		}
	}
}

// lines are the events that the log has.
func lines(tb testing.TB, js jetstream.JetStream) (n int) {
	tb.Helper()
	for _, m := range read(tb, js) {
		n += bytes.Count(m.Data, []byte("\n")) + 1
	}
	return n
}

// "firstFree is a post number that no earlier demo on the same log has used". Each run ends at its bound.
func TestRunsOnOneLog(t *testing.T) {
	server := natstest.Server(t)
	_, js := natstest.Streams(t, server)
	nc := natstest.Connect(t, server)
	before := 0
	for _, bound := range []int{1, 3, 3000, 3000} {
		if err := Run(t.Context(), nc, Options{Rate: 20_000, Users: 30, EventsMax: bound}); err != nil {
			t.Fatal(err)
		}
		after := lines(t, js)
		if after-before != bound {
			t.Errorf("%d events, want %d", after-before, bound)
		}
		before = after
	}
	seen := map[uint64]bool{}
	for _, m := range read(t, js) {
		for line := range bytes.Lines(m.Data) {
			var e struct {
				Type string
				Post uint64
			}
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == "post" && seen[e.Post] {
				t.Errorf("post %d is published twice", e.Post)
			}
			seen[e.Post] = seen[e.Post] || e.Type == "post"
		}
	}
}

// Thousands of events, none of them a dead letter, the same every time.
func TestTown(t *testing.T) {
	for _, users := range []int{2, 1000} {
		live := func() (body []byte) {
			town := newTown(users, firstFree(0), true)
			events := town.opening()
			for range 10_000 {
				events = append(events, town.next())
			}
			var err error
			for _, e := range events {
				if body, err = e.AppendJSON(body); err != nil {
					t.Fatal(err)
				}
				body = append(body, '\n')
			}
			return body
		}
		body := live()
		if !bytes.Equal(body, live()) {
			t.Error("two towns of one seed differ")
		}
		var messages []pipeline.Message
		for line := range bytes.Lines(body) {
			messages = append(messages, pipeline.Message{Sequence: uint64(len(messages)) + 1, Time: 1, Subject: "events.pack", Data: line})
		}
		derive(t, messages)
	}
}

func TestServerAway(t *testing.T) {
	natstest.Long(t)
	dir := t.TempDir()
	start := func(listen string) *embed.Server {
		s, err := embed.StartServer(embed.ServerOptions{Listen: listen, StoreDir: dir, SyncInterval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	server := start("127.0.0.1:0")
	address := strings.TrimPrefix(server.URL(), "nats://")
	nc := natstest.Connect(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, nc, Options{Rate: 2000, Users: 10}) }()
	e2e.Until(t, "it asks for the log, which is not there yet", func() bool { return nc.Stats().OutMsgs > 0 })
	_, js := natstest.Streams(t, server)
	messages := func() uint64 {
		stream, err := js.Stream(t.Context(), jetlog.EventsStream)
		if err != nil {
			return 0
		}
		return stream.CachedInfo().State.Msgs
	}
	grow := func(beyond uint64) {
		t.Helper()
		e2e.Until(t, "the community sends more", func() bool { return messages() > beyond })
	}
	grow(10)
	server.Close()
	e2e.Until(t, "the server is away", func() bool { return !nc.IsConnected() })
	server = start(address)
	grow(messages() + 10)
	server.Close()
	e2e.Until(t, "the server is away", func() bool { return !nc.IsConnected() })
	cancel() // while the log is away
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(e2e.Patience):
		t.Error("it does not end")
	}
}
