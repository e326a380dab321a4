package run

import (
	"github.com/dgraph-io/badger/v4/y"

	"github.com/tidemark-io/tidemark/pipeline"
)

// filterBits for each key: one in a hundred that are not there passes.
const filterBits = 10

// mix is where hashes begin. Ids of a shard have bits of pipeline.Mix in common, so
// a kind's own number goes in first.
func mix(head uint16, a uint64) uint64 { return pipeline.Mix(a + uint64(head)*0xd6e8feb86659fd93) }

// pointHash is what a filter has of a key.
func pointHash(key *Key) uint32 {
	h := mix(key.head(), key.A)
	f := &forms[key.Kind&kindMask]
	if f.pair {
		h = pipeline.Mix(h ^ key.B)
	}
	if f.triple {
		h = pipeline.Mix(h ^ key.C)
	}
	return uint32(h >> 32)
}

// ownerHash is what a filter has of all entries with one A, in a set those of the
// set.
func ownerHash(key *Key) uint32 {
	head := key.head()
	if !forms[key.Kind&kindMask].counted {
		head |= 0xff
	}
	return uint32(mix(head, key.A) >> 32)
}

// filterBuilder collects the hashes of a part.
type filterBuilder struct {
	hashes []uint32
	head   uint16 // of the owner added last
	owner  uint64
}

func (f *filterBuilder) add(key *Key) {
	form := &forms[key.Kind]
	if form.points {
		f.hashes = append(f.hashes, pointHash(key))
	}
	if form.owners && (f.head != key.head() || f.owner != key.A) {
		f.head, f.owner = key.head(), key.A
		f.hashes = append(f.hashes, ownerHash(key))
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
