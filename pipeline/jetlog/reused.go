package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reclaim finds events stored at sequences, up to `counted`, that had been
// used before: EVENTS lost its tail, and producers were faster than
// FastForward. Nobody would read them there, so each is published once more
// behind the end. counted was read at the log time `at` (Unix ms), so that
// whatever stands there with a later timestamp is not what was read.
//
// It may be run again: the bucket remembers the last one that was finished, and
// after an interruption each comes once within the duplicate window. It returns
// how many were moved.
func Reclaim(ctx context.Context, s *Streams, counted uint64, at int64) (int, error) {
	moved, err := reclaim(ctx, s, counted, at)
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
	first := counted + 1
	for seq := counted; seq > 0 && counted-seq < FillersMax; seq-- {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break // deleted by somebody, or gone with the front
		}
		if err != nil {
			return 0, err
		}
		if m.Time.UnixMilli() <= at {
			break
		}
		first = seq
	}
	if first > counted {
		return 0, nil
	}
	done := fmt.Sprintf("%d at %d", counted, at)
	if e, err := s.bucket.Get(ctx, reclaimedKey); err == nil && string(e.Value()) == done {
		return 0, nil
	} else if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, err
	}
	moved := 0
	for seq := first; seq <= counted; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return moved, err
		}
		if m.Header.Get(HeaderFiller) != "" {
			continue
		}
		again := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
		for name, values := range m.Header {
			again.Header[name] = values
		}
		again.Header.Set(nats.MsgIdHdr, fmt.Sprintf("reclaimed-%d-%d", seq, m.Time.UnixNano()))
		if _, err := s.js.PublishMsg(ctx, again, jetstream.WithExpectStream(EventsStream)); err != nil {
			return moved, err
		}
		moved++
	}
	_, err = s.bucket.PutString(ctx, reclaimedKey, done)
	return moved, err
}

// reclaimedKey says which lost tail was the last one mended.
const reclaimedKey = "reclaimed"
