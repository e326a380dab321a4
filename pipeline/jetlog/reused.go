package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reclaim implements pipeline.Events. It finds events stored at sequences, up to
// `counted`, that had been used before: EVENTS lost its tail, and producers were faster
// than FastForward. A node that has counted up to there would not read them, so each is
// published once more at the end. The copy says of which message it is one
// (HeaderMoved), and from then on the original means nothing (Moves): a reader that
// lags, or a replay, finds the event once. counted was read at the log time `at` (Unix
// ms), so that what stands there with a later timestamp is not what was read.
//
// It may be run again: what has a copy is not published again, and of two that are
// published at once the stream keeps one (within its duplicate window) or readers
// take the first. It returns how many were moved.
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
	last, err := GetStored(ctx, s.nc, EventsStream, counted) // nil when there is none
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, err
	}
	if last != nil && last.Time.UnixMilli() <= at {
		return 0, nil
	}
	if last != nil {
		done, err := finished(ctx, s.nc, last, at)
		if err != nil {
			return 0, err
		}
		if e, err := s.bucket.Get(ctx, reclaimedKey); err == nil && string(e.Value()) == done {
			return 0, nil
		}
	}
	moved, err := reclaimAll(ctx, s, stream, counted, at)
	if err != nil || last == nil {
		return moved, err
	}
	done, err := finished(ctx, s.nc, last, at)
	if err != nil {
		return moved, err
	}
	// It only saves work: without the bucket they are looked through again.
	if _, err := s.bucket.PutString(ctx, reclaimedKey, done); err != nil {
		s.logger.Warn("jetlog: not noted that a lost tail of EVENTS is mended", "error", err)
	}
	return moved, nil
}

func reclaimAll(ctx context.Context, s *Streams, stream jetstream.Stream, counted uint64, at int64) (moved int, err error) {
	moves, err := LoadMoves(ctx, s.js)
	if err != nil {
		return 0, err
	}
	first, err := firstReused(ctx, s.nc, max(stream.CachedInfo().State.FirstSeq, 1), counted, at)
	if err != nil {
		return 0, err
	}
	if uint64(len(moves))+counted+1-first > MovesMax {
		return 0, ErrMoves
	}
	under, err := movedSubject(stream)
	if err != nil {
		return 0, err
	}
	if err := s.letIn(ctx); err != nil {
		return 0, err
	}
	for seq := first; seq <= counted; seq++ {
		m, err := GetStored(ctx, s.nc, EventsStream, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // a disk has lost it
		}
		if err != nil {
			return moved, err
		}
		of := Original{m.Sequence, m.Time.UnixNano()}
		if _, has := moves[of]; has || m.Subject == FillerSubject {
			continue
		}
		id := fmt.Sprintf("%sreclaimed-%d-%d", IDPrefix(stream.CachedInfo().Config), of.Sequence, of.Nanos)
		if _, err := s.js.PublishMsg(ctx, again(m, of, under), jetstream.WithMsgID(id), jetstream.WithExpectStream(EventsStream)); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

// reclaimedKey says which lost tail was the last one mended.
const reclaimedKey = "reclaimed"

// finished is what reclaimedKey holds once all up to the last message counted is
// moved, as long as that one and the newest copy are still there.
func finished(ctx context.Context, nc *nats.Conn, last *Stored, at int64) (string, error) {
	newest, err := LastStored(ctx, nc, EventsStream, MovedSubject+">")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		newest, err = new(Stored), nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d at %d, moved up to %d of %d",
		last.Sequence, last.Time.UnixNano(), at, newest.Sequence, newest.Time.UnixNano()), nil
}

// firstReused walks back from counted, to the stream's front or just past
// MovesMax messages at most, over what is younger than it may be, and over what
// a disk has lost. It is behind counted when there is none.
func firstReused(ctx context.Context, nc *nats.Conn, front, counted uint64, at int64) (uint64, error) {
	first := counted + 1
	for seq := counted; seq >= front && counted-seq <= MovesMax; seq-- {
		m, err := GetStored(ctx, nc, EventsStream, seq)
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

// again is a stored message to be published once more. What its producer expected of the
// stream was true then.
func again(m *Stored, of Original, under string) *nats.Msg {
	copied := &nats.Msg{Data: m.Data, Header: nats.Header{}}
	for name, values := range m.Header {
		if !strings.HasPrefix(name, "Nats-Expected-") && name != nats.MsgIdHdr {
			copied.Header[name] = values
		}
	}
	copied.Subject = MarkAsCopy(under, m.Subject, copied.Header, of)
	return copied
}
