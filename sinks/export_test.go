package sinks

import (
	"context"
	"errors"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Crash ends the node without its last checkpoint: a window that fits nowhere
// stops every shard, and stopped shards are not checkpointed. A commit under
// way may still land, as in a real crash.
func (n *Node) Crash() {
	for _, o := range n.owners {
		o.sent.Add(1)
		o.windows <- handed{window: &pipeline.Window{Header: pipeline.Header{From: math.MaxUint64 - 1, To: math.MaxUint64}, Sections: make([][]byte, n.o.Shards+1)}}
	}
	n.Close()
	for _, s := range n.held.Load().shards {
		if !errors.Is(s.Err(), pipeline.ErrGap) {
			panic("a shard was not stopped")
		}
	}
}

// Hindsight has readers go on with what is held now, once what it returns is
// called: as one that begins now and is not given the processor for a while.
func (n *Node) Hindsight() func() {
	then := n.held.Load()
	return func() { n.held.Store(then) }
}

// Follow hands over what a tailer gives, whatever that is: a pipeline.Follower would
// look for what is missing.
func (n *Node) Follow(ctx context.Context, tailer pipeline.Tailer) error {
	for {
		entries, err := tailer.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := n.Hand(ctx, e); err != nil {
				return err
			}
		}
	}
}

// Progress opens progress to the tests.
type Progress struct{ p progress[pipeline.Position] }

func (p *Progress) Set(position pipeline.Position) { p.p.set(position) }
func (p *Progress) Get() pipeline.Position         { return p.p.get() }
func (p *Progress) Wait(ctx context.Context, position pipeline.Position) error {
	return p.p.wait(ctx, position)
}

func (p *Progress) Waiters() int {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	return len(p.p.waiters)
}
