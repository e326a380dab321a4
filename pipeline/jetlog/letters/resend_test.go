package letters_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

const forgetAfter = 100 * time.Millisecond

// forgetSoon makes EVENTS and DEADLETTER forget message ids soon, as after two minutes.
func (b *bench) forgetSoon() {
	b.Helper()
	for _, name := range []string{jetlog.EventsStream, jetlog.DeadLetterStream} {
		c := b.stream(name).CachedInfo().Config
		c.Duplicates = forgetAfter
		_, err := b.js.UpdateStream(b.ctx, c)
		b.must(err)
	}
}

// waitForgotten waits until the ids of the messages there are are forgotten: until a stream that
// remembers them for twice as long has forgotten one.
func (b *bench) waitForgotten() {
	b.Helper()
	probe := jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Storage: jetstream.MemoryStorage, Duplicates: 2 * forgetAfter}
	_, err := b.js.CreateStream(b.ctx, probe)
	b.must(err)
	e2e.Until(b, "an id is forgotten", func() bool {
		ack, err := b.js.Publish(b.ctx, "probe", nil, jetstream.WithMsgID("x"))
		b.must(err)
		return ack.Sequence > 1
	})
	b.must(b.js.DeleteStream(b.ctx, "PROBE"))
}

func (b *bench) mended(box *letters.Box, sequences ...uint64) (all []letters.Mended) {
	b.Helper()
	for _, sequence := range sequences {
		l, err := box.Get(b.ctx, sequence)
		if errors.Is(err, letters.ErrNoLetter) {
			continue
		}
		b.must(err)
		all = append(all, letters.Mended{Letter: &l, Type: fmt.Sprint("t", sequence%3), Body: fmt.Appendf(nil, "mended %d", sequence)})
	}
	return all
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

// docs/contract.md: "sends refused events again, mended or as they came: counted once"
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
	r, err := box.Resender()
	b.must(err)
	first := b.mended(box, 1, 2)
	sent, err := r.Send(b.ctx, first)
	b.must(err)
	if want := []letters.Resent{{Sequence: 1, Position: pipeline.At(1, 0)}, {Sequence: 2, Position: pipeline.At(2, 0)}}; !reflect.DeepEqual(sent, want) {
		t.Errorf("%v", sent)
	}
	m, err := b.stream(jetlog.EventsStream).GetMsg(b.ctx, 1)
	b.must(err)
	event := fmt.Sprintf("%d-%08x", pipeline.At(7, 3), crc32.ChecksumIEEE([]byte("one")))
	if want := map[string][]string{
		"Trace": {"a", "b"}, "Nats-Expected-Stream": {"EVENTS"}, "Nats-Expected-Last-Subject-Sequence": {"0"}, "Tidemark-Resent": {event}, "Tidemark-Type": {"t1"},
	}; string(m.Data) != "mended 1" || m.Subject != "events.resent."+event || !reflect.DeepEqual(map[string][]string(m.Header), want) {
		t.Errorf("%s %s %v", m.Subject, m.Data, m.Header)
	}
	for letter, want := range map[uint64]error{1: letters.ErrNoLetter, 2: letters.ErrNoLetter, 3: nil} {
		if _, err := box.Get(b.ctx, letter); !errors.Is(err, want) {
			t.Errorf("letter %d: %v", letter, err)
		}
	}

	// Readers see an event of its type.
	read := b.read(b.source(0, jetlog.RunOptions{}), 2)
	if len(read) != 2 || read[0].Subject != "events.t1" || read[1].Subject != "events.t2" {
		t.Errorf("%+v", read)
	}
}

// "counted once": a run that ends at any moment, and another that is long after
// the server has forgotten its message ids.
func TestResendInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forgetSoon()
	const refused = 200
	var reasons []pipeline.Reason
	var all []uint64
	for i := range refused {
		reasons, all = append(reasons, "json"), append(all, uint64(i+1))
	}
	b.keepLetters(reasons...)
	random := rand.New(rand.NewPCG(5, 6))
	interrupted := 0
	for left := refused; left > 0; {
		nc := b.connect()
		box, err := letters.OpenBox(b.ctx, nc)
		b.must(err)
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(random.IntN(2_000))*time.Microsecond)
		r, err := box.Resender()
		if err == nil {
			some := random.IntN(refused)
			_, err = r.Send(ctx, b.mended(b.letterBox(), all[some:min(some+10, refused)]...))
		}
		if err != nil {
			interrupted++
		}
		cancel()
		nc.Close()
		b.publish(random.IntN(5))
		if random.IntN(8) == 0 {
			b.waitForgotten()
		}
		s, err := b.letterBox().Count(b.ctx)
		b.must(err)
		if left = int(s); interrupted > 10 { // enough
			box := b.letterBox()
			r, err := box.Resender()
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
	if left, err := b.letterBox().Count(b.ctx); len(found) != refused || left != 0 || err != nil || interrupted < 5 {
		t.Errorf("%d sent, %d left, interrupted %d times, %v", len(found), left, interrupted, err)
	}
}

