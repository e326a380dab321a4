package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// forget makes EVENTS forget message ids soon, as after two minutes.
const forgetAfter = 100 * time.Millisecond

func (b *bench) forgetSoon() {
	b.Helper()
	c := b.stream(jetlog.EventsStream).CachedInfo().Config
	c.Duplicates = forgetAfter
	_, err := b.js.UpdateStream(b.ctx, c)
	b.must(err)
}

func (b *bench) mended(box *jetlog.LetterBox, sequences ...uint64) (letters []jetlog.Mended) {
	b.Helper()
	for _, sequence := range sequences {
		l, err := box.Get(b.ctx, sequence)
		if errors.Is(err, jetlog.ErrNoLetter) {
			continue
		}
		b.must(err)
		letters = append(letters, jetlog.Mended{Letter: &l, Subject: fmt.Sprint("events.t", sequence%3), Body: fmt.Appendf(nil, "mended %d", sequence)})
	}
	return letters
}

// sentAgain says which message of EVENTS is of which letter.
func (b *bench) sentAgain() map[string][]uint64 {
	b.Helper()
	stream := b.stream(jetlog.EventsStream)
	found := map[string][]uint64{}
	for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		m, err := stream.GetMsg(b.ctx, sequence)
		b.must(err)
		if letter := m.Header.Get(jetlog.HeaderResent); letter != "" {
			found[letter] = append(found[letter], sequence)
		}
	}
	return found
}

// "sends again what has been mended (same header rules, counted once)"
func TestResend(t *testing.T) {
	b := newBench(t)
	b.forgetSoon()
	b.must(b.deadLetters().Keep(b.ctx, []pipeline.DeadLetter{
		{Position: pipeline.At(7, 3), Reason: "id", Detail: "wrong", Data: []byte("one"), Header: map[string][]string{
			"Trace": {"a", "b"}, "Nats-Msg-Id": {"x"}, "Nats-Expected-Last-Sequence": {"9"}, "Tidemark-Import": {"i"}, "Tidemark-Filler": {"1"},
		}},
		{Position: pipeline.At(8, 0), Reason: "json", Data: []byte("two")},
		{Position: pipeline.At(9, 0), Reason: "json", Data: []byte("three")},
	}))
	box := b.letterBox()
	r, err := box.Resender(b.ctx)
	b.must(err)
	first := b.mended(box, 1, 2)
	sent, err := r.Send(b.ctx, first)
	b.must(err)
	if want := []jetlog.Resent{{Sequence: 1, Position: pipeline.At(1, 0)}, {Sequence: 2, Position: pipeline.At(2, 0)}}; !reflect.DeepEqual(sent, want) {
		t.Errorf("%v", sent)
	}
	m, err := b.stream(jetlog.EventsStream).GetMsg(b.ctx, 1)
	b.must(err)
	id := m.Header.Get(jetstream.MsgIDHeader)
	m.Header.Del(jetstream.MsgIDHeader)
	if want := map[string][]string{"Trace": {"a", "b"}, "Nats-Expected-Stream": {"EVENTS"}, "Tidemark-Resent": {"1"}}; string(m.Data) != "mended 1" || m.Subject != "events.t1" || id == "" || !reflect.DeepEqual(map[string][]string(m.Header), want) {
		t.Errorf("%s %s %q %v", m.Subject, m.Data, id, m.Header)
	}
	for letter, want := range map[uint64]error{1: jetlog.ErrNoLetter, 2: jetlog.ErrNoLetter, 3: nil} {
		if _, err := box.Get(b.ctx, letter); !errors.Is(err, want) {
			t.Errorf("letter %d: %v", letter, err)
		}
	}

	// Whoever comes later knows.
	r, err = box.Resender(b.ctx)
	b.must(err)
	if r.Position(1) != pipeline.At(1, 0) || r.Position(2) != pipeline.At(2, 0) || r.Position(3) != 0 {
		t.Errorf("%d %d %d", r.Position(1), r.Position(2), r.Position(3))
	}

	// Where the event came, as long as the log has it.
	l, err := box.Get(b.ctx, 3)
	b.must(err)
	if subject, err := r.Subject(b.ctx, &l); subject != "" || err != nil {
		t.Errorf("%q %v", subject, err)
	}
	l.Position = pipeline.At(2, 0)
	if subject, err := r.Subject(b.ctx, &l); subject != "events.t2" || err != nil {
		t.Errorf("%q %v", subject, err)
	}

	// Two at once: the journal was written since.
	other, err := box.Resender(b.ctx)
	b.must(err)
	sent, err = other.Send(b.ctx, b.mended(box, 3))
	b.must(err)
	if _, err := r.Send(b.ctx, first); !errors.Is(err, jetlog.ErrResending) || len(sent) != 1 {
		t.Errorf("%v %v", sent, err)
	}

	// A DEADLETTER that was recreated has other letters at these sequences.
	b.must(b.js.DeleteStream(b.ctx, jetlog.DeadLetterStream))
	b.must(b.streams.Restore(b.ctx))
	b.keepLetters("json", "json")
	box = b.letterBox()
	r, err = box.Resender(b.ctx)
	b.must(err)
	if r.Position(1) != 0 {
		t.Error("remembers letters of another stream")
	}
	sent, err = r.Send(b.ctx, b.mended(box, 1))
	b.must(err)
	if len(sent) != 1 || sent[0].Position != pipeline.At(4, 0) {
		t.Errorf("%v", sent)
	}
}

