package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// ErrFull: the bucket takes nothing more, so members cannot say that they are
// there, and no process can join.
var ErrFull = errors.New("the bucket " + jetlog.Bucket + " is full: delete the keys that are no node's (nats kv ls " + jetlog.Bucket + "), and deny others $KV." + jetlog.Bucket + ".>")

// ownNames begin all keys of nodes and commands, up to the first dot.
var ownNames = []string{
	"2", "archive", "assignment", "backup", "degrade", "drain", "events", "generations", "import", "imported", "member", "node", "reclaimed", "resend", "router",
}

const (
	// sweepWithin bounds one sweep.
	sweepWithin = 10 * time.Second
	// sweepMax bounds the names that one sweep takes away; the next goes on.
	sweepMax = 1000
)

// sweep takes away the keys of a full bucket that begin with none of ownNames, so
// that they do not keep out those that do.
func sweep(ctx context.Context, s *jetlog.Streams) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepWithin) // a beat has a second
	defer cancel()
	stream, err := s.JetStream().Stream(ctx, jetlog.BucketStream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(keyPrefix+">"))
	if err != nil {
		return err
	}
	swept := map[string]struct{}{}
	for subject := range info.State.Subjects {
		if len(swept) == sweepMax {
			break
		}
		key := strings.TrimPrefix(subject, keyPrefix)
		name, more, deep := strings.Cut(key, ".")
		filter := keyPrefix + name
		member, isMember := strings.CutPrefix(strings.TrimPrefix(key, slotPrefix(jetlog.Slot(1))), cluster.MemberPrefix)
		switch {
		case isMember && cluster.CheckNode(member) != nil: // no node can have it, and no roster lists it
			filter = subject
		case slices.Contains(ownNames, name):
			continue
		case deep && more != "":
			filter += ".>"
		}
		if _, done := swept[filter]; done {
			continue
		}
		swept[filter] = struct{}{}
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(filter)); err != nil {
			return err
		}
	}
	if len(swept) > 0 {
		s.Logger().Warn("bucket: the bucket "+jetlog.Bucket+" was full, and held keys that no node wrote; they are deleted",
			"names", len(swept), "remedy", "deny others $KV."+jetlog.Bucket+".> (docs/security.md, Who may do what)")
	}
	return nil
}

// makeRoom sweeps a full bucket, so that the caller can write again. It does not say whether
// it found anything: another process may have swept the bucket a moment before.
func makeRoom(ctx context.Context, s *jetlog.Streams) {
	if err := sweep(ctx, s); err != nil {
		s.Logger().Warn("bucket: keys that no node wrote cannot be deleted from the full bucket "+jetlog.Bucket, "error", err)
	}
}

// bucketFull says what is wrong when the bucket refuses a key for its size.
func bucketFull(err error) error {
	if jetlog.Full(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
