package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func likes(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		if _, err := js.Publish(t.Context(), "events.like", fmt.Appendf(nil, `{"actor":1,"post":%d,"author":2}`, i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Trim takes what is before a sequence, and EVENTS says that it was meant, and
// where the rest is.
func TestTrim(t *testing.T) {
	t.Parallel()
	streams, js := natstest.Streams(t, natstest.Server(t))
	if got, err := streams.OlderThan(t.Context(), time.Hour); err != nil || got != 1 {
		t.Errorf("of an empty stream: %d %v", got, err)
	}
	likes(t, js, 20)
	likes(t, js, 10)
	stored := []time.Time{{}} // of each message
	stream, err := js.Stream(t.Context(), jetlog.EventsStream)
	for sequence := uint64(1); err == nil && sequence <= 30; sequence++ {
		var m *jetstream.RawStreamMsg
		if m, err = stream.GetMsg(t.Context(), sequence); err == nil {
			stored = append(stored, m.Time)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range stored[1:] {
		age := time.Since(at)
		begun := time.Now()
		got, err := streams.OlderThan(t.Context(), age)
		ended := time.Now()
		if err != nil || stored[got-1].After(ended.Add(-age)) || got <= 30 && stored[got].Before(begun.Add(-age)) {
			t.Fatalf("older than %v are those below %d: %v", age, got, err)
		}
	}
	if got, err := streams.OlderThan(t.Context(), time.Hour); err != nil || got != 1 {
		t.Errorf("nothing is an hour old: %d %v", got, err)
	}
	if got, err := streams.OlderThan(t.Context(), 0); err != nil || got != 31 {
		t.Errorf("all is older: %d %v", got, err)
	}
	for _, c := range []struct {
		below, went, first uint64
		bad                bool
	}{
		{0, 0, 1, false},
		{1, 0, 1, false},
		{32, 0, 1, true},
		{11, 10, 11, false},
		{11, 0, 11, false},
		{5, 0, 11, false},
		{31, 20, 31, false}, // all of it
		{31, 0, 31, false},
	} {
		went, err := streams.Trim(t.Context(), c.below, "nats:BACK UPS", nil)
		state, stateErr := streams.State(t.Context(), jetlog.EventsStream)
		if stateErr != nil || went != c.went || (err != nil) != c.bad || state.First != c.first {
			t.Fatalf("below %d: %d went, begins with %d (%v %v), want %d, %d", c.below, went, state.First, err, stateErr, c.went, c.first)
		}
		if c.first > 1 && (state.Begins() != c.first || state.Trimmed.Place != "nats:BACK UPS") {
			t.Errorf("below %d: it says %+v", c.below, state.Trimmed)
		}
	}
	likes(t, js, 1)
	if _, err := jetlog.OpenSource(t.Context(), streams, pipeline.EndOf(29), jetlog.RunOptions{}); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("what is trimmed is read: %v", err)
	}
	source, err := jetlog.OpenSource(t.Context(), streams, pipeline.EndOf(30), jetlog.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if run, err := source.Next(t.Context()); err != nil || run[0].Sequence != 31 {
		t.Errorf("%v %v", run, err)
	}
	// What refuses writes leaves it as it is.
	for _, refuse := range []bool{true, false} {
		if _, err := streams.RefuseWrites(t.Context(), refuse); err != nil {
			t.Fatal(err)
		}
		if state, err := streams.State(t.Context(), jetlog.EventsStream); err != nil || state.Trimmed.Below != 31 {
			t.Errorf("%+v %v", state.Trimmed, err)
		}
	}
}

// An EVENTS that goes on from one that is lost begins after what is counted, so
// that no sequence means two events (I10), and says of which it is.
func TestContinues(t *testing.T) {
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	lost := time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)
	o := natstest.Options()
	o.Continues = jetlog.Continues{After: 1000, Events: lost, Place: "/mnt/back ups"}
	streams, err := jetlog.OpenStreams(t.Context(), nc, o)
	if err != nil {
		t.Fatal(err)
	}
	state, err := streams.State(t.Context(), jetlog.EventsStream)
	if err != nil || state.Last != 1000 || state.Begins() != 1001 || state.Continues.After != 1000 || !state.Continues.Events.Equal(lost) || state.Continues.Place != "/mnt/back ups" {
		t.Fatalf("%+v %v", state, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	source, err := jetlog.OpenSource(t.Context(), streams, pipeline.EndOf(1000), jetlog.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	likes(t, js, 1)
	if run, err := source.Next(t.Context()); err != nil || run[0].Sequence != 1001 {
		t.Errorf("%v %v", run, err)
	}
	if _, err := jetlog.OpenSource(t.Context(), streams, pipeline.EndOf(999), jetlog.RunOptions{}); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("what is lost is read: %v", err)
	}
	// One that is there stays what it is, and its settings may be changed.
	o.Continues = jetlog.Continues{After: 5, Events: time.Now()}
	if _, err := jetlog.OpenStreams(t.Context(), nc, o); err != nil {
		t.Fatal(err)
	}
	if _, err := streams.RefuseWrites(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if state, err := streams.State(t.Context(), jetlog.EventsStream); err != nil || state.Continues.After != 1000 {
		t.Errorf("%+v %v", state, err)
	}
}

// Who trims looks once more when EVENTS says so already; if it may not, nothing has
// gone, and EVENTS says what it said before.
func TestTrimLooksOnceMore(t *testing.T) {
	streams, js := natstest.Streams(t, natstest.Server(t))
	likes(t, js, 20)
	state := func() jetlog.StreamState {
		state, err := streams.State(t.Context(), jetlog.EventsStream)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	was, stopped := jetlog.Trimmed{}, errors.New("a rebuild has begun")
	for range 2 {
		went, err := streams.Trim(t.Context(), 15, "/new", func(context.Context) error {
			if s := state(); s.Trimmed != (jetlog.Trimmed{Below: 15, Place: "/new"}) || s.First > 11 {
				t.Errorf("when it looks: %+v", s)
			}
			return stopped
		})
		if s := state(); !errors.Is(err, stopped) || went != 0 || s.Trimmed != was || s.First != max(was.Below, 1) {
			t.Fatalf("%d went: %v; %+v", went, err, s)
		}
		if went, err := streams.Trim(t.Context(), 11, "/backups", nil); err != nil || went+was.Below < 10 {
			t.Fatal(went, err)
		}
		was = jetlog.Trimmed{Below: 11, Place: "/backups"}
	}
}
