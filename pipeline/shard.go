package pipeline

// Shard is the number of one of a node's shards, from 0. Everything about one
// id lives in one shard.
type Shard uint16

// ShardsMax bounds the number of shards a data directory may have.
const ShardsMax = 4096

// ShardOf is the shard of an id among n. It is part of the data format:
// changing it orphans every stored row, so a test holds golden values.
//
// The mixer is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014).
func ShardOf(id uint64, n int) Shard {
	return Shard(Mix(id) % uint64(n))
}

// Mix spreads an id's bits over all 64 (a bijection).
func Mix(id uint64) uint64 {
	id += 0x9e3779b97f4a7c15
	id = (id ^ id>>30) * 0xbf58476d1ce4e5b9
	id = (id ^ id>>27) * 0x94d049bb133111eb
	return id ^ id>>31
}
