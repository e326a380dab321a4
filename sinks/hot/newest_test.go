package hot

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Whoever has something newer is always among those who may have.
func TestNewestNeverMisses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "shards")
		tables := make([]*Newest, shards)
		for i := range tables {
			tables[i] = NewNewest(rapid.IntRange(1, 200).Draw(t, "cells"))
		}
		position := rapid.OneOf(rapid.Uint64Range(0, 1<<20), rapid.Uint64Range(1<<40, 1<<40+1<<18), rapid.Uint64Range(math.MaxUint64-1<<40, math.MaxUint64))
		newest := map[uint64]uint64{}
		for range rapid.IntRange(0, 60).Draw(t, "posts") {
			id, p := ids().Draw(t, "id"), position.Draw(t, "position")
			table := tables[pipeline.ShardOf(id, shards)]
			table.Raise(id, p)
			newest[id] = max(newest[id], p)
			if rapid.IntRange(0, 9).Draw(t, "grow") == 0 {
				table.Grow(rapid.IntRange(1, 700).Draw(t, "cells"))
			}
		}
		mark := position.Draw(t, "mark")
		var list []Pair
		for id := range newest {
			list = append(list, Pair{A: id, B: position.Draw(t, "since")})
		}
		some := May(tables, list, mark, new(Looks), nil)
		may := map[int]bool{}
		for _, i := range some {
			may[i] = true
		}
		for i, p := range list {
			if newest[p.A] > max(mark, p.B) && !may[i] {
				t.Fatalf("author %d has a post at %d, after %d and %d, and was passed over", p.A, newest[p.A], mark, p.B)
			}
			if alone := tables[pipeline.ShardOf(p.A, shards)].May(p.A, max(mark, p.B)); alone != may[i] {
				t.Fatalf("author %d, after %d and %d: alone %v, among others %v", p.A, mark, p.B, alone, may[i])
			}
		}
	})
}

// With a cell an author, few look as if they had something new.
func TestNewestRarelyErrs(t *testing.T) {
	const authors = 100_000
	n := NewNewest(authors)
	r := rand.New(rand.NewPCG(1, 2))
	var list []Pair
	for id := range uint64(authors) {
		n.Raise(id+1, r.Uint64N(1<<30))
		list = append(list, Pair{A: id + 1})
	}
	for range authors / 50 {
		n.Raise(1+r.Uint64N(authors), 1<<40)
	}
	some := May([]*Newest{n}, list, 1<<35, new(Looks), nil)
	if len(some) < authors/60 || len(some) > authors/20 {
		t.Errorf("%d of %d authors may have something new, %d have", len(some), authors, authors/50)
	}
}
