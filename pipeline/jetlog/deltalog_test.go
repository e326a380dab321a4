package jetlog_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func TestPurgeKeepsTheLastWindow(t *testing.T) {
	b := newBench(t)
	log := jetlog.NewDeltaLog(b.streams)
	for i := range uint64(5) {
		_, err := log.Append(b.ctx, i, window(pipeline.Position(i), pipeline.Position(i+1)))
		b.must(err)
	}
	for _, c := range []struct{ below, first uint64 }{{0, 1}, {1, 1}, {3, 3}, {2, 3}, {100, 3}, {5, 5}} {
		b.must(log.Purge(b.ctx, c.below))
		state, err := b.streams.State(b.ctx, jetlog.DeltasStream)
		if b.must(err); state.First != c.first || state.Last != 5 {
			t.Errorf("below %d: %d to %d, want %d to 5", c.below, state.First, state.Last, c.first)
		}
	}
	if _, err := jetlog.OpenTailer(b.ctx, b.streams, 3, jetlog.RunOptions{}); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("a tailer behind the purge: %v, want ErrGap", err)
	}
	if _, err := jetlog.OpenTailer(b.ctx, b.streams, 6, jetlog.RunOptions{}); !errors.Is(err, jetlog.ErrTail) {
		t.Errorf("a tailer past the end: %v, want ErrTail", err)
	}
}

// A log that is gone, or ends with what is no window, is recreated; who has seen the
// one before appends to neither.
func TestTailMakesALogAnew(t *testing.T) {
	b := newBench(t)
	for name, harm := range map[string]func(){
		"deleted": func() { b.must(b.js.DeleteStream(b.ctx, jetlog.DeltasStream)) },
		"a checksum that is wrong": func() {
			_, err := b.js.PublishMsg(b.ctx, &nats.Msg{
				Subject: b.stream(jetlog.DeltasStream).CachedInfo().Config.Subjects[0],
				Data:    append(window(10, 20), 0),
			})
			b.must(err)
		},
	} {
		before, reader := jetlog.NewDeltaLog(b.streams), jetlog.NewDeltaLog(b.streams)
		_, _, err := before.Tail(b.ctx)
		b.must(err)
		_, err = before.Append(b.ctx, 0, window(0, 10))
		b.must(err)
		harm()
		if h, last, err := reader.Tail(b.ctx); err != nil || last != 0 || h != (pipeline.Header{}) {
			t.Fatalf("%s: the log ends with %+v at %d, %v", name, h, last, err)
		}
		_, err = reader.Append(b.ctx, 0, window(0, 10))
		b.must(err)
		if _, err := before.Append(b.ctx, 1, window(10, 20)); err == nil {
			t.Errorf("%s: appended behind what was gone", name)
		}
		b.must(b.js.DeleteStream(b.ctx, jetlog.DeltasStream))
	}
	// At least once: a server that has not yet removed the files of a deleted log gives its
	// message to the next one.
	if b.streams.Stats().NoWindow.Load() == 0 {
		t.Error("none is counted")
	}
}

// A window of a router's that this version cannot read is no reason to delete
// what a newer version has written.
func TestTailRefusesAWindowOfAnotherVersion(t *testing.T) {
	b := newBench(t)
	w, err := pipeline.DecodeWindow(window(0, 10))
	b.must(err)
	w.Version = pipeline.FormatWindows.Newest + 1
	was := b.stream(jetlog.DeltasStream).CachedInfo()
	_, err = b.js.Publish(b.ctx, was.Config.Subjects[0], pipeline.AppendWindow(nil, w))
	b.must(err)
	if _, _, err := jetlog.NewDeltaLog(b.streams).Tail(b.ctx); !errors.Is(err, jetlog.ErrUnknownWindow) || errors.Is(err, jetlog.ErrNoWindow) {
		t.Errorf("got %v", err)
	}
	if is := b.stream(jetlog.DeltasStream).CachedInfo(); !is.Created.Equal(was.Created) || is.State.Msgs != 1 {
		t.Error("it was recreated")
	}
}

// Who finds DELTAS useless, and another node has recreated it meanwhile, leaves it
// alone and does not count it as its own doing.
func TestDeltasAreRecreatedOnce(t *testing.T) {
	b := newBench(t)
	was := b.stream(jetlog.DeltasStream).CachedInfo().Created
	for range 3 {
		b.must(b.streams.RenewAs(b.ctx, was, jetlog.ErrNoWindow))
	}
	if made, err := b.streams.CreateDeltas(b.ctx); made || err != nil {
		t.Errorf("there is one, and made: %v, %v", made, err)
	}
	if n, damaged := b.streams.Stats().Remade(jetlog.DeltasStream), b.streams.Stats().NoWindow.Load(); n != 1 || damaged != 1 {
		t.Errorf("recreated %d times, %d that were none", n, damaged)
	}
}

