package cluster

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ShardSet is a set of shards. Its text is "0-31,40": ranges, ascending, apart
// from each other. The zero value is empty; sets compare with ==.
type ShardSet [pipeline.ShardsMax / 64]uint64

// shardSetBytesMax bounds the text of a set: every second shard.
const shardSetBytesMax = 5 * pipeline.ShardsMax / 2

// Has says whether s is in the set.
func (set *ShardSet) Has(s pipeline.Shard) bool {
	return int(s) < pipeline.ShardsMax && set[s/64]>>(s%64)&1 != 0
}

// Add puts s, which is below pipeline.ShardsMax, into the set.
func (set *ShardSet) Add(s pipeline.Shard) { set[s/64] |= 1 << (s % 64) }

// Remove takes s, which is below pipeline.ShardsMax, out of the set.
func (set *ShardSet) Remove(s pipeline.Shard) { set[s/64] &^= 1 << (s % 64) }

// Len is how many shards are in the set.
func (set *ShardSet) Len() int {
	n := 0
	for _, word := range set {
		n += bits.OnesCount64(word)
	}
	return n
}

// All walks the set, ascending.
func (set *ShardSet) All() iter.Seq[pipeline.Shard] {
	return func(yield func(pipeline.Shard) bool) {
		for i, word := range set {
			for ; word != 0; word &= word - 1 {
				if !yield(pipeline.Shard(64*i + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// last is the greatest shard in the set, -1 for none.
func (set *ShardSet) last() int {
	for i := len(set) - 1; i >= 0; i-- {
		if set[i] != 0 {
			return 64*i + 63 - bits.LeadingZeros64(set[i])
		}
	}
	return -1
}

func (set ShardSet) String() string {
	var b strings.Builder
	first, last := -1, -2
	end := func() {
		if first < 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if last > first {
			fmt.Fprintf(&b, "-%d", last)
		}
	}
	for s := range set.All() {
		if int(s) != last+1 {
			end()
			first = int(s)
		}
		last = int(s)
	}
	end()
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (set ShardSet) MarshalText() ([]byte, error) { return []byte(set.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It takes what String
// gives, and nothing else.
func (set *ShardSet) UnmarshalText(text []byte) error {
	*set = ShardSet{}
	if len(text) > shardSetBytesMax {
		return fmt.Errorf("a set of shards has %d bytes, %d at most", len(text), shardSetBytesMax)
	}
	if len(text) == 0 {
		return nil
	}
	next := 0
	for part := range strings.SplitSeq(string(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := shardNumber(from)
		last := first
		if err == nil && isRange {
			last, err = shardNumber(to)
		}
		if err != nil {
			return err
		}
		if first < next || last < first || isRange && last == first {
			return fmt.Errorf("shards %.20q are out of order", part)
		}
		for s := first; s <= last; s++ {
			set.Add(pipeline.Shard(s))
		}
		next = last + 2 // one more would be in the same range
	}
	return nil
}

func shardNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n >= pipeline.ShardsMax || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%.20q is no shard, they are numbered from 0 to %d", text, pipeline.ShardsMax-1)
	}
	return int(n), nil
}
