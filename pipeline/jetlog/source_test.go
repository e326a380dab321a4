package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func TestSourceGivesMessagesAsTheStreamHoldsThem(t *testing.T) {
	b := newBench(t)
	before := time.Now().Add(-time.Second).UnixMilli()
	_, err := b.js.PublishMsg(b.ctx, &nats.Msg{
		Subject: "events.post", Data: []byte(`{"post":1}`), Header: nats.Header{"Trace": {"a", "b"}},
	})
	b.must(err)
	_, err = b.js.Publish(b.ctx, "events.like", []byte("2"))
	b.must(err)

	got := b.read(b.source(0, jetlog.RunOptions{}), 2)
	m := got[0]
	if m.Sequence != 1 || m.Subject != "events.post" || string(m.Data) != `{"post":1}` || !slices.Equal(m.Header["Trace"], []string{"a", "b"}) {
		t.Errorf("got %+v", m)
	}
	if m.Time < before || m.Time > time.Now().Add(time.Second).UnixMilli() {
		t.Errorf("time %d is not now in milliseconds", m.Time)
	}
	if got[1].Header != nil {
		t.Errorf("a message without headers has %v", got[1].Header)
	}
}

// "Next is the message a reader goes on with after p."
func TestSourceBeginsInTheMiddle(t *testing.T) {
	b := newBench(t)
	b.publish(10)
	for _, c := range []struct {
		from pipeline.Position
		want uint64
	}{
		{0, 1}, {pipeline.EndOf(4), 5}, {pipeline.At(4, 3), 4}, {pipeline.EndOf(9), 10},
	} {
		s := b.source(c.from, jetlog.RunOptions{})
		if got := b.read(s, 1)[0].Sequence; got != c.want {
			t.Errorf("from %d.%d: begins at %d, want %d", c.from.Sequence(), c.from.Line(), got, c.want)
		}
	}
	if s := b.source(pipeline.EndOf(10), jetlog.RunOptions{}); s != nil {
		b.publish(1)
		if got := b.read(s, 1)[0].Sequence; got != 11 {
			t.Errorf("from the end: got %d, want 11", got)
		}
	}
}

func TestSourceRefusesWhatDoesNotJoin(t *testing.T) {
	b := newBench(t)
	b.publish(10)
	b.must(b.stream(jetlog.EventsStream).Purge(b.ctx, jetstream.WithPurgeSequence(5)))
	for _, c := range []struct {
		from pipeline.Position
		want error
	}{
		{0, pipeline.ErrGap},
		{pipeline.EndOf(3), pipeline.ErrGap},
		{pipeline.EndOf(4), nil},
		{pipeline.EndOf(10), nil},
		{pipeline.At(11, 0), jetlog.ErrTail}, // its own message is gone
		{pipeline.EndOf(11), jetlog.ErrTail},
	} {
		s, err := jetlog.OpenSource(b.ctx, b.streams, c.from, jetlog.RunOptions{})
		if !errors.Is(err, c.want) {
			t.Errorf("from %d.%d: %v, want %v", c.from.Sequence(), c.from.Line(), err, c.want)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

// "It returns an error that wraps ErrGap where messages have left the front of the
// stream before they were read"
func TestSourceNoticesAPurgeAheadOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const far = 30_000 // more than is asked for ahead
	b.publish(far)
	s := b.source(0, jetlog.RunOptions{MessagesMax: 100})
	last := uint64(len(b.read(s, 100))) // or some more: whole runs
	b.must(b.stream(jetlog.EventsStream).Purge(b.ctx, jetstream.WithPurgeSequence(far-10)))
	for {
		run, err := s.Next(b.ctx)
		if err != nil {
			if !errors.Is(err, pipeline.ErrGap) {
				t.Fatalf("after %d: %v, want ErrGap", last, err)
			}
			break
		}
		for _, m := range run {
			if m.Sequence != last+1 {
				t.Fatalf("%d came after %d without an error", m.Sequence, last)
			}
			last = m.Sequence
		}
	}
	if _, err := s.Next(b.ctx); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("the error does not last: %v", err)
	}
}

// "ctx's error when ctx ends"; nothing is lost by it.
func TestSourceNextEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	s := b.source(0, jetlog.RunOptions{Linger: time.Millisecond})
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	b.publish(3)
	if got := sequences(b.read(s, 3)); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
}

