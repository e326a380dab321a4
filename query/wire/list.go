package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Ids are packed: all of a list in as many bytes as the largest takes, or where
// they ascend, the differences. That is no larger than uvarints for ids that are
// alike, and ten times as fast to read: no byte decides where the next begins.
//
//	n │ form │ n × width bytes                  form: width, 1 to 8
//	n │ form │ first id │ n-1 × width bytes      form: width + 16: differences, none 0
const ascending = 16

// appendIDs appends a list; no id is 0.
func appendIDs(b []byte, ids []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	if len(ids) == 0 {
		return b
	}
	all, steps, ascend := ids[0], uint64(0), true
	for i := 1; i < len(ids); i++ {
		all |= ids[i]
		steps |= ids[i] - ids[i-1]
		ascend = ascend && ids[i] > ids[i-1]
	}
	width, step := bytesOf(all), bytesOf(steps)
	if !ascend || step >= width {
		b = append(b, byte(width))
		b, to := grow(b, len(ids)*width)
		for i, id := range ids {
			binary.LittleEndian.PutUint64(to[i*width:], id)
		}
		return b
	}
	b = append(b, byte(step)+ascending)
	b = binary.AppendUvarint(b, ids[0])
	b, to := grow(b, (len(ids)-1)*step)
	for i := 1; i < len(ids); i++ {
		binary.LittleEndian.PutUint64(to[(i-1)*step:], ids[i]-ids[i-1])
	}
	return b
}

// bytesOf is how many bytes a number takes, 1 at least.
func bytesOf(u uint64) int { return max((bits.Len64(u)+7)/8, 1) }

// grow lengthens b by n bytes; 8 more may be written behind to.
func grow(b []byte, n int) (longer, to []byte) {
	b = slices.Grow(b, n+8)
	return b[:len(b)+n], b[len(b) : len(b)+n+8]
}

// ids reads a list of so many at most.
func (c *cursor) ids(to []uint64, what string, most int) []uint64 {
	n := c.count(what, most)
	if n == 0 {
		return to
	}
	form := c.byte()
	width := int(form &^ ascending)
	id, first := uint64(0), 0
	if form&ascending != 0 {
		id, first = c.uvarint(), 1
	}
	if c.err == nil && (width < 1 || width > 8 || form&ascending != 0 && id == 0) {
		c.fail("%s: %d is no form of a list", what, form)
	}
	from := c.bytes(uint64(n-first) * uint64(width))
	if c.err != nil {
		return to
	}
	to = slices.Grow(to, n)
	if first == 1 {
		to = append(to, id)
	}
	mask := ^uint64(0) >> (64 - 8*width)
	for i := range n - first {
		v := load(from[i*width:]) & mask
		if first == 0 {
			id = v
		} else if id += v; id < v { // past 2^64
			v = 0
		}
		if v == 0 {
			c.fail("%s[%d] is no id", what, i+first)
			return to
		}
		to = append(to, id)
	}
	return to
}

// load reads 8 bytes, or what there is.
func load(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// cursor reads bytes one after the other. After an error it reads zeros.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.b = nil
}

func (c *cursor) uvarint() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most are
		v := uint64(c.b[0])
		c.b = c.b[1:]
		return v
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail("it ends within a number")
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) zigzag() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func appendZigzag(b []byte, v int64) []byte {
	return binary.AppendUvarint(b, uint64(v<<1)^uint64(v>>63))
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail("it ends too early")
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) bool() bool { return c.byte() == 1 }

func (c *cursor) uint32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail("it ends %d bytes too early", n-uint64(len(c.b)))
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// sized reads bytes behind their number.
func (c *cursor) sized() []byte { return c.bytes(c.uvarint()) }

// count reads a number that may be most at most.
func (c *cursor) count(what string, most int) int {
	n := c.uvarint()
	if n > uint64(most) {
		c.fail("%s: %d is more than %d", what, n, most)
		return 0
	}
	return int(n)
}

// within reads an index below n.
func (c *cursor) within(what string, n int) int {
	i := c.uvarint()
	if i >= uint64(n) {
		c.fail("%s: there is no %d among %d", what, i, n)
		return 0
	}
	return int(i)
}

func appendSized(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// end ends a body: nothing is left over, unless the sender is newer.
func (c *cursor) end(version byte, what string) error {
	if c.err == nil && len(c.b) > 0 && !newer(version) {
		c.fail("%d bytes are left over", len(c.b))
	}
	if c.err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, what, c.err)
	}
	return nil
}