// The active router purges while a node that starts asks where the log begins.
func TestFirstDuringPurges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log := jetlog.NewDeltaLog(b.streams)
	const windows = 300
	for i := range uint64(windows) {
		_, err := log.Append(b.ctx, i, window(pipeline.Position(i), pipeline.Position(i+1)))
		b.must(err)
	}
	purged := make(chan error, 1)
	go func() {
		for below := uint64(2); below <= windows; below++ {
			if err := log.Purge(b.ctx, below); err != nil {
				purged <- err
				return
			}
		}
		purged <- nil
	}()
	for oldest := uint64(0); oldest < windows; {
		h, first, err := log.First(b.ctx)
		if err != nil || first < oldest || uint64(h.From) != first-1 {
			t.Fatalf("the log begins with %+v at %d, after %d: %v", h, first, oldest, err)
		}
		oldest = first
	}
	b.must(<-purged)
}

// docs/decisions/0012-lost-tails.md: "It takes a request that outlives its connection"
// (decision 0012): none does because it was kept for the next connection.
func TestAppendDoesNotWaitForAConnection(t *testing.T) {
	server := natstest.NewOutside(t, "")
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	streams, err := jetlog.OpenStreams(t.Context(), nc, jetlog.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log := jetlog.NewDeltaLog(streams)
	if _, err := log.Append(t.Context(), 0, window(0, 10)); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	e2e.Until(t, "the connection is lost", func() bool { return !nc.IsConnected() })
	if _, err := log.Append(t.Context(), 1, window(10, 20)); err == nil {
		t.Error("stored without a server")
	}
	server.Restart()
	e2e.Until(t, "there is a connection", nc.IsConnected)
	if h, last, err := log.Tail(t.Context()); err != nil || last != 1 || h.To != 10 {
		t.Errorf("the log ends with %+v at %d, %v", h, last, err)
	}
}

// Two routers that both believe to be the active one: every sequence is one
// writer's, and the windows still chain (I2).
func TestAppendersFenceEachOther(t *testing.T) {
	b := newBench(t)
	const windows = 100
	var stored, fenced atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			log := jetlog.NewDeltaLog(b.streams)
			for {
				h, last, err := log.Tail(b.ctx)
				if err != nil || last >= windows {
					return
				}
				switch _, err := log.Append(b.ctx, last, window(h.To, h.To+1)); {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, pipeline.ErrFenced):
					fenced.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	tailer, err := jetlog.OpenTailer(b.ctx, b.streams, 0, jetlog.RunOptions{})
	b.must(err)
	defer tailer.Close()
	to := pipeline.Position(0)
	for n := int64(0); n < stored.Load(); {
		run, err := tailer.Next(b.ctx)
		b.must(err)
		for _, e := range run {
			h, err := pipeline.DecodeHeader(e.Window)
			if b.must(err); h.From != to || e.Sequence != uint64(n)+1 || e.Time == 0 {
				t.Fatalf("entry %d (%+v) begins at %d, the one before ends at %d", e.Sequence, h, h.From, to)
			}
			to, n = h.To, n+1
		}
	}
	t.Logf("%d stored, %d fenced", stored.Load(), fenced.Load())
}

// "Any other error: not known whether it was stored; read Tail before doing
// anything else."
func TestAppendWhoseAcknowledgementIsLost(t *testing.T) {
	b := newBench(t)
	wire := natstest.NewWire(t, b.server)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://" + wire.Address()})
	b.must(err)
	defer nc.Close()
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)

	muted := jetlog.NewDeltaLog(streams)
	_, _, err = muted.Tail(b.ctx)
	b.must(err)
	wire.Mute(true)
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	_, err = muted.Append(ctx, 0, window(0, 10))
	if err == nil || errors.Is(err, pipeline.ErrFenced) {
		t.Fatalf("got %v, want neither success nor ErrFenced", err)
	}
	wire.Mute(false)
	e2e.Until(t, "the window is stored", func() bool {
		state, err := b.streams.State(b.ctx, jetlog.DeltasStream)
		b.must(err)
		return state.Last == 1
	})

	log := jetlog.NewDeltaLog(streams)
	h, last, err := log.Tail(b.ctx)
	if b.must(err); last != 1 || h.To != 10 {
		t.Errorf("the window was stored, but the tail is %+v at %d", h, last)
	}
	if _, err := log.Append(b.ctx, 0, window(0, 10)); !errors.Is(err, pipeline.ErrFenced) {
		t.Errorf("a blind retry: %v, want ErrFenced", err)
	}
}
