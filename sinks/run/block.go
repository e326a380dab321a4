package run

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A block: stretches of entries that have kind and counter in common, then a
// CRC-32C of all of them. Keys are written as differences, so a block is read
// from its start.
const (
	// blockBytes is what a block has at most, unless one entry alone has more.
	// Larger blocks save little space; smaller ones make the index larger.
	blockBytes = 8 << 10
	crcBytes   = 4

	// ValueBytesMax bounds the value of an entry: a row of 2,000 columns fits
	// whatever has happened to each.
	ValueBytesMax = 1 << 16

	// A key has a name or C, not both.
	keyBytesMax   = 1 + 1 + 2 + 2*binary.MaxVarintLen64 + 1 + pipeline.ChannelBytesMax
	entryBytesMax = keyBytesMax + binary.MaxVarintLen32 + ValueBytesMax
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walk goes over the entries of one block's payload.
type walk struct {
	b    []byte
	at   int // in b, where the next entry begins
	left int // entries of this stretch that are still to come

	form  *form
	first bool // the next entry is the first of its stretch
	on    bool // key, value and gone are those of an entry
	key   Key
	value []byte
	gone  bool

	// The entry before: how far the walk may go on without beginning again.
	before     bool // there is one
	beforeHead uint16
	beforeA    uint64
	beforeB    uint64
	beforeC    uint64

	names map[string]string // names read lately: most come often
}

// namesMax bounds the names that are remembered.
const namesMax = 1024

// start begins again with the payload of a block.
func (w *walk) start(payload []byte) {
	*w = walk{b: payload, names: w.names}
}

// next comes to the next entry; false at the end of the block, where key is
// still the last one.
func (w *walk) next() (bool, error) {
	if w.on {
		w.before, w.beforeHead, w.beforeA, w.beforeB, w.beforeC = true, w.key.head(), w.key.A, w.key.B, w.key.C
	}
	if w.left == 0 {
		if w.at == len(w.b) {
			return false, nil
		}
		if err := w.stretch(); err != nil {
			return false, err
		}
	}
	w.left--
	if w.form.bare {
		return w.nextBare()
	}

	step, ok := w.uvarint()
	a := w.key.A + step
	if !ok || a < step || w.first && a == 0 && w.key.Kind != Second {
		return false, w.damaged("A")
	}
	ascends := w.first || step > 0
	w.first = false
	w.key.A = a
	if w.form.pair {
		b, ok := w.uvarint()
		if ascends && w.form.newest {
			b = Newest(b)
		}
		if !ascends {
			rise := b
			b += w.key.B
			ascends, ok = rise > 0, ok && b >= rise
		}
		if !ok || b == 0 && !w.form.set || w.key.Kind == Post && b > uint64(pipeline.PositionMax) {
			return false, w.damaged("B")
		}
		w.key.B = b
		if w.form.triple {
			c, ok := w.uvarint()
			if !ascends {
				rise := c
				c += w.key.C
				ascends, ok = rise > 0, ok && c >= rise
			}
			if !ok || b == 0 && c != 0 {
				return false, w.damaged("C")
			}
			w.key.C = c
		}
	}
	if w.form.named {
		last := w.key.Name
		if !w.name() {
			return false, w.damaged("name")
		}
		ascends = ascends || last < w.key.Name
	}
	if !ascends {
		return false, w.damaged("order")
	}
	length, ok := w.uvarint()
	w.gone = length&1 != 0
	length >>= 1
	if !ok || length > uint64(len(w.b)-w.at) || w.gone && length > 0 || w.key.Kind == Row && length == 0 {
		return false, w.damaged("value")
	}
	if w.form.set && w.key.B == 0 && !w.gone {
		return false, w.damaged("mark")
	}
	w.value = w.b[w.at : w.at+int(length) : w.at+int(length)]
	w.at += int(length)
	w.on = true
	return true, nil
}

// nextBare is next within a stretch of entries without values.
func (w *walk) nextBare() (bool, error) {
	step, same, gone, at := bareHead(w.b, w.at)
	if at < 0 || same && w.first || !same && (step == 0 || w.key.A+step < step) {
		return false, w.damaged("A")
	}
	k, last := &w.key, w.key
	w.at, w.first, w.gone, w.value = at, false, gone, nil
	k.C = 0
	if same {
		k.B += step
	} else {
		k.A += step
		var ok bool
		if k.B, ok = w.uvarint(); !ok {
			return false, w.damaged("B")
		}
	}
	if k.B < step && same || k.B == 0 && !w.form.set {
		return false, w.damaged("B")
	}
	alike := same && step == 0 // but for C
	if w.form.triple {
		c, ok := w.uvarint()
		if alike {
			k.C = last.C
		}
		if k.C += c; !ok || k.C < c || k.B == 0 && k.C != 0 {
			return false, w.damaged("C")
		}
		alike = alike && c == 0
	}
	switch {
	case alike:
		return false, w.damaged("order")
	case w.form.set && k.B == 0 && !gone:
		return false, w.damaged("mark")
	}
	w.on = true
	return true, nil
}

// The first byte of an entry without a value. What follows it is the rest of the number.
const (
	bareGone = 1 << iota
	bareSame // A is that of the entry before, and the number is the rise of B; else it is that of A
	bareBits = 5
	bareMore = 0x80
)

// appendBareHead appends the beginning of an entry without a value.
func appendBareHead(dst []byte, step uint64, same, gone bool) []byte {
	head := byte(step&(1<<bareBits-1)) << 2
	if same {
		head |= bareSame
	}
	if gone {
		head |= bareGone
	}
	if step >>= bareBits; step == 0 {
		return append(dst, head)
	}
	return binary.AppendUvarint(append(dst, head|bareMore), step)
}

// bareHead reads what appendBareHead has appended, and where it ends; -1 where there is
// none.
func bareHead(b []byte, at int) (step uint64, same, gone bool, next int) {
	if uint(at) >= uint(len(b)) {
		return 0, false, false, -1
	}
	head := b[at]
	step, same, gone, next = uint64(head>>2&(1<<bareBits-1)), head&bareSame != 0, head&bareGone != 0, at+1
	if head&bareMore != 0 {
		var more uint64
		if more, next = uvarint(b, next); more == 0 || more >= 1<<(64-bareBits) {
			return 0, false, false, -1
		}
		step |= more << bareBits
	}
	return step, same, gone, next
}

// stretch reads the head of a stretch.
func (w *walk) stretch() error {
	last := w.key.head()
	rest := w.b[w.at:]
	n := 1
	w.key = Key{Kind: Kind(rest[0])}
	w.form = &forms[w.key.Kind&kindMask]
	if w.form.counted && len(rest) > n {
		w.key.Counter = rest[n]
		n++
	}
	if w.key.Kind >= kinds || w.key.head() <= last && w.at > 0 || w.key.Kind == 0 || len(rest) < n+2 {
		return w.damaged("stretch")
	}
	w.left = int(binary.LittleEndian.Uint16(rest[n:]))
	if w.left == 0 {
		return w.damaged("stretch")
	}
	w.first = true
	w.at += n + 2
	return nil
}

func (w *walk) uvarint() (uint64, bool) {
	v, next := uvarint(w.b, w.at)
	if next < 0 {
		return 0, false
	}
	w.at = next
	return v, true
}

// uvarint reads a number at b[at:], and where it ends; -1 where there is none.
// Most have one byte: then nothing is called.
func uvarint(b []byte, at int) (v uint64, next int) {
	if uint(at) < uint(len(b)) && b[at] < 0x80 {
		return uint64(b[at]), at + 1
	}
	return longUvarint(b, at)
}

func longUvarint(b []byte, at int) (uint64, int) {
	if at+1 < len(b) && b[at+1] < 0x80 {
		return uint64(b[at]&0x7f) | uint64(b[at+1])<<7, at + 2
	}
	v, n := binary.Uvarint(b[min(at, len(b)):])
	if n <= 0 {
		return 0, -1
	}
	return v, at + n
}

// name reads a name, without a new string for one that is remembered.
func (w *walk) name() bool {
	length, ok := w.uvarint()
	if !ok || length > uint64(len(w.b)-w.at) || length > pipeline.ChannelBytesMax {
		return false
	}
	name := w.b[w.at : w.at+int(length)]
	w.at += int(length)
	if known, ok := w.names[string(name)]; ok {
		w.key.Name = known
		return true
	}
	if w.names == nil {
		w.names = make(map[string]string)
	}
	if len(w.names) >= namesMax {
		clear(w.names)
	}
	w.key.Name = string(name)
	w.names[w.key.Name] = w.key.Name
	return true
}

// damaged ends the walk.
func (w *walk) damaged(what string) error {
	at := w.at
	w.b, w.at, w.left, w.on = nil, 0, 0, false
	return fmt.Errorf("%w: %s of an entry before byte %d of the block", ErrCorrupt, what, at)
}

// seek comes to the first entry whose key is not before key; false where the
// block has none.
func (w *walk) seek(key *Key) (bool, error) {
	if w.on && w.key.Compare(key) >= 0 {
		if !w.before || w.isAfterLast(key) {
			return true, nil
		}
		w.start(w.b)
	}
	for {
		if ok, err := w.next(); !ok {
			return false, err
		}
		if w.key.Compare(key) >= 0 {
			return true, nil
		}
		if !w.form.named {
			w.skip(key)
		}
	}
}

// skip passes over the rest of the stretch, up to the first entry that is not
// before key: next without what is not needed there. What is damaged is left
// to next.
func (w *walk) skip(key *Key) {
	a, b, c := key.A, key.B, key.C
	if w.key.head() != key.head() {
		a, b, c = math.MaxUint64, math.MaxUint64, math.MaxUint64
	}
	if w.form.bare {
		w.skipBare(a, b, c)
		return
	}
	for ; w.left > 0; w.left-- {
		step, at := uvarint(w.b, w.at)
		if at < 0 || w.key.A+step < step {
			return
		}
		nextA, nextB, nextC := w.key.A+step, uint64(0), uint64(0)
		if w.form.pair {
			if nextB, at = uvarint(w.b, at); at < 0 {
				return
			}
			same := step == 0 && nextB == 0
			switch {
			case step == 0:
				nextB += w.key.B
			case w.form.newest:
				nextB = Newest(nextB)
			}
			if w.form.triple {
				if nextC, at = uvarint(w.b, at); at < 0 {
					return
				}
				if same {
					nextC += w.key.C
				}
			}
		}
		length, at := uvarint(w.b, at)
		if at < 0 || nextA > a || nextA == a && (nextB > b || nextB == b && nextC >= c) || length>>1 > uint64(len(w.b)-at) {
			return
		}
		w.at = at + int(length>>1)
		w.key.A, w.key.B, w.key.C = nextA, nextB, nextC
	}
}

// skipBare is skip of entries without values.
func (w *walk) skipBare(a, b, c uint64) {
	for ; w.left > 0; w.left-- {
		step, same, _, at := bareHead(w.b, w.at)
		if at < 0 {
			return
		}
		nextA, nextB, nextC := w.key.A, w.key.B+step, uint64(0)
		if !same {
			nextA = w.key.A + step
			if nextB, at = uvarint(w.b, at); at < 0 || nextA < step {
				return
			}
		}
		if w.form.triple {
			if nextC, at = uvarint(w.b, at); at < 0 {
				return
			}
			if same && step == 0 {
				nextC += w.key.C
			}
		}
		if nextA > a || nextA == a && (nextB > b || nextB == b && nextC >= c) {
			return
		}
		w.at = at
		w.key.A, w.key.B, w.key.C = nextA, nextB, nextC
	}
}

// isAfterLast says that key is after the entry before the one the walk is at.
func (w *walk) isAfterLast(key *Key) bool {
	switch {
	case w.beforeHead != key.head():
		return w.beforeHead < key.head()
	case w.beforeA != key.A:
		return w.beforeA < key.A
	case w.beforeB != key.B:
		return w.beforeB < key.B
	}
	return w.beforeC < key.C
}

// appendKey appends a key as the index has it.
func appendKey(dst []byte, key *Key) []byte {
	f := &forms[key.Kind]
	dst = append(dst, byte(key.Kind))
	if f.counted {
		dst = append(dst, key.Counter)
	}
	dst = binary.AppendUvarint(dst, key.A)
	if f.pair {
		dst = binary.AppendUvarint(dst, key.B)
	}
	if f.triple {
		dst = binary.AppendUvarint(dst, key.C)
	}
	if f.named {
		dst = binary.AppendUvarint(dst, uint64(len(key.Name)))
		dst = append(dst, key.Name...)
	}
	return dst
}

// block is the block that a Writer fills.
type block struct {
	b     []byte
	count int // in b, where the stretch counts its entries
	n     int // entries of the stretch
	last  Key // Name is in name
	name  []byte
}

// add appends an entry; its key is after the last one's.
func (k *block) add(key *Key, value []byte, gone bool) {
	f := &forms[key.Kind]
	if k.n == 0 || k.last.head() != key.head() {
		k.endStretch()
		k.b = append(k.b, byte(key.Kind))
		if f.counted {
			k.b = append(k.b, key.Counter)
		}
		k.count = len(k.b)
		k.b = append(k.b, 0, 0)
		k.last.A = 0
	}
	if f.bare {
		k.addBare(f, key, gone)
	} else {
		k.addWith(f, key, value, gone)
	}
	k.n++
	k.last.Kind, k.last.Counter, k.last.A, k.last.B, k.last.C = key.Kind, key.Counter, key.A, key.B, key.C
}

// addWith appends an entry with a value.
func (k *block) addWith(f *form, key *Key, value []byte, gone bool) {
	same := k.n > 0 && k.last.A == key.A
	k.b = binary.AppendUvarint(k.b, key.A-k.last.A)
	if f.pair {
		b := key.B
		switch {
		case same:
			b -= k.last.B
		case f.newest:
			b = Newest(b)
		}
		k.b = binary.AppendUvarint(k.b, b)
		same = same && b == 0
	}
	if f.triple {
		c := key.C
		if same {
			c -= k.last.C
		}
		k.b = binary.AppendUvarint(k.b, c)
	}
	if f.named {
		k.b = append(k.b, byte(len(key.Name)))
		k.b = append(k.b, key.Name...)
	}
	length := uint64(len(value)) << 1
	if gone {
		length |= 1
	}
	k.b = binary.AppendUvarint(k.b, length)
	k.b = append(k.b, value...)
}

// addBare appends an entry without one.
func (k *block) addBare(f *form, key *Key, gone bool) {
	same := k.n > 0 && k.last.A == key.A
	if same {
		k.b = appendBareHead(k.b, key.B-k.last.B, true, gone)
	} else {
		k.b = binary.AppendUvarint(appendBareHead(k.b, key.A-k.last.A, false, gone), key.B)
	}
	if f.triple {
		c := key.C
		if same && k.last.B == key.B {
			c -= k.last.C
		}
		k.b = binary.AppendUvarint(k.b, c)
	}
}

func (k *block) endStretch() {
	if k.n > 0 {
		binary.LittleEndian.PutUint16(k.b[k.count:], uint16(k.n))
	}
	k.n = 0
}

// seal ends the block with its checksum.
func (k *block) seal() []byte {
	k.endStretch()
	k.b = binary.LittleEndian.AppendUint32(k.b, crc32.Checksum(k.b, castagnoli))
	return k.b
}

// open is the payload of a block.
func openBlock(b []byte) ([]byte, error) {
	n := len(b) - crcBytes
	if n <= 0 || crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	return b[:n], nil
}
