package wire

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// HasAsk is the question of [query.Holder.Has].
type HasAsk struct {
	Names  []byte // a counter's and one column's, see AppendNames
	Member pipeline.Member
	IDs    []uint64
}

// Append appends the question.
func (a *HasAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Names)))
	b = append(b, a.Names...)
	b = appendMember(b, a.Member)
	return packed.AppendIDs(b, a.IDs)
}

// Decode reads it from the body of a part; Names shares its memory.
func (a *HasAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.Names = c.Sized()
	a.Member = c.member()
	a.IDs = c.IDs(a.IDs[:0], "ids", IDsMax)
	if c.Err == nil && a.Member.A == 0 {
		c.Fail("no member")
	}
	return c.end(version, Has.String())
}

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

// hasMax is how many ids a record has.
const hasMax = 1 << 13

// Has appends the answer of [query.Holder.Has], without its end.
func (p *Pieces) Has(h *query.Has) {
	p.Missing(0, h.Missing)
	for from := 0; from < len(h.Has); from += hasMax {
		some := h.Has[from:min(from+hasMax, len(h.Has))]
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

// DecodeHas reads the answer for ids that go to the places items of has. missing are
// indexes of items.
func DecodeHas(pieces [][]byte, items []int32, has []bool) (t Tail, missing []int, err error) {
	seen := 0
	t, err = each(pieces, Has, func(c *cursor, tag byte) bool {
		switch tag {
		case recordMissing:
			missing = c.missing(missing, len(items))
		case recordHas:
			if first := c.Within("first", len(items)); first != seen {
				c.Fail("id %d comes after %d", first, seen)
			}
			n := c.Count("ids", len(items)-seen)
			bitmap := c.Bytes(uint64(n+7) / 8)
			if c.Err != nil {
				return true
			}
			for i, place := range items[seen : seen+n] {
				has[place] = bitmap[i/8]>>(i%8)&1 == 1
			}
			seen += n
		default:
			return false
		}
		return true
	})
	return t, missing, whole(Has, seen, len(items), err)
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
