package main

import (
	"math"
	"testing"
)

// A model that is fitted to what a shape says is that shape.
func TestFitFindsTheShape(t *testing.T) {
	for _, want := range []shape{{20, 0.2, 9, 0.3}, {0, 0.05, 12, 0.4}, {0, 7, 30, 0}} {
		y := seen{
			want.at(fewItems, fewHolders), want.at(manyItems, fewHolders), want.at(fewItems, manyHolders), want.at(manyItems, manyHolders),
		}
		got := y.shape(want.fixed > 0)
		for i, d := range []float64{got.fixed - want.fixed, got.item - want.item, got.part - want.part, got.apart - want.apart} {
			if math.IsNaN(d) || math.Abs(d) > 1e-6 {
				t.Errorf("%v of %v: %v", i, want, got)
			}
		}
	}
}

// A request of few items does not ask every holder.
func TestParts(t *testing.T) {
	for _, c := range []struct{ items, holders, want float64 }{{1, 1, 1}, {500, 1, 1}, {1, 8, 1}, {20, 8, 7.446}, {500, 4, 4}} {
		if got := parts(c.items, c.holders); math.Abs(got-c.want) > 0.001 {
			t.Errorf("%v items of %v holders are %v parts, want %v", c.items, c.holders, got, c.want)
		}
	}
}
