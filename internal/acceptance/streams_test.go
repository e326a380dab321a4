package acceptance_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
)

// plain is a JetStream context as anybody has it who reaches the port.
func plain(t *testing.T, p *e2e.Process) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(p.Connect())
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// saidWithin bounds what a process says by itself, on a machine that does much besides.
const saidWithin = 2 * time.Minute

// said waits until a process's log has a text.
func said(t *testing.T, p *e2e.Process, text string) {
	t.Helper()
	for deadline := time.Now().Add(saidWithin); ; time.Sleep(20 * time.Millisecond) {
		log, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(log), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q", text)
		}
	}
}

// Whatever is published where windows are: the nodes go on by themselves, and
// so does one that starts.
func TestForeignMessagesInDeltas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := []*e2e.Process{c.run("shards: 4\n"), c.run("shards: 4\n")}
	likes(t, c.server.URL(), 100)
	liked(t, nodes[0], 100)
	js := plain(t, nodes[0])
	ctx := context.Background()
	want := int64(100)
	for _, foreign := range [][]byte{
		[]byte("oops"),
		pipeline.AppendWindow(nil, &pipeline.Window{Header: pipeline.Header{From: pipeline.EndOf(100), To: pipeline.EndOf(150)}, Sections: make([][]byte, 5)}),
		pipeline.AppendWindow(nil, &pipeline.Window{Header: pipeline.Header{From: 7, To: pipeline.PositionMax}, Sections: make([][]byte, 3)}),
	} {
		for begun, stored := time.Now(), 0; ; {
			stream, err := js.Stream(ctx, "DELTAS")
			for err == nil && stored < 10 {
				if _, err = js.Publish(ctx, stream.CachedInfo().Config.Subjects[0], foreign); err == nil {
					stored++
				}
			}
			if stored > 0 {
				break // or the subject is another one by now
			}
			if time.Since(begun) > saidWithin {
				t.Fatalf("nothing was tried: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		likes(t, c.server.URL(), 100)
		want += 100
		liked(t, nodes[0], want)
	}
	e2e.Until(t, "a foreign message is counted", func() bool {
		return figure(t, nodes[0], "tidemark_foreign_messages_total")+figure(t, nodes[1], "tidemark_foreign_messages_total") > 0
	})
	for i, p := range nodes {
		p.WaitReady()
		nodes[1-i].Stop()
		liked(t, p, want)
		nodes[1-i].Start()
	}
}

// What is not EVENTS may be deleted or emptied while nodes run.
func TestStreamsDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, harm := range map[string]func(js jetstream.JetStream) error{
		"DELTAS deleted":      func(js jetstream.JetStream) error { return js.DeleteStream(ctx, "DELTAS") },
		"the bucket deleted":  func(js jetstream.JetStream) error { return js.DeleteKeyValue(ctx, "TIDEMARK") },
		"DEADLETTER deleted":  func(js jetstream.JetStream) error { return js.DeleteStream(ctx, "DEADLETTER") },
		"DELTAS purged":       func(js jetstream.JetStream) error { return purge(ctx, js, "DELTAS") },
		"the bucket purged":   func(js jetstream.JetStream) error { return purge(ctx, js, "KV_TIDEMARK") },
		"DELTAS' last window": func(js jetstream.JetStream) error { return deleteLast(ctx, js, "DELTAS") },
		"everything but EVENTS deleted": func(js jetstream.JetStream) error {
			for _, stream := range []string{"DELTAS", "DEADLETTER", "KV_TIDEMARK"} {
				if err := js.DeleteStream(ctx, stream); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			nodes := []*e2e.Process{c.run("shards: 4\n"), c.run("shards: 4\n")}
			js := plain(t, nodes[0])
			want := int64(0)
			for range 2 {
				likes(t, c.server.URL(), 100)
				want += 100
				liked(t, nodes[0], want)
				if err := harm(js); err != nil {
					t.Fatal(err)
				}
				likes(t, c.server.URL(), 100)
				want += 100
				if _, err := js.Publish(ctx, "events.like", []byte("not JSON")); err != nil {
					t.Fatal(err)
				}
				liked(t, nodes[0], want)
				remade(t, js)
			}
			for i, p := range nodes {
				p.WaitReady()
				nodes[1-i].Stop()
				liked(t, p, want)
				nodes[1-i].Start()
			}
			e2e.Until(t, "a dead letter is kept", func() bool {
				letters, err := js.Stream(ctx, "DEADLETTER")
				return err == nil && letters.CachedInfo().State.Msgs > 0
			})
		})
	}
}

// remade waits until all streams are there.
func remade(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, name := range []string{"DELTAS", "DEADLETTER", "KV_TIDEMARK"} {
		e2e.Until(t, "stream "+name+" is there", func() bool {
			_, err := js.Stream(context.Background(), name)
			return err == nil
		})
	}
}

func purge(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

func deleteLast(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.DeleteMsg(ctx, stream.CachedInfo().State.LastSeq)
}

// docs/security.md: "No message can be deleted from the middle of EVENTS"; what is lost
// from its beginning is told, and counts stand.
func TestEventsLoseTheirBeginning(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	likes(t, p.URL, 100)
	liked(t, p, 100)
	ctx, js := context.Background(), plain(t, p)
	if deleteLast(ctx, js, "EVENTS") == nil {
		t.Error("events were taken away")
	}
	stream, err := js.Stream(ctx, "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.DenyDelete = false
	if _, err := js.UpdateStream(ctx, config); err == nil {
		t.Error("the protection was taken away")
	}
	page := func(path string) string {
		r, err := http.Get(p.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	p.WaitReady()
	if got := page("/readyz"); got != "ok\n" {
		t.Errorf("/readyz: %s", got)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeKeep(10)); err != nil {
		t.Fatal(err)
	}
	said(t, p, "stream EVENTS has lost its beginning")
	e2e.Until(t, "/readyz tells of 90 messages", func() bool {
		got := page("/readyz")
		return strings.HasPrefix(got, "ok\n") && strings.Contains(got, "90 messages")
	})
	e2e.Until(t, "/metrics tells of 90 messages", func() bool {
		return strings.Contains(page("/metrics"), "tidemark_events_purged_total 90\n")
	})
	likes(t, p.URL, 1)
	liked(t, p, 101)
}

// After a kill nothing in the log looks like damage: what the server's index
// lacks is no message.
func TestNoWarningAfterAKill(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	likes(t, p.URL, 10)
	p.Stop() // the server writes its index
	p.Start()
	likes(t, p.URL, 10)
	p.Kill()
	p.Start()
	liked(t, p, 20)
	log, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	outdated := false
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "nats-server: ") && strings.Contains(line, "level=WARN") {
			t.Errorf("the log has %s", line)
		}
		outdated = outdated || strings.Contains(line, "is made again from the messages")
	}
	if !outdated {
		t.Error("the server's index was not outdated: nothing was tried")
	}
}

// Somebody who reports for a node that is not there, again and again, kept DELTAS
// from being purged until it was full, and nothing was counted any more.
func TestGhostReport(t *testing.T) {
	t.Parallel()
	p := e2e.Prepare(t, e2e.Setup{
		URL: newCluster(t).server.URL(), NATS: "streams: {deltas: {max_bytes: 1MiB}}",
		Settings: "shards: 4\nwindows: {events: 1, bytes: 64KiB}\ncheckpoint: {interval: 1s}\n",
	})
	p.Start()
	js := plain(t, p)
	bucket, err := js.KeyValue(t.Context(), "TIDEMARK")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = bucket.PutString(ctx, "node.ghost", "1")
			time.Sleep(100 * time.Millisecond)
		}
	}()
	defer func() { cancel(); <-done }()
	const events = 10_000 // a window each: more than DELTAS holds
	likes(t, p.URL, events)
	liked(t, p, events)
	said(t, p, "DELTAS is nearly full and reports of nodes hold its purge back")
}
