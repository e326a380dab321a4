package shard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Each change of a cursor keeps the channel's name until it is on disk. That is
// memory of the budget, whether it is dirty or in flight (I8).
func TestNamesOfChangesAreCounted(t *testing.T) {
	const users, long = 1000, 60
	taken := func(letters int) (dirty, inFlight, again, after int) {
		s := shard.New(0, schemaOf(t), shard.Limits{PostsMax: 10, Retention: 100, Inactive: 100}, shard.NewClock(100), shard.State{})
		var firsts, reads []pipeline.Operation
		for id := uint64(1); id <= users; id++ {
			firsts = append(firsts, pipeline.Operation{Op: pipeline.OpRead, ID: id, Looked: pipeline.LookedFeed})
			reads = append(reads, pipeline.Operation{Op: pipeline.OpRead, ID: id, Channels: []string{fmt.Sprint(strings.Repeat("c", letters), id%2)}})
		}
		for _, ops := range [][]pipeline.Operation{firsts, reads} {
			if err := s.Apply(s.State().Sequence+1, window(s, ops...), nil); err != nil {
				t.Fatal(err)
			}
		}
		dirty = s.Bytes()
		s.HandOver()
		inFlight = s.Bytes()
		s.Settle(false, nil)
		again = s.Bytes()
		s.HandOver()
		s.Settle(true, func() {})
		return dirty, inFlight, again, s.Bytes()
	}
	dirty, inFlight, again, after := taken(1)
	longDirty, longInFlight, longAgain, longAfter := taken(long)
	if more := min(longDirty-dirty, longInFlight-inFlight, longAgain-again); more < users*(long-1) {
		t.Errorf("names of %d letters in %d changes take %d, %d and %d bytes more than those of one: dirty, in flight, and dirty again",
			long, users, longDirty-dirty, longInFlight-inFlight, longAgain-again)
	}
	if more := longAfter - after; more > 2*long {
		t.Errorf("%d bytes more after the commit", more)
	}
}
