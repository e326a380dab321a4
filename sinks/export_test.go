package sinks

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

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
