package hot

import "unsafe"

// Blocks is a list in blocks: to add to it moves nothing. The zero value is empty.
type Blocks[T any] struct {
	blocks [][]T
	n      int
}

const blockLen = 128

// Len is how many there are.
func (b *Blocks[T]) Len() int { return b.n }

// Bytes is the memory taken.
func (b *Blocks[T]) Bytes() int {
	return len(b.blocks) * (blockLen*int(unsafe.Sizeof(*new(T))) + int(unsafe.Sizeof(b.blocks[0])))
}

// At is the one at a place.
func (b *Blocks[T]) At(i int) *T { return &b.blocks[i/blockLen][i%blockLen] }

// Add adds one behind all others.
func (b *Blocks[T]) Add(v T) {
	if b.n == blockLen*len(b.blocks) {
		b.blocks = append(b.blocks, make([]T, blockLen))
	}
	*b.At(b.n) = v
	b.n++
}

// Clear takes all out, and keeps one block.
func (b *Blocks[T]) Clear() {
	if len(b.blocks) > 1 {
		b.blocks = [][]T{b.blocks[0]}
	}
	b.n = 0
}

// All visits all, each with its place.
func (b *Blocks[T]) All(visit func(i int, v *T) bool) {
	for i, v := range b.inBlocks {
		for j := range v {
			if !visit(i+j, &v[j]) {
				return
			}
		}
	}
}

// inBlocks visits all, block by block, each with the place of its first one.
func (b *Blocks[T]) inBlocks(visit func(i int, some []T) bool) {
	for i, some := range b.blocks {
		if at := i * blockLen; at >= b.n || !visit(at, some[:min(b.n-at, blockLen)]) {
			return
		}
	}
}
