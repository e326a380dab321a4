package hot

import "encoding/binary"

// Kind says how a list can be searched, and so how it is kept.
type Kind uint8

const (
	// ByA lists are searched by A: a user's followees, with the position of the follow. B
	// is kept as it is: best a small number.
	ByA Kind = iota
	// ByBoth lists are searched by A and by B, each of which is there once:
	// positions with their posts. B is kept as its distance from the B before.
	ByBoth
)

// A block is a string of pairs whose A ascend, coded as pairs.go says. It is
// what one change of a list writes anew.

// blockMax bounds a block, in bytes. Smaller blocks are written faster, larger
// ones need fewer entries in the spine: 512 bytes are a hundred pairs.
const blockMax = 512

// pairMax is the most bytes that a pair takes in a block.
const pairMax = 2 * binary.MaxVarintLen64

// appendPair codes a pair that follows another one.
func (k Kind) appendPair(dst []byte, before, p Pair) []byte {
	dst = binary.AppendUvarint(dst, p.A-before.A)
	if k == ByA {
		return binary.AppendUvarint(dst, p.B)
	}
	return binary.AppendVarint(dst, int64(p.B-before.B))
}

// next is the pair that b begins with, and how many bytes it takes: 0 when b
// is empty.
func (k Kind) next(b []byte, before Pair) (p Pair, n int) {
	a, v, n := twoUvarints(b)
	if n == 0 {
		return Pair{}, 0
	}
	p = Pair{before.A + a, v}
	if k == ByBoth {
		p.B = before.B + (v>>1 ^ -(v & 1))
	}
	return p, n
}

// pairs appends the pairs of a block.
func (k Kind) pairs(dst []Pair, b []byte) []Pair {
	if k == ByA {
		return DecodeFollowees(dst, b)
	}
	return DecodePosts(dst, b)
}

// code appends the coding of pairs.
func (k Kind) code(dst []byte, list []Pair) []byte {
	if k == ByA {
		return AppendFollowees(dst, list)
	}
	return AppendPosts(dst, list)
}

// find looks for the first pair whose A is not below key: at is where it
// begins, before the pair in front of it; ok says that its A is key.
func (k Kind) find(b []byte, key uint64) (at int, before, found Pair, ok bool) {
	for {
		p, n := k.next(b[at:], before)
		if n == 0 || p.A >= key {
			return at, before, p, n > 0 && p.A == key
		}
		at, before = at+n, p
	}
}

// splice appends b without the pair at a place, when it is to be removed, and
// with p there, when it is to be put. Only the pair behind is coded anew.
func (k Kind) splice(dst, b []byte, at int, before Pair, remove, put bool, p Pair) []byte {
	dst = append(dst, b[:at]...)
	rest, was, is := b[at:], before, before // what the next pair was, and is, coded behind
	if remove {
		old, n := k.next(rest, before)
		rest, was = rest[n:], old
	}
	if put {
		dst, is = k.appendPair(dst, before, p), p
	}
	if next, n := k.next(rest, was); n > 0 && is != was {
		dst, rest = k.appendPair(dst, is, next), rest[n:]
	}
	return append(dst, rest...)
}

// count is the number of pairs in a block: each has two bytes that end a number.
func count(b []byte) (n int) {
	for _, c := range b {
		n += int(^c >> 7)
	}
	return n / 2
}
