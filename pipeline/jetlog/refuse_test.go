package jetlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// refuse sets whether events are refused.
func (b *bench) refuse(refuse, wantChanged bool) {
	b.Helper()
	changed, err := b.streams.RefuseWrites(b.ctx, refuse)
	b.must(err)
	if changed != wantChanged {
		b.Errorf("refuse %v: changed is %v", refuse, changed)
	}
}

// stored is how many EVENTS holds.
func (b *bench) stored() uint64 {
	b.Helper()
	state, err := b.streams.State(b.ctx, jetlog.EventsStream)
	b.must(err)
	return state.Messages
}

// restart restarts the server. It returns when the connection is to the new one: what is
// asked over the old one may be answered by nobody.
func (b *bench) restart() {
	b.Helper()
	connection := b.streams.Conn()
	before := connection.Stats().Reconnects
	b.must(b.server.Restart())
	e2e.Until(b, "connected again", func() bool { return connection.Stats().Reconnects > before })
}

// refused fails unless a publish is answered, with a refusal.
func (b *bench) refused() {
	b.Helper()
	_, err := b.js.Publish(b.ctx, "events.like", []byte(`{}`))
	if !jetlog.RefusedByHand(err) {
		b.Errorf("a publish while events are refused: %v", err)
	}
}

// docs/degradation.md: "producers: an error instead of the acknowledgement": every
// publish is answered with an error, nothing that is stored goes, and it is undone the
// same way.
func TestRefuseWrites(t *testing.T) {
	b := newBench(t)
	b.publish(300)
	b.refuse(false, false)
	b.refuse(true, true)
	b.refuse(true, false)
	b.refused()
	// docs/degradation.md shows what a producer is answered.
	const words = `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"EVENTS","seq":0}`
	m, err := b.js.Conn().Request("events.like", []byte(`{}`), e2e.Patience)
	b.must(err)
	if string(m.Data) != words {
		b.Errorf("a producer is answered %s", m.Data)
	}
	if _, err := jetlog.NewPublisher(b.streams).Publish(b.ctx, []byte(`{"actor":7,"what":["all"]}`)); !errors.Is(err, pipeline.ErrFull) {
		t.Errorf("a read while events are refused: %v", err)
	}
	if n := b.stored(); n != 300 {
		t.Errorf("EVENTS holds %d messages, of 300", n)
	}

	// A node that starts meanwhile takes the limit for no misfit and keeps it; so
	// does a server.
	again := func() {
		t.Helper()
		_, err := jetlog.OpenStreams(b.ctx, natstest.Connect(t, b.server), natstest.Options())
		b.must(err)
		b.refused()
	}
	again()
	b.restart()
	again()

	b.refuse(false, true)
	b.publish(10)
	if n := b.stored(); n != 310 {
		t.Errorf("EVENTS holds %d messages, of 310", n)
	}
	if c := b.stream(jetlog.EventsStream).CachedInfo().Config; c.MaxMsgs != -1 || c.Metadata["tidemark-writes"] != "" {
		t.Errorf("EVENTS keeps a limit of %d, %v", c.MaxMsgs, c.Metadata)
	}
}

// A limit below what the stream holds, as when events are stored between the
// look and the change, takes nothing away; the next call puts it right.
func TestRefuseWritesLosesNothing(t *testing.T) {
	b := newBench(t)
	b.refuse(true, true)
	b.publish(1) // an empty EVENTS takes one message, since no limit is 0
	b.refused()
	b.refuse(false, true)
	b.publish(99)
	b.refuse(true, true)
	c := b.stream(jetlog.EventsStream).CachedInfo().Config
	c.MaxMsgs = 40
	_, err := b.js.UpdateStream(b.ctx, c)
	b.must(err)
	b.refused()
	b.restart()
	if n := b.stored(); n != 100 {
		t.Fatalf("EVENTS holds %d messages, of 100", n)
	}
	b.refuse(true, false)
	if c := b.stream(jetlog.EventsStream).CachedInfo().Config; c.MaxMsgs != 100 {
		t.Errorf("the limit is %d", c.MaxMsgs)
	}
}

// An operator's own limit is refused still.
func TestRefuseWritesIsMarked(t *testing.T) {
	b := newBench(t)
	b.publish(1)
	c := b.stream(jetlog.EventsStream).CachedInfo().Config
	c.MaxMsgs = 1
	_, err := b.js.UpdateStream(b.ctx, c)
	b.must(err)
	b.refuse(false, false)
	_, err = jetlog.OpenStreams(b.ctx, natstest.Connect(t, b.server), natstest.Options())
	if !errors.Is(err, jetlog.ErrMisfit) || !strings.Contains(err.Error(), "max messages is 1, must be -1") {
		t.Errorf("an operator's limit: %v", err)
	}
}

// The same with three copies, and a leader that changes.
func TestRefuseWritesInACluster(t *testing.T) {
	natstest.Long(t) // three servers
	t.Parallel()
	b, c := newClusterBench(t)
	b.publish(100)
	b.refuse(true, true)
	b.refused()
	leader := c.Leader(jetlog.EventsStream)
	leader.Kill()
	e2e.Until(t, "another leader refuses", func() bool {
		_, err := b.js.Publish(b.ctx, "events.like", []byte(`{}`))
		if err == nil {
			t.Fatal("another leader stores an event")
		}
		return jetlog.RefusedByHand(err)
	})
	leader.Start()
	c.WaitWhole()
	b.refuse(true, false)
	b.refused()
	b.refuse(false, true)
	if _, err := b.js.Publish(b.ctx, "events.like", fmt.Append(nil, 101)); err != nil {
		t.Error(err)
	}
	if n := b.stored(); n != 101 {
		t.Errorf("EVENTS holds %d messages, of 101", n)
	}
}
