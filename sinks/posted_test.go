package sinks

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Beside a map of who posted when: nobody is left out who has posted after the mark and
// after they were followed, whatever of the log was not seen; and of those who have not,
// of whom all is known, most are. Nobody posted after they are said to have changed.
func TestPostedTwin(t *testing.T) {
	quiet, asked, grown := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const message = 1 << 16 // positions that a bound tells apart
		var p posted
		if p.knows(0) {
			t.Fatal("it knows before it begins")
		}
		p.begin()
		memory := rapid.SampledFrom([]int{0, 1, 1 << 20}).Draw(t, "memory")
		last := map[uint64]pipeline.Position{}
		at := pipeline.Position(rapid.Uint64Range(0, 10*message).Draw(t, "begins"))
		author := rapid.Uint64Range(1, 40)
		for range rapid.IntRange(1, 8).Draw(t, "windows") {
			w := pipeline.Window{Header: pipeline.Header{From: at, To: at + message*pipeline.Position(rapid.Uint64Range(1, 9).Draw(t, "length"))}, Authors: []uint64{}}
			for range rapid.IntRange(0, 3).Draw(t, "posts") {
				id := author.Draw(t, "author")
				w.Authors = append(w.Authors, id)
				last[id] = at + pipeline.Position(rapid.Uint64Range(1, uint64(w.To-at)).Draw(t, "position"))
			}
			for id := range rapid.Uint64Range(0, 100).Draw(t, "others") {
				w.Authors = append(w.Authors, 1000+id)
			}
			how := rapid.IntRange(0, 9).Draw(t, "how")
			if how == 1 {
				w.Authors = nil // of format 1
			}
			if at = w.To; how == 0 {
				continue // not seen, and what comes next says so
			}
			p.note(&w, memory)
			if how == 2 {
				p.note(&w, memory)
			}
			if !p.knows(at) || p.knows(at+1) {
				t.Fatalf("it knows up to %d, not %d", p.to, at)
			}
		}
		if p.bytes() > 4*hot.NewestMin {
			grown++
		}
		mark := pipeline.Position(rapid.Uint64Range(0, uint64(at)).Draw(t, "mark"))
		var followees []hot.Pair
		for id := uint64(1); id <= 40; id++ {
			followees = append(followees, hot.Pair{A: id, B: rapid.SampledFrom([]uint64{0, uint64(at) / 2, uint64(at)}).Draw(t, "since")})
		}
		var looks hot.Looks
		some, changed, to := p.may(followees, mark, &looks, []int{7}, []pipeline.Position{7})
		if some[0] != 7 || !slices.IsSorted(some[1:]) || len(slices.Compact(slices.Clone(some[1:]))) != len(some)-1 {
			t.Fatalf("indexes %v", some)
		}
		for place, i := range some {
			author, when := uint64(i+1), changed[place]
			if place > 0 && (when == 0 || when > max(to, 1) || when < p.from || last[author] <= to && last[author] > when) {
				t.Fatalf("author %d changed at %d, which is said to be %d at the latest (known: after %d up to %d)", author, last[author], when, p.from, to)
			}
		}
		for i, f := range followees {
			after := max(mark, pipeline.Position(f.B))
			switch is := slices.Contains(some[1:], i); {
			case last[f.A] > after && last[f.A] <= to && !is:
				t.Fatalf("author %d posted at %d, after %d, and is left out (known: after %d up to %d)", f.A, last[f.A], after, p.from, to)
			case last[f.A]+9*message < after && after >= p.from:
				if quiet++; is {
					asked++
				}
			}
		}
	})
	quietLeast, grownLeast := 100, 10
	if testing.Short() { // a fifth is drawn
		quietLeast, grownLeast = 20, 2
	}
	if quiet < quietLeast || asked*2 > quiet || grown < grownLeast {
		t.Errorf("of %d who are known to have posted nothing %d are asked for; %d tables grew", quiet, asked, grown)
	}
}
