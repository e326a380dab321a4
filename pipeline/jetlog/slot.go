package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
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

// generationKey and countsByKey are where the metadata of DELTAS has whose it is:
// the generation's number, and what that counts by (generation.Generation.CountsBy).
const (
	generationKey = "tidemark-generation"
	countsByKey   = "tidemark-counts-by"
)

// ErrGeneration says that the slot's DELTAS is another generation's than the streams
// were opened for. It is neither followed nor appended to, and stays as it is.
var ErrGeneration = errors.New("jetlog: DELTAS is of another generation")

// Owner is whose a DELTAS is.
type Owner = generation.Owner

func ownerOf(c jetstream.StreamConfig) Owner {
	n, err := strconv.ParseUint(c.Metadata[generationKey], 10, 32)
	if err != nil || n > generation.NumberMax {
		return Owner{}
	}
	return Owner{Number: generation.Number(n), CountsBy: c.Metadata[countsByKey]}
}

// refuseOther is an error unless an edition is of the streams' own generation.
func (s *Streams) refuseOther(e edition) error {
	if e.of.Is(s.of) {
		return nil
	}
	return fmt.Errorf("%w: stream %s is of %v, and this is %v", ErrGeneration, s.deltas(), e.of, s.of)
}

// Generation is which one the streams were opened for.
func (s *Streams) Generation() generation.Number { return s.of.Number }

// SlotOf is whose DELTAS a slot has.
func SlotOf(ctx context.Context, js jetstream.JetStream, s Slot) (Owner, error) {
	stream, err := js.Stream(ctx, s.Deltas())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Owner{}, nil
	}
	if err != nil {
		return Owner{}, fmt.Errorf("jetlog: look whose slot %d is: %w", s, err)
	}
	return ownerOf(stream.CachedInfo().Config), nil
}

// Evict deletes a slot's DELTAS for the generation to which the record gives the
// slot, where a process of an earlier one has made it again: that was cut off while
// the slot was cleared. Numbers only grow in a slot, so a DELTAS of a lower one, or of
// none, is left over, and so is one with the same number that counts by something else.
// It says whether there was one. A later generation's is ErrGeneration, and stays.
func Evict(ctx context.Context, js jetstream.JetStream, s Slot, of Owner) (evicted bool, err error) {
	stream, err := js.Stream(ctx, s.Deltas())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jetlog: look whose slot %d is: %w", s, err)
	}
	switch is := ownerOf(stream.CachedInfo().Config); {
	case is.Is(of):
		return false, nil
	case is.Number > of.Number:
		return false, fmt.Errorf("%w: stream %s is of %v, and this is %v", ErrGeneration, s.Deltas(), is, of)
	}
	if err := js.DeleteStream(ctx, s.Deltas()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("jetlog: delete stream %s, which an earlier generation has made: %w", s.Deltas(), err)
	}
	return true, nil
}

// Clear makes a slot empty for a generation that is about to begin there: it removes
// the keys, and the DELTAS, of those before. Where that generation or a later one has
// begun there already, by another leader, nothing is removed (ErrGeneration).
//
// It may end anywhere, and be done again: what is left then is the earlier
// generation's, and nobody of a later one takes it for its own. Its members have
// another fingerprint; its DELTAS, which goes last, says whose it is, and streams of
// another generation are not opened on it. Whoever still uses the slot makes it again
// (Evict).
func Clear(ctx context.Context, js jetstream.JetStream, s Slot, next generation.Number) error {
	is, err := SlotOf(ctx, js, s)
	if err != nil {
		return err
	}
	if is.Number >= next {
		return fmt.Errorf("%w: stream %s is of %v, and generation %d was to begin", ErrGeneration, s.Deltas(), is, next)
	}
	bucket, err := js.KeyValue(ctx, Bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		err = nil
	case err == nil:
		err = clearKeys(ctx, bucket, s)
	}
	if err == nil {
		_, err = Evict(ctx, js, s, Owner{Number: next})
	}
	if err != nil {
		return fmt.Errorf("jetlog: clear slot %d: %w", s, err)
	}
	return nil
}

// clearTries bounds how often keys are listed: until none is left, as a listing
// that is cut short looks like one that has ended.
const clearTries = 5

// clearKeys purges the slot's keys. A purge leaves a mark that a key was there, which
// members tell from one that somebody deleted by mistake.
func clearKeys(ctx context.Context, bucket jetstream.KeyValue, s Slot) error {
	for range clearTries {
		n, err := purgeKeys(ctx, bucket, s.key(cluster.MemberPrefix)+"*", s.key(cluster.AssignmentKey), s.key(leaseKey), s.key(nodePrefix)+"*")
		if err != nil || n == 0 {
			return err
		}
	}
	return errors.New("its keys are written again and again: somebody uses it still")
}

// purgeKeys purges the keys that it finds, and says how many.
func purgeKeys(ctx context.Context, bucket jetstream.KeyValue, filters ...string) (n int, err error) {
	keys, err := bucket.ListKeysFiltered(ctx, filters...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		if err := bucket.Purge(ctx, key); err != nil {
			return n, fmt.Errorf("purge key %s: %w", key, err)
		}
		n++
	}
	return n, ctx.Err()
}
