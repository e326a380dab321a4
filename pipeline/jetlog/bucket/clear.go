package bucket

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Clear makes a slot empty for a generation that is about to begin there: it removes
// the keys, and the DELTAS, of those before. Where that generation or a later one has
// begun there already, by another leader, nothing is removed (ErrGeneration).
//
// It may end anywhere, and be done again: what is left then is the earlier
// generation's, and no process of a later one takes it for its own. Its members have
// another fingerprint; its DELTAS, which goes last, says whose it is, and streams of
// another generation are not opened on it. A process that still uses the slot makes it
// again (Evict).
func Clear(ctx context.Context, js jetstream.JetStream, s jetlog.Slot, next generation.Number) error {
	is, err := jetlog.SlotOf(ctx, js, s)
	if err != nil {
		return err
	}
	if is.Number >= next {
		return fmt.Errorf("%w: stream %s is of %v, and generation %d was to begin", jetlog.ErrGeneration, s.Deltas(), is, next)
	}
	bucket, err := js.KeyValue(ctx, jetlog.Bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		err = nil
	case err == nil:
		err = clearKeys(ctx, bucket, s)
	}
	if err == nil {
		_, err = jetlog.Evict(ctx, js.Conn(), s, jetlog.Owner{Number: next})
	}
	if err != nil {
		return fmt.Errorf("bucket: clear slot %d: %w", s, err)
	}
	return nil
}

// clearTries bounds how often keys are listed: until none is left, as a listing
// that is cut short looks like one that has ended.
const clearTries = 5

// clearKeys purges the slot's keys. A purge leaves a mark that a key was there, which
// members tell from one that somebody deleted by mistake.
func clearKeys(ctx context.Context, bucket jetstream.KeyValue, s jetlog.Slot) error {
	for range clearTries {
		n, err := purgeKeys(ctx, bucket, slotKey(s, cluster.MemberPrefix)+"*", slotKey(s, cluster.AssignmentKey), slotKey(s, leaseKey), slotKey(s, nodePrefix)+"*")
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
