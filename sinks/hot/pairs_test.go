package hot

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pairWords are small, huge and everything between, so that varints of all
// lengths meet.
func pairWords() *rapid.Generator[uint64] {
	return rapid.OneOf(
		rapid.SampledFrom([]uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<56 - 1, 1 << 56, 1<<63 - 1, 1 << 63, math.MaxUint64}),
		rapid.Uint64Range(0, 300),
		rapid.Uint64(),
	)
}

func ascending() *rapid.Generator[[]Pair] {
	return rapid.Custom(func(t *rapid.T) []Pair {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pair {
			return Pair{pairWords().Draw(t, "a"), pairWords().Draw(t, "b")}
		}), 0, 50).Draw(t, "pairs")
		slices.SortFunc(list, func(p, q Pair) int {
			switch {
			case p.A < q.A:
				return -1
			case p.A > q.A:
				return 1
			}
			return 0
		})
		return slices.CompactFunc(list, func(p, q Pair) bool { return p.A == q.A })
	})
}

// codings are the two of them, for tests that hold for both.
var codings = []struct {
	name   string
	append func([]byte, []Pair) []byte
	decode func([]Pair, []byte) []Pair
}{
	{"followees", AppendFollowees, DecodeFollowees},
	{"posts", AppendPosts, DecodePosts},
}

// A list survives the round trip, behind what dst held; cut off anywhere, what
// is whole is returned.
func TestPairsRoundTrip(t *testing.T) {
	for _, c := range codings {
		t.Run(c.name, rapid.MakeCheck(func(t *rapid.T) {
			before, list := ascending().Draw(t, "before"), ascending().Draw(t, "list")
			b := c.append([]byte("head"), list)
			if string(b[:4]) != "head" {
				t.Fatalf("the head became %q", b[:4])
			}
			b = b[4:]
			got := c.decode(slices.Clone(before), b)
			if want := append(slices.Clone(before), list...); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
			got = c.decode(nil, b[:cut:cut])
			if len(got) > len(list) || !slices.Equal(got, list[:len(got)]) {
				t.Fatalf("cut at %d of %d: %v, want the beginning of %v", cut, len(b), got, list)
			}
			if len(got) < len(list) && len(c.append(nil, list[:len(got)+1])) <= cut {
				t.Fatalf("cut at %d: only %d pairs", cut, len(got))
			}
		}))
	}
}

// In a pair of position 0 the position takes one byte.
func TestFolloweesShort(t *testing.T) {
	if n := len(AppendFollowees(nil, []Pair{{1, 0}, {100, 0}, {200, 1 << 40}})); n != 2+2+1+6 {
		t.Fatalf("%d bytes", n)
	}
}

// Garbage never panics, and what was made of it survives the round trip.
func FuzzPairs(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0x80})
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"))
	f.Add(AppendFollowees(nil, []Pair{{1, 0}, {70_000, 1 << 50}, {1 << 60, 0}}))
	f.Add(AppendPosts(nil, []Pair{{1 << 40, 9}, {1<<40 + 5, 3}, {1 << 41, 1 << 63}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range codings {
			list := c.decode(nil, b)
			if 2*len(list) > len(b) {
				t.Fatalf("%s: %d pairs of %d bytes", c.name, len(list), len(b))
			}
			if got := c.decode(nil, c.append(nil, list)); !slices.Equal(got, list) {
				t.Fatalf("%s: %v, want %v", c.name, got, list)
			}
		}
	})
}
