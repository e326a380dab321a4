package node

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/node/counting"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// countAgain begins a generation that counts everything again in the place of one that has
// counted events that EVENTS has lost; lead has it serve once it has caught up. Nodes answer
// by what they have until then. Whichever node comes first does it, and a call after that does
// nothing. An operator's rebuild gives way. Events that were refused are refused again:
// DEADLETTER may have them a second time.
func (n *Node) countAgain(ctx context.Context, g *counting.Generation, why error) error {
	l := &n.rebuilds.leader
	if !l.mine.TryLock() { // one at a time
		return nil
	}
	defer l.mine.Unlock()
	set := n.rebuilds.set()
	switch g.Number {
	case set.Serving:
	case set.Building:
		_, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
			if now.Building != g.Number {
				return now, generations.ErrNone
			}
			return now.Abort(why.Error())
		})
		return err
	default:
		return nil
	}
	if set.Recounts() {
		return nil
	}
	if err := g.History().LacksOf(g.SeenEvents()); err != nil {
		return fmt.Errorf("everything is to be counted again, and cannot be: %w", err)
	}
	if set.Beside() != 0 {
		return n.step(ctx, set.Equal, func(now generations.Set) (generations.Set, error) { return now.Alone(why.Error()), nil })
	}
	number, err := n.reserve(ctx, set, set.All[set.Serving].Counting)
	if err != nil {
		return err
	}
	err = n.step(ctx, set.Equal, func(now generations.Set) (generations.Set, error) { return now.Past(number - 1).Again() })
	if err != nil {
		n.unreserve(jetlog.Slot(1-set.All[set.Serving].Slot), number)
		return err
	}
	n.log.Error("stream EVENTS has lost its tail: events were counted that it does not hold any more; everything is counted again, and answers stay as they are until then",
		"generation", number, "serving", g.Number, "why", why)
	return nil
}
