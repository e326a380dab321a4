package jetlog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// A version from before there were generations must not join a system that was rebuilt:
// it compares the bucket's subjects with this one, and is refused. This version is not,
// and a bucket that is made again is marked with the record that is put back.
func TestRebuiltIsMarked(t *testing.T) {
	b := newBench(t)
	subjects := func() []string { return b.stream(jetlog.BucketStream).CachedInfo().Config.Subjects }
	before := []string{"$KV." + jetlog.Bucket + ".>"} // what the earlier version wants
	if got := subjects(); !slices.Equal(got, before) {
		t.Fatalf("without a rebuild its subjects are %v", got)
	}
	refused := func(when string) {
		t.Helper()
		got := subjects()
		if slices.Equal(got, before) || len(got) != 2 || !strings.Contains(got[1], "needs-a-tidemark-that-knows-generations") {
			t.Errorf("%s its subjects are %v", when, got)
		}
	}
	record, set := b.records(b.streams), begun(t)
	b.must(record.Write(b.ctx, generation.Set{}, set))
	refused("once a rebuild has begun")
	b.seesEpoch(record, set.Epoch)
	if _, err := b.open(0, 1); err != nil {
		t.Errorf("this version: %v", err)
	}
	b.must(jetlog.NewCheckpoints(b.streams).Report(b.ctx, "a", 9)) // keys are written and read as before
	if at, err := jetlog.NewCheckpoints(b.streams).Lowest(b.ctx, 0); err != nil || at != 9 {
		t.Errorf("%d, %v", at, err)
	}
	b.must(b.js.DeleteKeyValue(b.ctx, jetlog.Bucket))
	b.must(b.streams.Restore(b.ctx))
	if _, err := record.Restore(b.ctx, set); err != nil {
		t.Fatal(err)
	}
	refused("once it is made again")
}
