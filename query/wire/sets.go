package wire

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// MembersAsk is the question of [query.Holder.Members].
type MembersAsk struct {
	Names []byte // a counter's and one column's
	ID    uint64
	After pipeline.Member
	Limit int
}

// Append appends the question.
func (a *MembersAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Names)))
	b = append(b, a.Names...)
	b = binary.AppendUvarint(b, a.ID)
	b = appendMember(b, a.After)
	return binary.AppendUvarint(b, uint64(a.Limit))
}

// Decode reads it from the body of a part; Names shares its memory.
func (a *MembersAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.Names = c.Sized()
	a.ID, a.After, a.Limit = c.Uvarint(), c.member(), c.Count("limit", LimitMax)
	if c.Err == nil && (a.ID == 0 || a.Limit == 0) {
		c.Fail("id %d, limit %d", a.ID, a.Limit)
	}
	return c.end(version, Members.String())
}

func appendMember(b []byte, m pipeline.Member) []byte {
	b = binary.AppendUvarint(b, m.A)
	return binary.AppendUvarint(b, m.B)
}

func (c *cursor) member() pipeline.Member { return pipeline.Member{A: c.Uvarint(), B: c.Uvarint()} }

// hasMax is how many bits a record has.
const hasMax = 1 << 13

// has appends which members are there, the same number of each row.
func (p *Pieces) has(all []bool) {
	for from := 0; from < len(all); from += hasMax {
		some := all[from:min(from+hasMax, len(all))]
		p.room(recordHas, 2*varint+hasMax/8)
		p.uvarint(uint64(from))
		p.uvarint(uint64(len(some)))
		bitmap := len(p.Buf)
		p.Buf = append(p.Buf, make([]byte, (len(some)+7)/8)...)
		for i, has := range some {
			if has {
				p.Buf[bitmap+i/8] |= 1 << (i % 8)
			}
		}
	}
}

// has reads one record, behind so many bits, and returns how many were in it.
func (c *cursor) has(seen int, items []int32, rows *query.Rows) int {
	sets := len(rows.Sets)
	if first := c.Within("first", len(items)*sets); first != seen {
		c.Fail("bit %d comes after %d", first, seen)
	}
	n := c.Count("bits", len(items)*sets-seen)
	bitmap := c.Bytes(uint64(n+7) / 8)
	if c.Err != nil {
		return 0
	}
	for i := range n {
		item, j := (seen+i)/sets, (seen+i)%sets
		rows.Has[int(items[item])*sets+j] = bitmap[i/8]>>(i%8)&1 == 1
	}
	return n
}

// MemberPage appends the answer of [query.Holder.Members], without its end.
func (p *Pieces) MemberPage(page *query.MemberPage) {
	firsts := make([]uint64, 0, min(len(page.Members), chunkMax))
	for left := page.Members; len(left) > 0; {
		some := left[:min(len(left), chunkMax)]
		left = left[len(some):]
		firsts = firsts[:0]
		wide := false
		for _, m := range some {
			firsts = append(firsts, m.A)
			wide = wide || m.B != 0
		}
		p.room(recordMembers, len(some)*(8+varint)+varint+2)
		p.Buf = packed.AppendIDs(p.Buf, firsts)
		if p.Buf = packed.AppendBool(p.Buf, wide); !wide {
			continue
		}
		for _, m := range some {
			p.uvarint(m.B)
		}
	}
	p.page(page.More, false, 0)
}

// DecodeMemberPage reads the answer to a page of limit members at most.
func DecodeMemberPage(pieces [][]byte, limit int, out *query.MemberPage) error {
	out.Reset()
	pages := 0
	var firsts []uint64
	t, err := each(pieces, Members, func(c *cursor, tag byte) bool {
		switch tag {
		case recordMembers:
			firsts = c.IDs(firsts[:0], "members", limit-len(out.Members))
			wide := c.Bool()
			for _, a := range firsts {
				m := pipeline.Member{A: a}
				if wide {
					m.B = c.Uvarint()
				}
				if out.Members = append(out.Members, m); c.Err != nil {
					break
				}
			}
		case recordPage:
			out.More = c.Bool()
			c.Bool()
			c.Uvarint()
			pages++
		default:
			return false
		}
		return true
	})
	out.AsOf, out.Cost = t.AsOf, t.Cost
	return whole(Members, pages, 1, err)
}

// Each record fits where the largest does.
const (
	_ = uint(RecordMax - (2*varint + hasMax/8))
	_ = uint(RecordMax - (chunkMax*(8+varint) + varint + 2))
)