// "counted once": a run that ends at any moment, and another that is long after
// the server has forgotten its message ids.
func TestResendInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forgetSoon()
	const letters = 200
	var reasons []pipeline.Reason
	var all []uint64
	for i := range letters {
		reasons, all = append(reasons, "json"), append(all, uint64(i+1))
	}
	b.keepLetters(reasons...)
	random := rand.New(rand.NewPCG(5, 6))
	interrupted := 0
	for left := letters; left > 0; {
		nc := b.connect()
		box, err := jetlog.OpenLetterBox(b.ctx, nc)
		b.must(err)
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(random.IntN(15_000))*time.Microsecond)
		r, err := box.ResenderAfter(ctx, time.Millisecond)
		if err == nil {
			some := random.IntN(letters)
			_, err = r.Send(ctx, b.mended(b.letterBox(), all[some:min(some+20, letters)]...))
		}
		if err != nil {
			interrupted++
		}
		cancel()
		nc.Close()
		b.publish(random.IntN(5))
		time.Sleep(forgetAfter / 2 * time.Duration(random.IntN(4)))
		s, err := b.letterBox().Count(b.ctx)
		b.must(err)
		if left = int(s); interrupted > 20 { // enough
			box := b.letterBox()
			r, err := box.ResenderAfter(b.ctx, time.Millisecond)
			b.must(err)
			_, err = r.Send(b.ctx, b.mended(box, all...))
			b.must(err)
			break
		}
	}
	found := b.sentAgain()
	for letter, sequences := range found {
		if len(sequences) != 1 {
			t.Errorf("letter %s was sent as %v", letter, sequences)
		}
	}
	if left, err := b.letterBox().Count(b.ctx); len(found) != letters || left != 0 || err != nil || interrupted < 5 {
		t.Errorf("%d sent, %d left, interrupted %d times, %v", len(found), left, interrupted, err)
	}
}

// "counted once": where EVENTS has lost what an interrupted run may have sent,
// nothing is sent, and the journal stays, until somebody who knows has decided.
func TestResendCannotTell(t *testing.T) {
	b := newBench(t)
	b.keepLetters("json", "json", "json", "json")
	box := b.letterBox()
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	letters, err := box.State(b.ctx)
	b.must(err)
	events := b.stream(jetlog.EventsStream)
	open := fmt.Appendf(nil, `{"letters":%q,"events":%q,"after":2,"open":[{"seq":1,"subject":"events.like"},{"seq":2,"subject":"events.like"},{"seq":3,"subject":"events.like"}]}`,
		letters.Created.Format(time.RFC3339Nano), events.CachedInfo().Created.Format(time.RFC3339Nano))
	_, err = kv.Put(b.ctx, "resend", open)
	b.must(err)
	b.publish(3) // 1 to 3; letters 1 and 2 are 3 and 4, say
	_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "events.like", Data: []byte("mended 2"), Header: nats.Header{
		jetstream.MsgIDHeader: {fmt.Sprintf("resend-%x-2", letters.Created.UnixNano())},
	}})
	b.must(err)
	b.must(events.Purge(b.ctx, jetstream.WithPurgeSequence(4)))
	for range 2 {
		_, err = box.ResenderAfter(b.ctx, time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "dead letters 1, 3,") || !strings.Contains(err.Error(), "messages behind 2 any more") || !strings.Contains(err.Error(), "nats stream rmm DEADLETTER SEQ") {
			t.Fatal(err)
		}
	}
	// 2 was found; 1 was counted, as somebody knows, and 3 was not.
	if _, err := box.Get(b.ctx, 2); !errors.Is(err, jetlog.ErrNoLetter) {
		t.Error(err)
	}
	b.must(b.stream(jetlog.DeadLetterStream).DeleteMsg(b.ctx, 1))
	if _, err = box.ResenderAfter(b.ctx, time.Millisecond); err == nil || !strings.Contains(err.Error(), "dead letters 3,") {
		t.Error(err)
	}
	b.must(kv.Delete(b.ctx, "resend"))
	r, err := box.ResenderAfter(b.ctx, time.Millisecond)
	b.must(err)
	sent, err := r.Send(b.ctx, b.mended(box, 3))
	b.must(err)
	if len(sent) != 1 || sent[0].Position != pipeline.At(5, 0) {
		t.Errorf("%v", sent)
	}

	// A log that lost nothing of what may have been sent tells.
	b.must(events.Purge(b.ctx, jetstream.WithPurgeSequence(6)))
	_, err = kv.Put(b.ctx, "resend", fmt.Appendf(nil, `{"letters":%q,"events":%q,"after":5,"open":[{"seq":4,"subject":"events.like"}]}`,
		letters.Created.Format(time.RFC3339Nano), events.CachedInfo().Created.Format(time.RFC3339Nano)))
	b.must(err)
	if _, err = box.ResenderAfter(b.ctx, time.Millisecond); err != nil {
		t.Error(err)
	}
}

