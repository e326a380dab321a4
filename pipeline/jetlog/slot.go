package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// Slot is one of the places that a generation has beside another one: a DELTAS,
// and keys in the bucket. EVENTS, DEADLETTER, and what people tell all nodes, are
// everybody's. There are as many as generations at a time, so that what nodes may
// do can be named beforehand.
type Slot uint8

// Slots is how many there are; those before it are valid. The zero is where the
// first generation is.
const Slots = 2

// Deltas is the name of the slot's stream of windows.
func (s Slot) Deltas() string { return [Slots]string{DeltasStream, DeltasStream + "2"}[s] }

// key is where the slot has a key.
func (s Slot) key(key string) string { return s.prefix() + key }

func (s Slot) prefix() string { return [Slots]string{"", "2."}[s] }

// keyOf is the key that the slot has there.
func (s Slot) keyOf(there string) string { return strings.TrimPrefix(there, s.prefix()) }

// nameSubject + node is where a process answers who it is: its session.
func (s Slot) nameSubject() string {
	return InternalPrefix + [Slots]string{"member.", "member2."}[s]
}

func isDeltas(stream string) bool {
	return slices.ContainsFunc([]Slot{0, 1}, func(s Slot) bool { return stream == s.Deltas() })
}

// deltas is the name of the stream of windows.
func (s *Streams) deltas() string { return s.slot.Deltas() }

// Slot is which one the streams were opened for.
func (s *Streams) Slot() Slot { return s.slot }

// memberKey is where a node's own key is.
func (m *Members) memberKey(node string) string {
	return m.streams.slot.key(cluster.MemberPrefix + node)
}

// Clear removes what a slot has: its DELTAS and its keys. Whoever still uses it
// makes it again.
func Clear(ctx context.Context, js jetstream.JetStream, s Slot) error {
	if err := js.DeleteStream(ctx, s.Deltas()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("jetlog: clear slot %d: delete stream %s: %w", s, s.Deltas(), err)
	}
	bucket, err := js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		err = clearKeys(ctx, bucket, s)
	}
	if err != nil {
		return fmt.Errorf("jetlog: clear slot %d: %w", s, err)
	}
	return nil
}

func clearKeys(ctx context.Context, bucket jetstream.KeyValue, s Slot) error {
	keys, err := bucket.ListKeysFiltered(ctx, s.key(cluster.MemberPrefix)+"*", s.key(cluster.AssignmentKey), s.key(leaseKey), s.key(nodePrefix)+"*")
	if err != nil {
		return err
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		if err := bucket.Purge(ctx, key); err != nil {
			return err
		}
	}
	return ctx.Err()
}