// "at least one, bounded in number and bytes, gathered for no longer than the
// source's linger."
func TestSourceRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish(1000) // bodies of 1 to 4 bytes
	for name, c := range map[string]struct {
		options jetlog.RunOptions
		want    int
	}{
		"messages": {jetlog.RunOptions{MessagesMax: 7, Linger: time.Minute}, 7},
		"bytes":    {jetlog.RunOptions{BytesMax: 9, Linger: time.Minute}, 1}, // subjects and headers count too
		"linger":   {jetlog.RunOptions{Linger: 5 * time.Second}, 1000},
	} {
		run, err := b.source(0, c.options).Next(b.ctx)
		if b.must(err); len(run) != c.want {
			t.Errorf("%s: a run of %d, want %d", name, len(run), c.want)
		}
	}
	s := b.source(pipeline.EndOf(990), jetlog.RunOptions{MessagesMax: 4})
	b.read(s, 4)
	if s.Pending() == 0 {
		t.Error("nothing is pending though six messages are")
	}
}

// "any other error when the source is beyond use": it never waits in silence
// for a stream that is gone, and never reads another one of the same name.
func TestSourceEndsWithItsStream(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("recreated=", again), func(t *testing.T) {
			b := newBench(t)
			b.publish(3)
			s := b.source(0, jetlog.RunOptions{Heartbeat: 200 * time.Millisecond})
			b.read(s, 3)
			b.must(b.js.DeleteStream(b.ctx, jetlog.EventsStream))
			want := jetstream.ErrStreamNotFound
			if again {
				other, err := jetlog.OpenStreams(b.ctx, b.connect(), natstest.Options())
				b.must(err)
				_ = other
			}
			_, err := s.Next(b.ctx)
			if again && !errors.Is(err, jetlog.ErrTail) || !again && !errors.Is(err, want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A stored message can look like a control message of the server. The pipeline
// must pass it on like any other (I9).
func TestSourceIsNotFooledByStatusHeaders(t *testing.T) {
	b := newBench(t)
	for _, h := range []nats.Header{
		{"Status": {"100"}},
		{"Status": {"409"}, "Description": {"Consumer Deleted"}},
		{"Status": {"408"}, "Nats-Pending-Messages": {"100000"}},
		{"Status": {"503"}},
	} {
		_, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "events.x", Header: h})
		b.must(err)
	}
	b.publish(1)
	if got := sequences(b.read(b.source(0, jetlog.RunOptions{}), 5)); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("got %v", got)
	}
}

// A restart of the server on the same directory: messages go on, none lost or doubled.
func TestSourceSurvivesAServerRestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*e2e.Patience)
	defer cancel()
	o := embed.ServerOptions{Listen: natstest.FreeAddress(t), StoreDir: t.TempDir(), SyncInterval: time.Minute}
	server, err := embed.StartServer(o)
	if err != nil {
		t.Fatal(err)
	}
	streams, js := natstest.Streams(t, server)
	b := &bench{t, ctx, server, streams, js}
	const ahead = 20_000 // more than is asked for ahead
	b.publish(ahead)
	s := b.source(0, jetlog.RunOptions{MessagesMax: 50, Logger: natstest.Log(t)})
	got := b.read(s, 100)

	server.Close()
	if server, err = embed.StartServer(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Cleanup(b.js.Conn().Close) // before the server

	got = append(got, b.read(s, ahead-len(got))...)
	b.publish(100)
	got = append(got, b.read(s, 100)...)
	for i, q := range sequences(got) {
		if q != uint64(i+1) {
			t.Fatalf("message %d has sequence %d", i+1, q)
		}
	}
}

// Silence is not peace: a consumer that the server forgot is recreated.
func TestSourceNoticesAForgottenConsumer(t *testing.T) {
	b := newBench(t)
	s := b.source(0, jetlog.RunOptions{Heartbeat: 100 * time.Millisecond})
	names := b.stream(jetlog.EventsStream).ConsumerNames(b.ctx)
	for name := range names.Name() {
		b.must(b.js.DeleteConsumer(b.ctx, jetlog.EventsStream, name))
	}
	b.publish(2)
	if got := sequences(b.read(s, 2)); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestSourceCloseTakesItsConsumerAway(t *testing.T) {
	b := newBench(t)
	s := b.source(0, jetlog.RunOptions{})
	b.must(s.Close())
	b.must(s.Close())
	if _, err := s.Next(b.ctx); err == nil {
		t.Error("a closed source reads on")
	}
	b.must(b.js.Conn().Flush())
	for {
		info, err := b.stream(jetlog.EventsStream).Info(b.ctx)
		if b.must(err); info.State.Consumers == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
