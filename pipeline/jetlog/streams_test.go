package jetlog_test

import (
	"errors"
	"slices"
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

// Nothing can be taken away from EVENTS, and one that an earlier version has made
// is protected by the next start; the earlier DELTAS is recreated.
func TestOpenStreamsBringsUpEarlierOnes(t *testing.T) {
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	o := natstest.Options()
	if _, err := jetlog.OpenStreams(t.Context(), nc, o); err != nil {
		t.Fatal(err)
	}
	config := func(stream string) jetstream.StreamConfig {
		s, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config
	}
	was := config(jetlog.EventsStream)
	was.Subjects = []string{"events.>"}
	_, err = js.UpdateStream(t.Context(), was)
	if err == nil {
		_, err = js.Publish(t.Context(), "events.like", []byte("1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Unprotected = false
	var moved []string
	for range 2 { // the second time there is nothing to do
		if _, err := jetlog.OpenStreams(t.Context(), nc, o); err != nil {
			t.Fatal(err)
		}
		subjects := config(jetlog.EventsStream).Subjects
		if len(subjects) != 2 || subjects[0] != "events.>" || !strings.HasPrefix(subjects[1], jetlog.MovedSubject) || len(subjects[1]) < len(jetlog.MovedSubject)+20 {
			t.Errorf("EVENTS has %v", subjects)
		}
		if moved != nil && !slices.Equal(subjects, moved) {
			t.Errorf("EVENTS has %v, and had %v", subjects, moved)
		}
		moved = subjects
	}
	stream, err := js.Stream(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	if stream.DeleteMsg(t.Context(), 1) == nil || stream.SecureDeleteMsg(t.Context(), 1) == nil { // a purge is Trim's way (decision 0027)
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
		"EVENTS: subjects is [events.> more], must be [events.> tidemark.internal.moved.",
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

func TestOpenStreamsRefusesOtherLimits(t *testing.T) {
	b := newBench(t)
	o := natstest.Options()
	o.Events.AgeMax = time.Hour
	o.BucketBytesMax *= 2
	_, err := jetlog.OpenStreams(b.ctx, b.connect(), o)
	if !errors.Is(err, jetlog.ErrMisfit) || !strings.Contains(err.Error(), "EVENTS: max age is 0s, must be 1h0m0s; KV_TIDEMARK: max bytes") {
		t.Errorf("got %v", err)
	}
}
