package run

import (
	"github.com/dgraph-io/badger/v4/y"

	"github.com/tidemark-io/tidemark/pipeline"
)

// filterBits for each key: one in a hundred that are not there passes.
const filterBits = 10

// pointHash is what a filter has of a key. Ids of a shard have bits of
// pipeline.Mix in common, so a kind's own number goes in first.
func pointHash(key *Key) uint32 {
	h := pipeline.Mix(key.A + uint64(key.head())*0xd6e8feb86659fd93)
	if forms[key.Kind&kindMask].pair {
		h = pipeline.Mix(h ^ key.B)
	}
	return uint32(h >> 32)
}

// ownerHash is what a filter has of all entries with one A.
func ownerHash(kind Kind, owner uint64) uint32 {
	return uint32(pipeline.Mix(owner+(uint64(kind)<<8|0xff)*0xd6e8feb86659fd93) >> 32)
}

// filterBuilder collects the hashes of a part.
type filterBuilder struct {
	hashes []uint32
	kind   Kind // of the owner added last
	owner  uint64
}

func (f *filterBuilder) add(key *Key) {
	form := &forms[key.Kind]
	if form.points {
		f.hashes = append(f.hashes, pointHash(key))
	}
	if form.owners && (f.kind != key.Kind || f.owner != key.A) {
		f.kind, f.owner = key.Kind, key.A
		f.hashes = append(f.hashes, ownerHash(key.Kind, key.A))
	}
}

// build is the filter of what was added since the last one; nothing of nothing.
func (f *filterBuilder) build() []byte {
	if len(f.hashes) == 0 {
		return nil
	}
	filter := y.NewFilter(f.hashes, filterBits)
	*f = filterBuilder{hashes: f.hashes[:0]}
	return filter
}
