package jetlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Nobody can publish what is taken for a copy without knowing where: what is
// published to the prefix that the documentation names is not stored.
func TestCopiesHaveASubjectOfTheirOwn(t *testing.T) {
	b := newBench(t)
	b.publish(1)
	for _, subject := range []string{"like", ">", "*", "x.like"} {
		m := &nats.Msg{Subject: jetlog.MovedSubject + strings.NewReplacer(">", "a", "*", "b").Replace(subject), Data: []byte("{}")}
		if _, err := b.js.PublishMsg(b.ctx, m, jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("%s: %v", m.Subject, err)
		}
	}
	moves := jetlog.Moves{}
	m := moves.Read(pipeline.Message{Sequence: 7, Subject: "events.tidemark.internal.moved.like", Header: map[string][]string{jetlog.HeaderMoved: {"1 1"}}}, 1)
	if len(moves) != 0 || m.Subject != "events.tidemark.internal.moved.like" {
		t.Errorf("an event whose type looks like a copy's subject is read as %s", m.Subject)
	}
	under := jetlog.MovedSubject + "token."
	for subject, want := range map[string]string{
		"events.like":                            under + "like",
		under + "like":                           under + "like",
		"events.tidemark.internal.moved.x.like":  under + "tidemark.internal.moved.x.like",
		under + "tidemark.internal.moved.x.like": under + "tidemark.internal.moved.x.like",
	} {
		if got := jetlog.MarkAsCopy(under, subject, map[string][]string{}, jetlog.Original{}); got != want {
			t.Errorf("a copy of %s stands at %s", subject, got)
		}
	}
}

// However many copies there are, reading them costs little, and too many are an
// error that says what to do and is not tried again.
func TestLoadMoves(t *testing.T) {
	b := newBench(t)
	const copies = 10_000 // more than two requests
	under := strings.TrimSuffix(b.stream(jetlog.EventsStream).CachedInfo().Config.Subjects[1], ">")
	b.publish(1)
	for i := range copies {
		m := &nats.Msg{Header: nats.Header{}, Data: make([]byte, 1000)}
		m.Subject = jetlog.MarkAsCopy(under, "events.like", m.Header, jetlog.Original{Sequence: 1, Nanos: int64(i)})
		_, err := b.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		b.must(err)
		if i%2000 == 1999 {
			<-b.js.PublishAsyncComplete()
		}
	}
	nc := b.connect()
	js, err := jetstream.New(nc)
	b.must(err)
	moves, err := jetlog.LoadMoves(b.ctx, js)
	if b.must(err); len(moves) != copies || moves[jetlog.Original{Sequence: 1, Nanos: 7}] != 9 {
		t.Errorf("%d copies, of %d", len(moves), copies)
	}
	if sent := nc.Stats(); sent.OutMsgs > 20 || sent.InBytes > copies*500 {
		t.Errorf("it took %d requests and %d bytes", sent.OutMsgs, sent.InBytes)
	}
	if again, err := jetlog.LoadMovesUpTo(b.ctx, js, copies); err != nil || len(again) != copies {
		t.Errorf("as many as may be: %d, %v", len(again), err)
	}
	_, err = jetlog.LoadMovesUpTo(b.ctx, js, copies-1)
	if !errors.Is(err, jetlog.ErrMoves) || !strings.Contains(fmt.Sprint(err), "repair --adopt") {
		t.Errorf("one too many: %v", err)
	}
	e2e.Until(t, "all consumers are gone", func() bool { return b.stream(jetlog.EventsStream).CachedInfo().State.Consumers == 0 })
}

// No client can keep a copy out of the stream, by a Nats-Msg-Id that it uses before or a
// header that is not its own.
func TestReclaimWhateverIDsOthersHaveUsed(t *testing.T) {
	b := newBench(t)
	b.publish(1)
	first, err := b.stream(jetlog.EventsStream).GetMsg(b.ctx, 1)
	b.must(err)
	time.Sleep(5 * time.Millisecond)
	_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "events.like", Data: []byte("2"), Header: nats.Header{jetlog.HeaderFiller: {"1"}}})
	b.must(err)
	second, err := b.stream(jetlog.EventsStream).GetMsg(b.ctx, 2)
	b.must(err)
	_, err = b.js.Publish(b.ctx, "events.like", []byte("3"), jetstream.WithMsgID(fmt.Sprintf("reclaimed-2-%d", second.Time.UnixNano())))
	b.must(err)
	if moved, err := b.events().Reclaim(b.ctx, 2, first.Time.UnixMilli()); err != nil || moved != 1 {
		t.Errorf("%d moved, %v", moved, err)
	}
}
