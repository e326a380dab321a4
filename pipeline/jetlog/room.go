package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoRoom says that the server does not take a stream: it, or the account, may not
// store so much, or may not have so many streams. The error has the numbers.
var ErrNoRoom = errors.New("the server has no room for it")

const (
	// insufficientStorage is the server's code for limits that exceed its own, the
	// others those for an account's: of storage, of streams, of the bytes of one.
	insufficientStorage = 10047
	accountStorage      = 10002
	accountStreams      = 10027
	accountStreamBytes  = 10122
)

// Reserve makes the DELTAS of a generation that is about to begin, in a slot that was
// cleared (Clear): what its max_bytes reserves on the server is there then. Another
// process that wants to begin there finds it, and begins with a later number.
func Reserve(ctx context.Context, nc *nats.Conn, o StreamOptions) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("jetlog: reserve room: %w", err)
	}
	o = o.withDefaults()
	s := newStreams(nc, js, o.Slot, o.Generation, o.Logger)
	for _, c := range o.configs(nc.MaxPayload()) {
		s.configs[c.Name] = c
	}
	_, err = s.createDeltas(ctx)
	if err == nil {
		_, _, err = s.edition(ctx) // it may be somebody else's
	}
	return s.noRoom(ctx, s.configs[s.deltas()], err)
}

// Unreserve deletes what was reserved for a generation of that number if nothing was
// ever appended to it, and says whether there was such a stream.
func Unreserve(ctx context.Context, js jetstream.JetStream, slot Slot, of Owner) (removed bool, err error) {
	stream, err := js.Stream(ctx, slot.Deltas())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jetlog: look what slot %d has reserved: %w", slot, err)
	}
	if i := stream.CachedInfo(); !ownerOf(i.Config).Is(of) || i.State.LastSeq > 0 {
		return false, nil
	}
	if err := js.DeleteStream(ctx, slot.Deltas()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("jetlog: delete stream %s, which was reserved: %w", slot.Deltas(), err)
	}
	return true, nil
}

// noRoom says of an error whether a stream has no room, and what the server says of
// what it has: how much streams have reserved, which is not what is in them.
func (s *Streams) noRoom(ctx context.Context, c jetstream.StreamConfig, err error) error {
	api, is := errors.AsType[*jetstream.APIError](err)
	if !is {
		return err
	}
	switch api.ErrorCode {
	case insufficientStorage, accountStorage, accountStreams, accountStreamBytes:
	default:
		return err
	}
	return fmt.Errorf("jetlog: create stream %s of %d MiB, %d times: %w (%w)%s: lower nats.streams.*.max_bytes, or let the server store more",
		c.Name, c.MaxBytes>>20, max(c.Replicas, 1), ErrNoRoom, err, s.reserved(ctx, c.Replicas))
}

// reserved is what the server says of what the account's streams have reserved; "":
// nothing. What other accounts have, and what the server's own limit is, it does not
// say.
func (s *Streams) reserved(ctx context.Context, replicas int) string {
	account, err := s.js.AccountInfo(ctx)
	if err != nil {
		return ""
	}
	tier := account.Tier
	if t, has := account.Tiers[fmt.Sprintf("R%d", max(replicas, 1))]; has {
		tier = t
	}
	text := fmt.Sprintf("; this account's %d streams have reserved %d MiB", tier.Streams, tier.ReservedStore>>20)
	if tier.Limits.MaxStore >= 0 {
		text += fmt.Sprintf(" of the %d MiB that it may store", tier.Limits.MaxStore>>20)
	}
	if tier.Limits.MaxStreams > 0 {
		text += fmt.Sprintf(", and it may have %d streams", tier.Limits.MaxStreams)
	}
	return text
}
