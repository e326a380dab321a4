package packed

import (
	"encoding/binary"
	"fmt"
)

// Cursor reads bytes one after the other. After an error it reads zeros, and
// there are no bytes left.
type Cursor struct {
	B   []byte // what is left
	Err error  // the first one
}

// Fail notes what is wrong, unless something already is.
func (c *Cursor) Fail(format string, args ...any) {
	if c.Err == nil {
		c.Err = fmt.Errorf(format, args...)
	}
	c.B = nil
}

// Uvarint reads an unsigned LEB128.
func (c *Cursor) Uvarint() uint64 {
	if len(c.B) > 0 && c.B[0] < 0x80 { // most are
		v := uint64(c.B[0])
		c.B = c.B[1:]
		return v
	}
	v, n := binary.Uvarint(c.B)
	if n <= 0 {
		c.Fail("it ends within a number")
		return 0
	}
	c.B = c.B[n:]
	return v
}

// Zigzag reads what AppendZigzag wrote.
func (c *Cursor) Zigzag() int64 {
	v := c.Uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// AppendZigzag appends a number that may be negative.
func AppendZigzag(b []byte, v int64) []byte {
	return binary.AppendUvarint(b, uint64(v<<1)^uint64(v>>63))
}

// Byte reads one byte.
func (c *Cursor) Byte() byte {
	if len(c.B) == 0 {
		c.Fail("it ends too early")
		return 0
	}
	v := c.B[0]
	c.B = c.B[1:]
	return v
}

// Bool reads a byte that is 1 for true.
func (c *Cursor) Bool() bool { return c.Byte() == 1 }

// AppendBool appends one byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Uint32 reads 4 bytes, little-endian.
func (c *Cursor) Uint32() uint32 {
	if b := c.Bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Bytes reads n bytes; they share the memory of what is read.
func (c *Cursor) Bytes(n uint64) []byte {
	if n > uint64(len(c.B)) {
		c.Fail("it ends %d bytes too early", n-uint64(len(c.B)))
		return nil
	}
	v := c.B[:n:n]
	c.B = c.B[n:]
	return v
}

// Sized reads bytes behind their number.
func (c *Cursor) Sized() []byte { return c.Bytes(c.Uvarint()) }

// AppendText appends a string behind the number of its bytes.
func AppendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Count reads a number that may be most at most.
func (c *Cursor) Count(what string, most int) int {
	n := c.Uvarint()
	if n > uint64(most) {
		c.Fail("%s: %d is more than %d", what, n, most)
		return 0
	}
	return int(n)
}

// Within reads an index below n.
func (c *Cursor) Within(what string, n int) int {
	i := c.Uvarint()
	if i >= uint64(n) {
		c.Fail("%s: there is no %d among %d", what, i, n)
		return 0
	}
	return int(i)
}

// End is the first error; bytes that are left over are one.
func (c *Cursor) End() error {
	if c.Err == nil && len(c.B) > 0 {
		c.Fail("%d bytes are left over", len(c.B))
	}
	return c.Err
}
