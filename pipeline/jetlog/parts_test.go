package jetlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// A part of EVENTS is one bounded fetch: a part costs a consumer and one or two requests, and
// no message is sent that was not asked for.
func TestParts(t *testing.T) {
	b := newBench(t)
	b.publish(300)
	b.must(b.stream(jetlog.EventsStream).Purge(b.ctx, jetstream.WithPurgeSequence(101)))
	nc := b.js.Conn()
	parts, err := jetlog.OpenParts(b.ctx, b.streams)
	b.must(err)
	if s := parts.State(); s.First != 101 || s.Last != 300 {
		t.Errorf("%d to %d", s.First, s.Last)
	}
	before := nc.Stats()
	const opened = 10
	for i := range uint64(opened) {
		source, err := parts.Open(b.ctx, pipeline.EndOf(100+i), 50, jetlog.RunOptions{})
		b.must(err)
		for next := 101 + i; next < 151+i; {
			run, err := source.Next(b.ctx)
			b.must(err)
			for _, m := range run {
				if want := fmt.Sprint(m.Sequence); m.Sequence != next || string(m.Data) != want {
					t.Fatalf("message %d is %d: %q", next, m.Sequence, m.Data)
				}
				next++
			}
		}
		b.must(source.Close())
	}
	b.must(nc.Flush())
	sent := nc.Stats()
	if asked := sent.OutMsgs - before.OutMsgs; asked > opened*4 { // consumer, two requests, and that it may go
		t.Errorf("%d requests for %d parts", asked, opened)
	}
	if got := sent.InMsgs - before.InMsgs; got > opened*(50+3) {
		t.Errorf("%d messages came for %d parts of 50", got, opened)
	}
	if _, err := parts.Open(b.ctx, pipeline.EndOf(99), 1, jetlog.RunOptions{}); !errors.Is(err, pipeline.ErrGap) {
		t.Errorf("of what is gone: %v", err)
	}
	for sequence, want := range map[uint64]string{99: "false ", 101: "true 101", 300: "true 300", 301: "false "} {
		m, there, err := parts.Get(b.ctx, sequence)
		if got := fmt.Sprintf("%v %s", there, m.Data); err != nil || got != want {
			t.Errorf("%d is %q, want %q: %v", sequence, got, want, err)
		}
	}
}