// "An event that has several letters is sent again once": the server has long forgotten
// message ids.
func TestResendLettersOfOneEvent(t *testing.T) {
	b := newBench(t)
	b.forgetSoon()
	for range 3 {
		b.keepLetters("json", "json")
		b.waitForgotten()
	}
	box := b.letterBox()
	if n, err := box.Count(b.ctx); n != 6 || err != nil {
		t.Fatalf("%d letters, %v", n, err) // else the test shows nothing
	}
	since, err := box.Since(b.ctx, pipeline.At(2, 0))
	b.must(err)
	if len(since) != 1 {
		t.Errorf("%v", since)
	}

	var all []letters.Resent
	for _, letters := range [][]uint64{{1}, {3, 2, 4}, {5}} {
		r, err := box.Resender()
		b.must(err)
		sent, err := r.Send(b.ctx, b.mended(box, letters...))
		b.must(err)
		all = append(all, sent...)
		b.waitForgotten()
	}
	first, second := pipeline.At(1, 0), pipeline.At(2, 0)
	if want := []letters.Resent{{1, first, false}, {3, first, true}, {2, second, false}, {4, second, true}, {5, first, true}}; !reflect.DeepEqual(all, want) {
		t.Errorf("%v", all)
	}
	if n, err := box.Count(b.ctx); n != 1 || err != nil {
		t.Errorf("%d letters are left, %v", n, err)
	}
}

// A trim takes away what says that an event was sent again. Letters of such events,
// which a killed run has left or which came again, go first.
func TestTrimSettlesLetters(t *testing.T) {
	b := newBench(t)
	b.forgetSoon()
	b.keepLetters("json", "json", "json")
	box := b.letterBox()
	kept := b.mended(box, 1, 3)
	r, err := box.Resender()
	b.must(err)
	_, err = r.Send(b.ctx, kept[:1])
	b.must(err)
	b.publish(3)
	_, err = r.Send(b.ctx, kept[1:])
	b.must(err)
	b.waitForgotten()
	for _, m := range kept { // as a run leaves them that is killed before it deletes
		_, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "deadletter.json", Header: nats.Header{
			"Nats-Msg-Id": {m.Letter.Header.Get("Nats-Msg-Id")}, "Tidemark-Sequence": m.Letter.Header["Tidemark-Sequence"], "Tidemark-Line": m.Letter.Header["Tidemark-Line"],
		}})
		b.must(err)
	}
	_, err = b.streams.Trim(b.ctx, 3, "somewhere", func(ctx context.Context) error { return letters.SettleBelow(ctx, b.streams, 3) })
	b.must(err)
	var left []pipeline.Position
	b.must(box.Visit(b.ctx, 1, "", func(l *letters.Letter) error { left = append(left, l.Position); return nil }))
	if want := []pipeline.Position{pipeline.At(2, 1)}; !reflect.DeepEqual(left, want) {
		t.Errorf("%v is left, want %v", left, want)
	}
}

// "A router that begins again stores no letter twice": a router that
// begins again derives letters that it stored longer ago than the server remembers.
func TestLettersStoredOnce(t *testing.T) {
	b := newBench(t)
	b.forgetSoon()
	letters := func(from, to int) (all []pipeline.DeadLetter) {
		for i := from; i < to; i++ {
			all = append(all, pipeline.DeadLetter{Position: pipeline.At(uint64(i), 0), Reason: "json", Data: fmt.Appendf(nil, "body %d", i)})
		}
		return all
	}
	b.must(b.deadLetters().Keep(b.ctx, letters(1, 3000)))
	b.waitForgotten()
	again := b.deadLetters()
	again.Begin()
	b.must(again.Keep(b.ctx, letters(200, 1000)))
	b.must(again.Keep(b.ctx, letters(1000, 3100)))
	b.must(again.Keep(b.ctx, letters(3100, 3200)))
	if n, err := b.letterBox().Count(b.ctx); n != 3199 || err != nil {
		t.Errorf("%d letters of 3,199 events, %v", n, err)
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
	middle := time.Now()
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
