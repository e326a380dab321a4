package shard_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// "No event's cost grows with what is there": one event more, and one
// that takes it back, of a user, an author, who has so many of each kind already. Cursors
// have their bound at 65,536.
func BenchmarkEvent(b *testing.B) {
	const user, batch = 7, 256
	kinds := map[string]struct {
		most int
		ops  func(i uint64) []pipeline.Operation
	}{
		"followee": {1_000_000, func(i uint64) []pipeline.Operation {
			return []pipeline.Operation{{Op: pipeline.OpFollow, ID: user, Other: pipeline.Mix(i) | 1}}
		}},
		"follower": {1_000_000, func(i uint64) []pipeline.Operation {
			return []pipeline.Operation{{Op: pipeline.OpFollowed, ID: user, Other: pipeline.Mix(i) | 1}}
		}},
		"post": {1_000_000, func(i uint64) []pipeline.Operation {
			return []pipeline.Operation{{Op: pipeline.OpPost, ID: user, Other: pipeline.Mix(i) | 1}}
		}},
		"cursor": {10_000, func(i uint64) []pipeline.Operation {
			return []pipeline.Operation{{Op: pipeline.OpRead, ID: user, Channels: []string{fmt.Sprint("channel", i%60_000)}}}
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		kind := kinds[name]
		for _, n := range []int{10, 1000, 10_000, 100_000, 1_000_000} {
			if n > kind.most {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := shard.New(0, schemaOf(b), shard.Limits{PostsMax: 1000, Retention: 1 << 40, Inactive: 1 << 40}, shard.NewClock(1<<40), shard.State{})
				i := uint64(0)
				add := func(n int) {
					for ; n > 0; n -= batch {
						var ops []pipeline.Operation
						for range min(n, batch) {
							i++
							ops = append(ops, kind.ops(i)...)
						}
						if err := s.Apply(uint64(s.State().Applied), window(s, ops...), nil); err != nil {
							b.Fatal(err)
						}
						s.HandOver()
						s.Settle(true, func() {})
					}
				}
				add(n)
				b.ResetTimer()
				add(b.N)
			})
		}
	}
}
