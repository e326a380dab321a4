package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const nodePrefix = "node."

// Checkpoints say how far every node has DELTAS on its own disk, so that the
// log can be purged behind the slowest. Safe for concurrent use.
type Checkpoints struct {
	bucket  jetstream.KeyValue
	prefix  string // of keys
	logger  *slog.Logger
	strange atomic.Int64 // Unix ns: when the log last had a value that is ignored
}

// NewCheckpoints uses the bucket of s.
func NewCheckpoints(s *jetlog.Streams) *Checkpoints {
	return &Checkpoints{bucket: s.KeyValue(), prefix: slotKey(s.Slot(), nodePrefix), logger: s.Logger()}
}

// nodesMax bounds the reports that are looked at: more than there are nodes on
// one server.
const nodesMax = 1000

// strangeEvery paces what the log has of values that are ignored.
const strangeEvery = time.Minute

// Report says that node needs nothing of DELTAS up to and including sequence,
// the lowest checkpoint of its shards. Nodes report again and again, moving
// or not: silence means that a node is gone (Lowest).
func (c *Checkpoints) Report(ctx context.Context, node string, sequence uint64) error {
	if err := cluster.CheckNode(node); err != nil {
		return fmt.Errorf("bucket: report checkpoint: %w", err)
	}
	if _, err := c.bucket.PutString(ctx, c.prefix+node, strconv.FormatUint(sequence, 10)); err != nil {
		return fmt.Errorf("bucket: report checkpoint of node %s: %w", node, err)
	}
	return nil
}

// Lowest is the lowest sequence among the nodes, leaving out those whose last
// report is older than the newest of all by more than silentFor; 0 when no
// node ever reported. Times are the server's, so no clocks are compared. A
// node that comes back after being left out finds a gap and must be rebuilt.
func (c *Checkpoints) Lowest(ctx context.Context, silentFor time.Duration) (uint64, error) {
	reports, err := c.reports(ctx)
	if err != nil {
		return 0, fmt.Errorf("bucket: read checkpoints: %w", err)
	}
	var newest time.Time
	for _, r := range reports {
		if r.at.After(newest) {
			newest = r.at
		}
	}
	lowest, found := uint64(0), false
	for _, r := range reports {
		if newest.Sub(r.at) <= silentFor && (!found || r.sequence < lowest) {
			lowest, found = r.sequence, true
		}
	}
	return lowest, nil
}

type report struct {
	sequence uint64
	at       time.Time
}

func (c *Checkpoints) reports(ctx context.Context) ([]report, error) {
	keys, err := c.bucket.Watch(ctx, c.prefix+"*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = keys.Stop() }()
	var reports []report
	for looked := 0; ; looked++ {
		var e jetstream.KeyValueEntry
		select {
		case e = <-keys.Updates():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e == nil { // all that there were
			return reports, nil
		}
		if looked == nodesMax {
			return nil, fmt.Errorf("bucket %s holds more than %d keys %s*: delete those that are no node's", jetlog.Bucket, nodesMax, c.prefix)
		}
		sequence, err := strconv.ParseUint(string(e.Value()), 10, 64)
		if err != nil { // it must not keep DELTAS from being purged
			c.tellStrange(e.Key(), e.Value())
			continue
		}
		reports = append(reports, report{sequence, e.Created()})
	}
}

// Forget takes a node out at once: it will not come back.
func (c *Checkpoints) Forget(ctx context.Context, node string) error {
	if err := c.bucket.Purge(ctx, c.prefix+node); err != nil {
		return fmt.Errorf("bucket: forget node %s: %w", node, err)
	}
	return nil
}

// tellStrange logs a value that is no sequence.
func (c *Checkpoints) tellStrange(key string, value []byte) {
	if now, was := time.Now().UnixNano(), c.strange.Load(); was == 0 || now-was > int64(strangeEvery) {
		c.strange.Store(now)
		c.logger.Warn("bucket: the value of a key is ignored: it is no sequence", "bucket", jetlog.Bucket, "key", key, "value", fmt.Sprintf("%.64q", value))
	}
}