// A journal that changes while it is waited for is somebody's at work.
func TestResendTwoAtOnce(t *testing.T) {
	b := newBench(t)
	b.keepLetters("json", "json", "json")
	box := b.letterBox()
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	letters, err := box.State(b.ctx)
	b.must(err)
	open := func(i int) []byte {
		return fmt.Appendf(nil, `{"letters":%q,"events":%q,"after":0,"open":[{"seq":%d,"subject":"events.like"}]}`,
			letters.Created.Format(time.RFC3339Nano), b.stream(jetlog.EventsStream).CachedInfo().Created.Format(time.RFC3339Nano), i)
	}
	_, err = kv.Put(b.ctx, "resend", open(1))
	b.must(err)
	time.AfterFunc(100*time.Millisecond, func() { _, _ = kv.Put(b.ctx, "resend", open(2)) })
	if _, err := box.ResenderAfter(b.ctx, 500*time.Millisecond); !errors.Is(err, jetlog.ErrResending) {
		t.Error(err)
	}
	r, err := box.ResenderAfter(b.ctx, 10*time.Millisecond)
	b.must(err)
	sent, err := r.Send(b.ctx, b.mended(box, 1, 2, 3))
	b.must(err)
	if len(sent) != 3 {
		t.Errorf("%v", sent)
	}
}

func TestLettersUpkeep(t *testing.T) {
	b := newBench(t)
	box := b.letterBox()
	if counts, _, err := box.Summary(b.ctx); len(counts) != 0 || err != nil {
		t.Errorf("%v %v", counts, err)
	}
	if below, err := box.Before(b.ctx, time.Now()); below != 1 || err != nil {
		t.Errorf("%d %v", below, err)
	}
	b.keepLetters("json", "self", "json")
	time.Sleep(10 * time.Millisecond)
	middle := time.Now()
	time.Sleep(10 * time.Millisecond)
	b.must(b.deadLetters().Keep(b.ctx, []pipeline.DeadLetter{{Position: pipeline.At(9, 0), Reason: "self", Data: []byte("late")}}))
	counts, leftOut, err := box.Summary(b.ctx)
	b.must(err)
	if len(counts) != 2 || leftOut != 0 || counts[0].Reason != "json" || counts[0].Letters != 2 || counts[0].Oldest.Sequence != 1 || counts[0].Newest.Sequence != 3 ||
		counts[1].Reason != "self" || counts[1].Oldest.Sequence != 2 || counts[1].Newest.Sequence != 4 || !counts[1].Oldest.Time.Before(counts[1].Newest.Time) {
		t.Errorf("%+v", counts)
	}
	for at, want := range map[time.Time]uint64{time.Unix(0, 0): 1, middle: 4, time.Now(): 5} {
		if below, err := box.Before(b.ctx, at); below != want || err != nil {
			t.Errorf("before %v: %d, want %d, %v", at, below, want, err)
		}
	}
	for _, c := range []struct {
		reason string
		below  uint64
		want   uint64
		left   uint64
	}{{"id", 0, 0, 4}, {"self", 4, 1, 3}, {"", 1, 0, 3}, {"json", 0, 2, 1}, {"", 5, 1, 0}, {"", 0, 0, 0}} {
		purged, err := box.Purge(b.ctx, c.reason, c.below)
		left, _ := box.Count(b.ctx)
		if err != nil || purged != c.want || left != c.left {
			t.Errorf("%+v: %d purged, %d left, %v", c, purged, left, err)
		}
	}
}
