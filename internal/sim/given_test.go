package sim

import (
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// given is which windows a shard was given that go on where it stood: what it
// must have applied. It takes no part in the process, and forgets nothing that
// one forgets in a crash.
type given struct {
	shard    int
	position pipeline.Position
	ends     []pipeline.Position // of the windows, ascending
	seen     []span              // what of which messages was in them
}

// span is a message, and the positions of it that a window covered.
type span struct {
	*Stored
	from, to pipeline.Position
}

// take is I3: "A shard applies a window iff its `from` is where the shard stands; one
// that ends at or before is dropped; anything else stops the shard with both numbers."
func (g *given) take(sequence uint64, h pipeline.Header, messages []*Stored) error {
	if h.To <= g.position {
		return nil
	}
	if h.From != g.position {
		return fmt.Errorf("%w: shard %d stands at %d and the next window, %d, is (%d, %d] (I2, I3)",
			pipeline.ErrGap, g.shard, g.position, sequence, h.From, h.To)
	}
	for _, m := range messages {
		g.seen = append(g.seen, span{m, h.From, h.To})
	}
	g.position, g.ends = h.To, append(g.ends, h.To)
	return nil
}

// from is a shard that comes, or came, as it stands somewhere: what was before is
// not known here.
func (g *given) from(position pipeline.Position) {
	g.position, g.ends, g.seen = position, []pipeline.Position{position}, nil
}

// upTo is what was in the windows up to the end of one of them.
func (g *given) upTo(position pipeline.Position) ([]span, error) {
	if _, is := slices.BinarySearch(g.ends, position); !is && position != 0 {
		return nil, fmt.Errorf("shard %d stands at %d, and no window that it was given ends there (I4)", g.shard, position)
	}
	n, _ := slices.BinarySearchFunc(g.seen, position, func(s span, position pipeline.Position) int {
		if s.to <= position {
			return -1
		}
		return 1
	})
	return g.seen[:n:n], nil
}

// backTo is what is left after a crash.
func (g *given) backTo(position pipeline.Position) error {
	seen, err := g.upTo(position)
	if err != nil {
		return err
	}
	n, _ := slices.BinarySearch(g.ends, position+1)
	g.seen, g.ends, g.position = seen, g.ends[:n:n], position
	return nil
}
