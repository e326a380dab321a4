package jetlog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func TestOpenStreamsCreatesThemAsDesigned(t *testing.T) {
	b := newBench(t)
	events := b.stream(jetlog.EventsStream).CachedInfo().Config
	if events.Discard != jetstream.DiscardNew || events.AllowDirect || events.Duplicates != 2*time.Minute ||
		int64(events.MaxMsgSize) != b.js.Conn().MaxPayload()-jetlog.EnvelopeBytes || events.MaxBytes != 1<<30 {
		t.Errorf("EVENTS: %+v", events)
	}
	deltas := b.stream(jetlog.DeltasStream).CachedInfo().Config
	if deltas.Discard != jetstream.DiscardNew || deltas.AllowDirect || deltas.Storage != jetstream.FileStorage {
		t.Errorf("DELTAS: %+v", deltas)
	}
	if letters := b.stream(jetlog.DeadLetterStream).CachedInfo().Config; letters.Discard != jetstream.DiscardOld {
		t.Errorf("DEADLETTER: %+v", letters)
	}
	// Again, by another process: nothing to create, nothing to refuse.
	_, err := jetlog.OpenStreams(b.ctx, b.connect(), natstest.Options())
	b.must(err)
}

// Nodes that start together make the streams together: each opens them, whoever
// was faster.
func TestOpenStreamsAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 8 { // they seldom meet
		o := embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Minute}
		if i%2 == 1 { // it has room for the streams once
			o.StoreBytesMax = natstest.Options().BytesMax()
		}
		server, err := embed.StartServer(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		var nodes errgroup.Group
		for range 8 {
			nc := natstest.Connect(t, server)
			nodes.Go(func() error {
				_, err := jetlog.OpenStreams(t.Context(), nc, natstest.Options())
				return err
			})
		}
		if err := nodes.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing can be taken away from EVENTS, also from one that a version has made that did not
// protect it.
func TestOpenStreamsProtectsEarlierOnes(t *testing.T) {
	b := newBench(t)
	b.publish(1)
	o := natstest.Options()
	o.Unprotected = false
	for range 2 { // the second time there is nothing to do
		_, err := jetlog.OpenStreams(b.ctx, b.connect(), o)
		b.must(err)
	}
	stream := b.stream(jetlog.EventsStream)
	if stream.DeleteMsg(b.ctx, 1) == nil || stream.SecureDeleteMsg(b.ctx, 1) == nil { // a purge is Trim's way (decision 0027)
		t.Error("EVENTS can be deleted from")
	}
}

// "Of existing ones no limit is ever changed: one that does not fit is a refusal that
// lists every difference of every stream, before anything is created."
func TestOpenStreamsRefusesMisfits(t *testing.T) {
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: jetlog.EventsStream, Subjects: []string{"events.>", "more"}, Retention: jetstream.WorkQueuePolicy, MaxMsgs: 5, AllowRollup: true},
		{Name: jetlog.DeltasStream, Subjects: []string{"deltas"}, Storage: jetstream.MemoryStorage, MaxMsgSize: 1000, AllowDirect: true},
	} {
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	_, err = jetlog.OpenStreams(t.Context(), nc, natstest.Options())
	if !errors.Is(err, jetlog.ErrMisfit) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"EVENTS: subjects is [events.> more], must be [events.>]",
		"EVENTS: retention is WorkQueue, must be Limits",
		"EVENTS: discard is DiscardOld, must be DiscardNew",
		"EVENTS: max messages is 5, must be -1",
		"EVENTS: max bytes is -1, must be 1073741824",
		"EVENTS: allow rollup is true, must be false",
		"EVENTS: max message size is -1, must be at most 1032192, the server's max_payload less 16384",
		"DELTAS: storage is Memory, must be File",
		"DELTAS: allow direct is true, must be false",
		"DELTAS: max message size is 1000, must be at least",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := js.Stream(t.Context(), jetlog.DeadLetterStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("something was created all the same: %v", err)
	}
}
