package pipeline

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Sample is a random part of all ids, one in 2^Bits: those whose hash ends with
// Residue. All residues of a number of bits are all ids.
type Sample struct {
	Bits    int
	Residue uint64
}

// Has says whether an id is in the sample. That is independent of its shard.
func (s Sample) Has(id uint64) bool {
	return s.Bits == 0 || Mix(^Mix(id))&(1<<s.Bits-1) == s.Residue
}

// ParseShare reads a part of all ids, "1/64" or "1/1": 1 over a power of two up
// to 2^20.
func ParseShare(text string) (bitCount int, err error) {
	one, of, found := strings.Cut(text, "/")
	n, err := strconv.ParseUint(of, 10, 32)
	if !found || one != "1" || err != nil || n == 0 || n&(n-1) != 0 || n > 1<<20 {
		return 0, fmt.Errorf("%q is not a share: 1/N, N a power of two up to %d, like 1/64", text, 1<<20)
	}
	return bits.TrailingZeros64(n), nil
}
