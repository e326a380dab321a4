package jetlog_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Header blocks that the server stores and that client libraries cannot decode, or take for
// words of the server.
var oddHeaders = map[string]string{
	"no colon":       "NATS/1.0\r\nno colon here\r\n\r\n",
	"line feed":      "NATS/1.0\r\nA: b\nc\r\n\r\n",
	"no version":     "A: b\r\n\r\n",
	"no end":         "NATS/1.0\r\nA: b\r\n",
	"empty":          "\r\n\r\n",
	"binary":         "NATS/1.0\r\n\x00\xff: \x01\xfe\r\n\r\n",
	"short status":   "NATS/1.0 4\r\n\r\n",
	"inline status":  "NATS/1.0 404 No Messages\r\n\r\n",
	"status":         "NATS/1.0\r\nStatus: 404\r\nDescription: No Messages\r\n\r\n",
	"pending":        "NATS/1.0\r\nStatus: 408\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 7\r\n\r\n",
	"pending what":   "NATS/1.0\r\nStatus: 404\r\nNats-Pending-Messages: x\r\n\r\n",
	"no name":        "NATS/1.0\r\n: x\r\n\r\n",
	"folded":         "NATS/1.0\r\nA: b\r\n c\r\n\r\n",
	"expected":       "NATS/1.0\r\nNats-Expected-Stream: EVENTS\r\nno colon\r\n\r\n",
	"resent, a type": "NATS/1.0\r\nTidemark-Type: like\r\nTidemark-Resent: 7\r\n\r\n",
}

// A message reads the same one by one as in order, whatever its header block is.
func TestStoredMessageReadsAsTheConsumerDeliversIt(t *testing.T) {
	b := newBench(t)
	names := map[uint64]string{}
	for name, header := range oddHeaders {
		for _, body := range []string{"", `{"actor":7,"post":42}`} {
			sequence := natstest.PublishRaw(t, b.server.URL(), "events.like", header, body)
			if sequence == 0 {
				t.Fatalf("%s: the server refuses it", name)
			}
			names[sequence] = name
		}
	}
	parts, err := jetlog.OpenParts(b.ctx, b.streams)
	b.must(err)
	run, err := b.source(0, jetlog.RunOptions{Linger: e2e.Patience, MessagesMax: len(names)}).Next(b.ctx)
	if b.must(err); len(run) != len(names) {
		t.Fatalf("%d of %d messages came", len(run), len(names))
	}
	for _, m := range run {
		name := names[m.Sequence]
		stored, err := jetlog.GetStored(b.ctx, b.connect(), jetlog.EventsStream, m.Sequence)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if stored.Subject != m.Subject || string(stored.Data) != string(m.Data) || stored.Time.UnixMilli() != m.Time ||
			len(stored.Header) != len(m.Header) || len(m.Header) > 0 && !reflect.DeepEqual(map[string][]string(stored.Header), m.Header) {
			t.Errorf("%s: %+v one by one, %+v in order", name, stored, m)
		}
		if part, there, err := parts.Get(b.ctx, m.Sequence); err != nil || !there || part.Subject != m.Subject || string(part.Data) != string(m.Data) {
			t.Errorf("%s: a part is %+v %t %v", name, part, there, err)
		}
		// The last message that was read before a restart.
		source, err := jetlog.OpenSource(b.ctx, b.streams, pipeline.EndOf(m.Sequence), jetlog.RunOptions{})
		if err != nil {
			t.Errorf("%s: open after it: %v", name, err)
			continue
		}
		_ = source.Close()
		if err := b.events().Holds(b.ctx, m.Sequence, m.Time); err != nil {
			t.Errorf("%s: the last message counted: %v", name, err)
		}
	}
	if _, err := b.streams.OlderThan(b.ctx, time.Nanosecond); err != nil {
		t.Error(err)
	}
	visited := uint64(0)
	all := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	b.must(jetlog.VisitHeaders(b.ctx, b.js, jetlog.EventsStream, all, func(m *jetlog.Stored) error {
		if visited++; m.Sequence != visited {
			t.Errorf("visited %d as the %dth", m.Sequence, visited)
		}
		return nil
	}))
	if int(visited) != len(names) {
		t.Errorf("visited %d of %d messages", visited, len(names))
	}
}

func TestStoredMessageThatIsNotThere(t *testing.T) {
	b := newBench(t)
	nc := b.connect()
	if _, err := jetlog.GetStored(b.ctx, nc, jetlog.EventsStream, 7); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("no message: %v", err)
	}
	if _, err := jetlog.NextStored(b.ctx, nc, jetlog.EventsStream, 1, ">"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("no next message: %v", err)
	}
	if _, err := jetlog.LastStored(b.ctx, nc, jetlog.EventsStream, "events.like"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("no last message: %v", err)
	}
	if _, err := jetlog.GetStored(b.ctx, nc, "OTHER", 7); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
}

// A client that knows the lines of a pack, and its id, cannot publish a message before it that
// keeps it from being stored.
func TestPackWhoseIDAnotherMessageHas(t *testing.T) {
	b := newBench(t)
	door := jetlog.NewPublisher(b.streams)
	const lines = `{"type":"like","actor":7,"post":42}` + "\n"
	if natstest.PublishRaw(t, b.server.URL(), "events.like", "NATS/1.0\r\nNats-Msg-Id: key\r\n\r\n", "{}") != 1 {
		t.Fatal("the other message is not the first")
	}
	for range 2 { // a retry is the same pack
		end, err := door.PublishPack(b.ctx, []byte(lines), "key")
		b.must(err)
		if end != pipeline.EndOf(2) {
			t.Errorf("the pack ends at %v, want %v", end, pipeline.EndOf(2))
		}
	}
	config := b.stream(jetlog.EventsStream).CachedInfo().Config
	if prefix := jetlog.IDPrefix(config); len(prefix) < 17 {
		t.Errorf("ids begin with %q", prefix)
	}
}
