package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// A slot that is cleared has neither windows nor keys; one that is cleared in part is
// cleared by the next time; the other slot, and what is everybody's, stands.
func TestClear(t *testing.T) {
	b := newBench(t)
	second, err := b.open(1, 2)
	b.must(err)
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	keys := []string{"member.a", "assignment", "router", "node.a", "2.member.a", "2.assignment", "2.router", "2.node.a", "drain.a", "degrade", recordKey, "backup.last", "import.x"}
	for clears := range 3 {
		for _, k := range keys {
			_, err := kv.PutString(b.ctx, k, "{}")
			b.must(err)
		}
		switch clears {
		case 1: // it ended after a key
			b.must(kv.Purge(b.ctx, "2.member.a"))
		case 2: // before DELTAS, or after all of it
			b.must(b.js.DeleteStream(b.ctx, second.Slot().Deltas()))
		}
		b.must(bucket.Clear(b.ctx, b.js, 1, generation.Number(2*clears+4)))
		b.must(bucket.Clear(b.ctx, b.js, 1, generation.Number(2*clears+4)))
		for _, k := range keys {
			_, err := kv.Get(b.ctx, k)
			if gone := err != nil; gone != strings.HasPrefix(k, "2.") {
				t.Errorf("key %s: %v", k, err)
			}
		}
		if n, err := jetlog.SlotOf(b.ctx, b.js, 1); err != nil || n.Number != 0 {
			t.Errorf("slot 1 is generation %d's: %v", n.Number, err)
		}
		if n, err := jetlog.SlotOf(b.ctx, b.js, 0); err != nil || n.Number != 1 {
			t.Errorf("slot 0 is generation %d's: %v", n.Number, err)
		}
		_, err = b.open(1, generation.Number(2*clears+4))
		b.must(err)
		// A leader that does not know of it yet clears for the same number.
		b.other("cleared", bucket.Clear(b.ctx, b.js, 1, generation.Number(2*clears+4)), fmt.Sprint(2*clears+4), fmt.Sprint(2*clears+4))
	}
	b.must(b.js.DeleteStream(b.ctx, jetlog.BucketStream))
	b.must(bucket.Clear(b.ctx, b.js, 1, 20)) // without a bucket
}

// "Two generations that use one slot after each other never take each other for members",
// though they count alike.
func TestFingerprintsOfGenerations(t *testing.T) {
	seen := map[cluster.Fingerprint]bool{}
	for n := range generation.Number(1000) {
		for _, by := range []string{"a", "b"} {
			seen[cluster.FingerprintOf(jetlog.Owner{Number: n, CountsBy: by})] = true
		}
	}
	if len(seen) != 2000 || seen[0] {
		t.Errorf("%d generations of 2000 differ", len(seen))
	}
}
