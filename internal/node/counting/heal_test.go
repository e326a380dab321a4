package counting

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// A shard that was taken again once, and came, does not count as failed when it moves
// later: it is like any other.
func TestHealedShardIsLikeAnyOther(t *testing.T) {
	const s = pipeline.Shard(3)
	h := newHoldings()
	failed := func() (set cluster.ShardSet) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.failedLocked(&set)
		return set
	}
	h.retake(s)
	h.moves[s] = &moving{failed: time.Now()}
	if set := failed(); !set.Has(s) {
		t.Error("a shard that has stopped and cannot be taken again does not count as failed")
	}
	h.heals[s].done()
	h.moves[s] = &moving{failed: time.Now()}
	if set := failed(); set.Has(s) {
		t.Error("a shard that was held counts as failed when its next move fails once")
	}
	h.moves[s].fault = errors.New("it cannot be derived")
	if set := failed(); !set.Has(s) {
		t.Error("a shard that cannot be derived does not count as failed")
	}
}
