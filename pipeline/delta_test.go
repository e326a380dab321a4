package pipeline

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// step is one change as a counter's user thinks of it; its apply is the dumb
// twin of Delta, in integers without bounds.
type step struct {
	kind string
	n    int64
}

func (s step) delta() Delta {
	switch s.kind {
	case "add":
		return Add(s.n)
	case "set":
		return Set(s.n)
	}
	return Take(s.n)
}

var (
	bigLimit = big.NewInt(Limit)
	bigFloor = big.NewInt(-Limit)
)

func (s step) apply(x *big.Int) *big.Int {
	n := big.NewInt(s.n)
	switch s.kind {
	case "add":
		x = new(big.Int).Add(x, n)
	case "set":
		x = n
	default:
		x = new(big.Int).Sub(x, n)
		if x.Sign() < 0 {
			x = new(big.Int)
		}
	}
	if x.Cmp(bigLimit) > 0 {
		return bigLimit
	}
	if x.Cmp(bigFloor) < 0 {
		return bigFloor
	}
	return x
}

// value draws small numbers and the ends of the range alike.
func value(low int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(max(low, -5), 5),
		rapid.Int64Range(max(low, -Limit), max(low, -Limit)+5),
		rapid.Int64Range(Limit-5, Limit),
		rapid.Int64Range(max(low, -Limit), Limit),
	)
}

func steps() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		kind := rapid.SampledFrom([]string{"add", "add", "set", "take"}).Draw(t, "kind")
		low := int64(-Limit)
		if kind == "take" {
			low = 0
		}
		return step{kind, value(low).Draw(t, "n")}
	})
}

// "Changes merge to the same result in any grouping."
func TestDeltaLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(steps(), 1, 12).Draw(t, "steps")
		x := value(-Limit).Draw(t, "x")

		want := big.NewInt(x)
		oneByOne := x
		for _, s := range list {
			want = s.apply(want)
			oneByOne = s.delta().Apply(oneByOne)
		}
		if want.Int64() != oneByOne {
			t.Fatalf("one by one: %d, the twin says %s", oneByOne, want)
		}
		merged := group(t, list)
		if got := merged.Apply(x); got != oneByOne {
			t.Fatalf("merged %+v: %d, one by one %d", merged, got, oneByOne)
		}
		if left, right := Identity.Then(merged), merged.Then(Identity); left != merged || right != merged {
			t.Fatalf("identity changes %+v to %+v and %+v", merged, left, right)
		}
		if again := group(t, list); again != merged {
			t.Fatalf("two groupings differ: %+v, %+v", merged, again)
		}
	})
}

// group merges a list along a random tree.
func group(t *rapid.T, list []step) Delta {
	if len(list) == 1 {
		return list[0].delta()
	}
	cut := rapid.IntRange(1, len(list)-1).Draw(t, "cut")
	return group(t, list[:cut]).Then(group(t, list[cut:]))
}

func TestDeltaForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := value(-Limit).Draw(t, "n")
		if got, ok := Add(n).Amount(); !ok || got != n {
			t.Fatalf("Add(%d).Amount() = %d, %v", n, got, ok)
		}
		if got, ok := Set(n).Value(); !ok || got != n {
			t.Fatalf("Set(%d).Value() = %d, %v", n, got, ok)
		}
		// Whatever claims to be a sum is that sum.
		d := group(t, rapid.SliceOfN(steps(), 1, 6).Draw(t, "steps"))
		if n, ok := d.Amount(); ok && d != Add(n) {
			t.Fatalf("%+v claims to be Add(%d) = %+v", d, n, Add(n))
		}
	})
}
