package jetlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// writesKey is in the metadata of EVENTS while events are refused by hand, so that its
// limit is distinguished from one that an operator has set.
const (
	writesKey = "tidemark-writes"
	byHand    = "refuse"
)

// RefuseWrites has EVENTS take no more events, or take them again, and says
// whether that changed anything. Only one process calls it, again and again: the
// one that routes.
//
// EVENTS is given a limit of as many messages as it holds, and discards new ones:
// JetStream answers every publish with "maximum messages exceeded" (ErrFull for
// Reads), and nothing that is stored is lost. Where messages age away, the next
// call lowers the limit; an EVENTS that is empty takes one message.
func (s *Streams) RefuseWrites(ctx context.Context, refuse bool) (changed bool, err error) {
	limit := int64(0) // as at first, though messages come and go
	_, err = s.changeEvents(ctx, func(c *jetstream.StreamConfig, is jetstream.StreamState) {
		was := writesRefused(*c)
		changed = changed || was != refuse
		limit = cmp.Or(limit, int64(max(is.Msgs, 1)))
		switch {
		case refuse:
			c.MaxMsgs, c.Metadata[writesKey] = limit, byHand
		case was:
			c.MaxMsgs = -1
			delete(c.Metadata, writesKey)
		}
	})
	if err != nil {
		return false, fmt.Errorf("jetlog: refuse writes: %w", err)
	}
	return changed, nil
}

// RefusedByHand says of a publish's error that EVENTS refuses events (RefuseWrites).
// Nothing else limits how many it holds.
func RefusedByHand(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == storeFailed && api.Description == "maximum messages exceeded"
}

// writesRefused says of the settings of EVENTS whether events are refused by hand.
func writesRefused(c jetstream.StreamConfig) bool { return c.Metadata[writesKey] == byHand }
