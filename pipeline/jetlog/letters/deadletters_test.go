package letters_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

func (b *bench) deadLetters() *letters.DeadLetters {
	b.Helper()
	d, err := letters.NewDeadLetters(b.streams, nil)
	b.must(err)
	return d
}

// docs/contract.md: "the body (of a pack, the line) and the headers as they came, with
// headers for the source sequence, line and reason added"
func TestDeadLetterIsKeptWhole(t *testing.T) {
	b := newBench(t)
	letter := pipeline.DeadLetter{
		Position: pipeline.At(42, 7),
		Reason:   pipeline.ReasonID,
		Detail:   "actor is 0\nand 0 is not an id",
		Data:     []byte("\x00{bad"),
		Header: map[string][]string{
			"Trace":                       {"a", "b"},
			"Nats-Msg-Id":                 {"producer-1"},
			"nats-expected-last-sequence": {"999"},
			"Nats-Expected-Last-Sequence": {"999"},
			"Nats-Expected-Stream":        {"EVENTS"},
			"Nats-Rollup":                 {"all"},
			"Nats-TTL":                    {"1s"},
			"Tidemark-Sequence":           {"1"},
			"odd name(1)":                 {"x"},
			"Value":                       {"über\r\nNats-Rollup: all"},
			"":                            {"nameless"},
		},
	}
	b.must(b.deadLetters().Keep(b.ctx, []pipeline.DeadLetter{letter}))
	m, err := b.stream(jetlog.DeadLetterStream).GetMsg(b.ctx, 1)
	b.must(err)
	if m.Subject != "deadletter.id" || !bytes.Equal(m.Data, letter.Data) {
		t.Errorf("%s: %q", m.Subject, m.Data)
	}
	for name, want := range map[string][]string{
		"Tidemark-Sequence": {"42"}, "Tidemark-Line": {"7"}, "Tidemark-Reason": {"id"},
		"Tidemark-Error": {"actor is 0 and 0 is not an id"},
		"Nats-Msg-Id":    {fmt.Sprintf("dl-%d-%08x", letter.Position, crc32.ChecksumIEEE(letter.Data))},
		"Trace":          {"a", "b"},
		"odd_name_1_":    {"x"},
		"Value":          {"über  Nats-Rollup: all"},

		"Tidemark-Nats-Msg-Id":                 {"producer-1"},
		"Tidemark-nats-expected-last-sequence": {"999"},
		"Tidemark-Nats-Expected-Last-Sequence": {"999"},
		"Tidemark-Nats-Rollup":                 {"all"},
		"Tidemark-Tidemark-Sequence":           {"1"},
	} {
		if !slices.Equal(m.Header[name], want) {
			t.Errorf("%s: %q, want %q", name, m.Header[name], want)
		}
	}
}

// The largest event that EVENTS takes always fits as a dead letter: "never
// stops, slows or crashes the pipeline" (I9).
func TestLargestEventFitsAsADeadLetter(t *testing.T) {
	b := newBench(t)
	const limit = 1<<20 - jetlog.EnvelopeBytes
	source := b.source(0, jetlog.RunOptions{})
	for name, h := range map[string]nats.Header{
		"body only":     nil,
		"some headers":  {"A": {strings.Repeat("v", 10_000)}, "Nats-Msg-Id": {"m"}},
		"renamed ones":  manyHeaders("Nats-", 4500),
		"a huge one":    {"A": {strings.Repeat("v", 65_000)}},
		"one of values": {"k": slices.Repeat([]string{"v"}, 8000)},
	} {
		m := &nats.Msg{Subject: "events.x", Header: h, Data: bytes.Repeat([]byte("x"), limit-headerSize(h))}
		_, err := b.js.PublishMsg(b.ctx, m)
		b.must(err)
		got := b.read(source, 1)[0]
		b.must(b.deadLetters().Keep(b.ctx, []pipeline.DeadLetter{{
			Position: pipeline.EndOf(got.Sequence), Reason: pipeline.ReasonPack,
			Detail: strings.Repeat("é", 5000), Header: got.Header, Data: got.Data,
		}}))
		kept, err := b.stream(jetlog.DeadLetterStream).GetMsg(b.ctx, got.Sequence)
		if b.must(err); !bytes.Equal(kept.Data, m.Data) {
			t.Errorf("%s: the body was changed", name)
		}
		if omitted := kept.Header.Get("Tidemark-Headers-Omitted"); (omitted != "") != (name == "renamed ones" || name == "a huge one") {
			t.Errorf("%s: omitted %q", name, omitted)
		}
	}
}

func manyHeaders(prefix string, n int) nats.Header {
	h := nats.Header{}
	for i := range n {
		h[fmt.Sprint(prefix, i)] = []string{"v"}
	}
	return h
}

func headerSize(h nats.Header) int {
	if h == nil {
		return 0
	}
	n := len("NATS/1.0\r\n\r\n")
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	return n
}
