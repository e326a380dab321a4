package jetlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// What an EVENTS holds moves behind what was counted of another one, in its order, as it was;
// also where that was interrupted. Nothing moves a second time.
func TestMoveOn(t *testing.T) {
	t.Parallel()
	for name, interrupted := range map[string]func(t *testing.T, js jetstream.JetStream, events, aside jetstream.Stream){
		"at once": nil,
		"all was set aside": func(t *testing.T, _ jetstream.JetStream, _, aside jetstream.Stream) {
			if aside.CachedInfo().State.Msgs != 20 {
				t.Errorf("%d messages are aside", aside.CachedInfo().State.Msgs)
			}
		},
		"and nothing more is copied": func(*testing.T, jetstream.JetStream, jetstream.Stream, jetstream.Stream) {},
		"all is gone from where it was": func(t *testing.T, _ jetstream.JetStream, events, _ jetstream.Stream) {
			if err := events.Purge(t.Context(), jetstream.WithPurgeSequence(101)); err != nil {
				t.Error(err)
			}
		},
		"the first was put back": func(t *testing.T, js jetstream.JetStream, events, aside jetstream.Stream) {
			if err := events.Purge(t.Context(), jetstream.WithPurgeSequence(101)); err != nil {
				t.Error(err)
			}
			first := &nats.Msg{Subject: "events.like", Data: []byte(`{"actor":1,"post":1,"author":2}`)}
			if _, err := js.PublishMsg(t.Context(), first, jetstream.WithMsgID(fmt.Sprintf("EVENTS_ASIDE-%d-1", aside.CachedInfo().Created.UnixNano()))); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams, js := natstest.Streams(t, natstest.Server(t))
			likes(t, js, 19)
			last := &nats.Msg{Subject: "events.pack", Header: nats.Header{"Kind": {"a", "b"}, nats.MsgIdHdr: {"one"}}, Data: []byte("x\ny")}
			if _, err := js.PublishMsg(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			if interrupted != nil {
				events := natstest.Stream(t, streams.Conn(), jetlog.EventsStream)
				config := jetstream.StreamConfig{Name: "EVENTS_ASIDE", Sources: []*jetstream.StreamSource{{Name: jetlog.EventsStream}}}
				aside, err := js.CreateStream(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				e2e.Until(t, "all is aside", func() bool {
					is, err := aside.Info(t.Context())
					return err == nil && is.State.Msgs == 20
				})
				if name != "all was set aside" {
					config.Sources = nil
					if _, err := js.UpdateStream(t.Context(), config); err != nil {
						t.Fatal(err)
					}
				}
				interrupted(t, js, events, aside)
			}
			of := jetlog.Continues{After: 100, Events: time.Unix(7, 0).UTC()}
			for range 2 {
				if err := streams.MoveOn(t.Context(), of); err != nil {
					t.Fatal(err)
				}
				state, err := streams.State(t.Context(), jetlog.EventsStream)
				if err != nil || state.First != 101 || state.Last != 120 || state.Messages != 20 || state.Continues != of {
					t.Fatalf("%+v %v", state, err)
				}
			}
			events := natstest.Stream(t, streams.Conn(), jetlog.EventsStream)
			first, err := events.GetMsg(t.Context(), 101)
			if err != nil || string(first.Data) != `{"actor":1,"post":1,"author":2}` {
				t.Errorf("%s %v", first.Data, err)
			}
			moved, err := events.GetMsg(t.Context(), 120)
			if err != nil || moved.Subject != last.Subject || string(moved.Data) != string(last.Data) || len(moved.Header["Kind"]) != 2 {
				t.Errorf("%+v %v", moved, err)
			}
			likes(t, js, 1) // it takes events again
			if _, err := js.Stream(t.Context(), "EVENTS_ASIDE"); err == nil {
				t.Error("what was aside is there still")
			}
		})
	}
}

// What stands behind that already stays, and what is before it comes after it.
func TestMoveOnOfALongerOne(t *testing.T) {
	t.Parallel()
	streams, js := natstest.Streams(t, natstest.Server(t))
	likes(t, js, 20)
	if err := streams.MoveOn(t.Context(), jetlog.Continues{After: 7, Events: time.Unix(7, 0)}); err != nil {
		t.Fatal(err)
	}
	// A node that has counted less adopts it as well: nothing changes.
	if err := streams.MoveOn(t.Context(), jetlog.Continues{After: 3, Events: time.Unix(7, 0)}); err != nil {
		t.Fatal(err)
	}
	state, err := streams.State(t.Context(), jetlog.EventsStream)
	if err != nil || state.Continues.After != 7 || state.First != 8 || state.Last != 27 || state.Messages != 20 {
		t.Fatalf("%+v %v", state, err)
	}
	for sequence, post := range map[uint64]int{8: 8, 20: 20, 21: 1, 27: 7} {
		m, err := natstest.Stream(t, streams.Conn(), jetlog.EventsStream).GetMsg(t.Context(), sequence)
		if want := fmt.Sprintf(`{"actor":1,"post":%d,"author":2}`, post); err != nil || string(m.Data) != want {
			t.Errorf("%d is %s, want %s: %v", sequence, m.Data, want, err)
		}
	}
}
