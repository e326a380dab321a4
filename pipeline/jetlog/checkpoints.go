package jetlog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const nodePrefix = "node."

var nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Checkpoints say how far every node has DELTAS on its own disk, so that the
// log can be purged behind the slowest. Safe for concurrent use.
type Checkpoints struct {
	bucket jetstream.KeyValue
}

// NewCheckpoints uses the bucket of s.
func NewCheckpoints(s *Streams) *Checkpoints { return &Checkpoints{s.bucket} }

// Report says that node needs nothing of DELTAS up to and including sequence,
// the lowest checkpoint of its shards. Nodes report again and again, moving
// or not: silence means that a node is gone (Lowest).
func (c *Checkpoints) Report(ctx context.Context, node string, sequence uint64) error {
	if !nodeName.MatchString(node) {
		return fmt.Errorf("jetlog: report checkpoint: node name %q does not match %v", node, nodeName)
	}
	if _, err := c.bucket.PutString(ctx, nodePrefix+node, strconv.FormatUint(sequence, 10)); err != nil {
		return fmt.Errorf("jetlog: report checkpoint of node %s: %w", node, err)
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
		return 0, fmt.Errorf("jetlog: read checkpoints: %w", err)
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
	keys, err := c.bucket.ListKeysFiltered(ctx, nodePrefix+"*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = keys.Stop() }()
	var reports []report
	for key := range keys.Keys() {
		e, err := c.bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sequence, err := strconv.ParseUint(string(e.Value()), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s holds %q, not a sequence", key, e.Value())
		}
		reports = append(reports, report{sequence, e.Created()})
	}
	return reports, ctx.Err()
}

// Forget takes a node out at once: it will not come back.
func (c *Checkpoints) Forget(ctx context.Context, node string) error {
	if err := c.bucket.Purge(ctx, nodePrefix+node); err != nil {
		return fmt.Errorf("jetlog: forget node %s: %w", node, err)
	}
	return nil
}
