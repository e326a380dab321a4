package sim

import (
	"context"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The fake log keeps the contract of the real one.
func TestFakeKeepsTheContract(t *testing.T) {
	holdContract(t, func(t *testing.T) bench {
		s := NewServer()
		return &fakeBench{s: s, c: s.NewClient(0, nil)}
	})
}

type fakeBench struct {
	s              *Server
	c              *Client
	events, deltas uint64 // to be left by a power cut
}

func (b *fakeBench) publish(subject, id string, header map[string][]string, data []byte) uint64 {
	if id != "" {
		header = map[string][]string{msgID: {id}}
	}
	return b.s.Store(Stored{Subject: subject, Header: header, Data: data})
}

func (b *fakeBench) many(n int) {
	for range n {
		b.publish("events.like", "", nil, []byte("many"))
	}
}

func (b *fakeBench) deleteMessage(stream string, sequence uint64) { b.s.Delete(stream, sequence) }
func (b *fakeBench) purge(stream string, below uint64)            { b.s.Purge(stream, below) }
func (b *fakeBench) intrude(data []byte)                          { b.s.Intrude(data) }
func (b *fakeBench) recreate(stream string)                       { b.s.Recreate(stream) }

func (b *fakeBench) source(ctx context.Context, from pipeline.Position, o jetlog.RunOptions) (pipeline.Source, error) {
	return b.c.Source(ctx, from, o)
}

func (b *fakeBench) tailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	return b.c.Tailer(ctx, after, jetlog.RunOptions{})
}

func (b *fakeBench) guarded() pipeline.Events          { return b.c.Events(jetlog.RunOptions{}) }
func (b *fakeBench) log() pipeline.Log                 { return b.c.Deltas() }
func (b *fakeBench) letters() pipeline.DeadLetters     { return b.c.Letters() }
func (b *fakeBench) lease(owner string) pipeline.Lease { return b.c.Lease(owner) }

func (b *fakeBench) kept() (all []pipeline.Position) {
	for _, l := range b.s.Letters() {
		all = append(all, l.Position)
	}
	return all
}

func (b *fakeBench) keep() {
	b.events, b.deltas = b.s.State(jetlog.EventsStream).Last, b.s.State(jetlog.DeltasStream).Last
}

func (b *fakeBench) cut() { b.s.PowerCut(b.events, b.deltas) }
