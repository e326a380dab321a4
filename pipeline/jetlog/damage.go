package jetlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The metadata of EVENTS say what a reader has found missing in it, so that each node and
// command knows. An OpenStreams looks again, as files may have been brought back.

const (
	// damagedKey is the mark: "3-4 17-17", sequences.
	damagedKey = "tidemark-damaged"
	// damageMax bounds the holes that it names.
	damageMax = 100
)

// damagedOf reads the mark.
func damagedOf(mark string) (all pipeline.Holes) {
	for word := range strings.FieldsSeq(mark) {
		var d pipeline.Hole
		if n, err := fmt.Sscanf(word, "%d-%d", &d.First, &d.Last); err == nil && n == 2 { // somebody else's text is none
			all = append(all, d)
		}
	}
	return all
}

func damageMark(all pipeline.Holes) string {
	words := make([]string, len(all))
	for i, d := range all {
		words[i] = fmt.Sprintf("%d-%d", d.First, d.Last)
	}
	return strings.Join(words, " ")
}

// noteDamage has the metadata of EVENTS name a hole. If that fails, the next reader that
// finds it tries again.
func (s *Streams) noteDamage(ctx context.Context, hole pipeline.Hole) {
	state, err := s.sameState(ctx, EventsStream, s.created)
	if err == nil && (slices.Equal(withHole(state.Damaged, hole), state.Damaged) || len(state.Damaged) >= damageMax) {
		return
	}
	s.logger.Error("stream EVENTS is damaged: it lacks messages that no one can have deleted, on all servers that have it; "+
		"what is counted stands, and is neither compared with EVENTS nor counted again from it (docs/failures.md, Damaged files)",
		"first", hole.First, "last", hole.Last)
	if err == nil {
		err = s.markDamage(ctx, func(known pipeline.Holes) pipeline.Holes {
			return withHole(known, hole)
		})
	}
	if err != nil {
		s.logger.Warn("jetlog: that EVENTS is damaged is not noted in its metadata", "error", err)
	}
}

// withHole is the list, in order, with one more that may overlap others.
func withHole(known pipeline.Holes, more pipeline.Hole) (all pipeline.Holes) {
	for _, h := range known {
		if h.Last < more.First || more.Last < h.First {
			all = append(all, h)
			continue
		}
		more.First, more.Last = min(more.First, h.First), max(more.Last, h.Last)
	}
	all = append(all, more)
	slices.SortFunc(all, func(a, b pipeline.Hole) int { return cmp.Compare(a.First, b.First) })
	return all
}

// markDamage changes the mark.
func (s *Streams) markDamage(ctx context.Context, change func(pipeline.Holes) pipeline.Holes) error {
	mark := ""
	err := s.setMark(ctx, s.created, damagedKey, func(was string) string {
		mark = damageMark(change(damagedOf(was)))
		return mark
	})
	if err == nil {
		_, err = s.changeEvents(ctx, func(c *jetstream.StreamConfig, _ jetstream.StreamState) {
			if mark == "" {
				delete(c.Metadata, damagedKey)
			}
		})
	}
	return err
}

// recheckDamage takes back what the mark says of messages that are there again, or have
// left the front of the stream. It looks at the ends of each hole alone: what is missing in
// between the next reader finds.
func (s *Streams) recheckDamage(ctx context.Context) error {
	state, err := s.sameState(ctx, EventsStream, s.created)
	if err != nil || len(state.Damaged) == 0 {
		return err
	}
	var mended pipeline.Holes
	for _, d := range state.Damaged {
		whole := true
		for _, sequence := range []uint64{d.First, d.Last} {
			if sequence < state.First {
				continue
			}
			_, err := GetStored(ctx, s.nc, EventsStream, sequence)
			if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return err
			}
			whole = whole && err == nil
		}
		if whole {
			mended = append(mended, d)
		}
	}
	if len(mended) == 0 {
		return nil
	}
	s.logger.Info("stream EVENTS is no longer damaged where messages are there again", "messages", damageMark(mended))
	return s.markDamage(ctx, func(known pipeline.Holes) pipeline.Holes {
		return slices.DeleteFunc(known, func(d pipeline.Hole) bool { return slices.Contains(mended, d) })
	})
}
