package cluster

import (
	"hash/fnv"
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
)

// distance of a shard from a node: the lesser distance/weight is preferred.
//
// For a hash u that is even in (0, 1), -log u is distributed exponentially, and
// of several such numbers, each divided by a weight, the least is a node's with
// a probability proportional to its weight. The result is -log2 u with
// logBits binary digits after the point, in whole numbers: floating point may
// differ from one processor to another, and an assignment must not.
//
// It decides where every shard goes: a test holds golden values.
func distance(node uint64, s pipeline.Shard) uint64 {
	h := pipeline.Mix(node ^ pipeline.Mix(uint64(s)))
	return 64<<logBits - log2(h|1)
}

const logBits = 32

// log2 of x, which is not 0, with logBits binary digits after the point.
func log2(x uint64) uint64 {
	zeros := bits.LeadingZeros64(x)
	result := uint64(63-zeros) << logBits
	// m stands for m/2^63, from 1 up to 2. Squaring doubles the logarithm, whose
	// next digit is 1 when that goes over 2.
	m := x << zeros
	for bit := uint64(1) << (logBits - 1); bit != 0; bit >>= 1 {
		high, low := bits.Mul64(m, m)
		if high>>63 != 0 {
			result |= bit
			m = high
		} else {
			m = high<<1 | low>>63
		}
	}
	return result
}

// nameHash is a node's share in distance.
func nameHash(node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node))
	return pipeline.Mix(h.Sum64())
}
