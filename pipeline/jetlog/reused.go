package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reclaim implements pipeline.Events. It finds events stored at sequences, up
// to `counted`, that had been used before: EVENTS lost its tail, and producers
// were faster than FastForward. Whoever has counted up to there would not read
// them, so each is published once more behind the end and then deleted where it
// stood: a reader that is behind, or a replay, finds it once. counted was read
// at the log time `at` (Unix ms), so that whatever stands there with a later
// timestamp is not what was read.
//
// It may be run again: the bucket remembers the last one that was finished, and
// after an interruption each comes once within the duplicate window. It returns
// how many were moved.
func (e *Events) Reclaim(ctx context.Context, counted uint64, at int64) (int, error) {
	moved, err := reclaim(ctx, e.streams, counted, at)
	if err != nil {
		return moved, fmt.Errorf("jetlog: publish again what was stored at used sequences of %s: %w", EventsStream, err)
	}
	return moved, nil
}

func reclaim(ctx context.Context, s *Streams, counted uint64, at int64) (int, error) {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return 0, err
	}
	last, err := stream.GetMsg(ctx, counted)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, err
	}
	done := ""
	if err == nil {
		if last.Time.UnixMilli() <= at {
			return 0, nil
		}
		done = fmt.Sprintf("%d at %d: %d", counted, at, last.Time.UnixNano())
		if e, err := s.bucket.Get(ctx, reclaimedKey); err == nil && string(e.Value()) == done {
			return 0, nil
		} else if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return 0, err
		}
	}
	first, err := firstReused(ctx, stream, counted, at)
	if err != nil {
		return 0, err
	}
	moved := 0
	for seq := first; seq <= counted; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // moved before, or by another
		}
		if err != nil {
			return moved, err
		}
		if m.Header.Get(HeaderFiller) != "" {
			continue
		}
		if _, err := s.js.PublishMsg(ctx, again(m), jetstream.WithExpectStream(EventsStream)); err != nil {
			return moved, err
		}
		if err := stream.DeleteMsg(ctx, seq); err != nil {
			return moved, err
		}
		moved++
	}
	if done != "" {
		_, err = s.bucket.PutString(ctx, reclaimedKey, done)
	}
	return moved, err
}

// reclaimedKey says which lost tail was the last one mended.
const reclaimedKey = "reclaimed"

// firstReused walks back from counted, to the stream's front at most, over
// what is younger than it may be, and over holes: whoever was interrupted, or
// was at it at the same time, has moved some and left others before them. It is
// behind counted when there is none.
func firstReused(ctx context.Context, stream jetstream.Stream, counted uint64, at int64) (uint64, error) {
	first, front := counted+1, max(stream.CachedInfo().State.FirstSeq, 1)
	for seq := counted; seq >= front && counted-seq < FillersMax; seq-- {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if m.Time.UnixMilli() <= at {
			break
		}
		first = seq
	}
	return first, nil
}

// again is a stored message to be published once more. What its producer
// expected of the stream was true then.
func again(m *jetstream.RawStreamMsg) *nats.Msg {
	copied := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	for name, values := range m.Header {
		if !strings.HasPrefix(name, "Nats-Expected-") {
			copied.Header[name] = values
		}
	}
	copied.Header.Set(nats.MsgIdHdr, fmt.Sprintf("reclaimed-%d-%d", m.Sequence, m.Time.UnixNano()))
	return copied
}
