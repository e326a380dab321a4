package wire

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// InboxAsk is the question of [query.Holder.Inbox].
type InboxAsk struct {
	Names  []byte // a counter's and those of some of its columns
	User   uint64
	Before pipeline.Position
	Limit  int
	Unread bool
}

// Append appends the question.
func (a *InboxAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Names)))
	b = append(b, a.Names...)
	b = binary.AppendUvarint(b, a.User)
	b = binary.AppendUvarint(b, uint64(a.Before))
	b = binary.AppendUvarint(b, uint64(a.Limit))
	return packed.AppendBool(b, a.Unread)
}

// Decode reads it from the body of a part; Names shares its memory.
func (a *InboxAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.Names = c.Sized()
	a.User, a.Before, a.Limit, a.Unread = c.Uvarint(), pipeline.Position(c.Uvarint()), c.Count("limit", LimitMax), c.Bool()
	if c.Err == nil && (a.User == 0 || a.Limit == 0) {
		c.Fail("user %d, limit %d", a.User, a.Limit)
	}
	return c.end(version, Inbox.String())
}

// itemsChunk is how many items are in a record.
const itemsChunk = chunkMax / 4

// InboxPage appends the answer of [query.Holder.Inbox], without its end. Columns go by their
// place in columns, which are those that were asked.
func (p *Pieces) InboxPage(page *query.InboxPage, columns []pipeline.Column) {
	place := make(map[pipeline.Column]uint64, len(columns))
	for i, column := range columns {
		place[column] = uint64(i)
	}
	for left := page.Items; len(left) > 0; {
		some := left[:min(len(left), itemsChunk)]
		p.room(recordItems, len(some)*(5*varint+1)+varint)
		p.uvarint(uint64(len(some)))
		for i := range some {
			item := &some[i]
			p.uvarint(uint64(item.Position))
			p.uvarint(place[item.Column])
			p.uvarint(uint64(item.Second))
			p.uvarint(item.Actor)
			p.uvarint(item.Post)
			p.Buf = packed.AppendBool(p.Buf, item.Read)
		}
		left = left[len(some):]
	}
	p.page(page.More, false, 0)
}

// DecodeInboxPage reads the answer to a page of limit items of columns.
func DecodeInboxPage(pieces [][]byte, columns []pipeline.Column, limit int, out *query.InboxPage) error {
	out.Reset()
	pages := 0
	t, err := each(pieces, Inbox, func(c *cursor, tag byte) bool {
		switch tag {
		case recordItems:
			for range c.Count("items", limit+len(columns)-len(out.Items)) {
				i := query.InboxItem{Position: pipeline.Position(c.Uvarint())}
				place := c.Within("column", len(columns))
				i.Second, i.Actor, i.Post, i.Read = int64(c.Uvarint()), c.Uvarint(), c.Uvarint(), c.Bool()
				if c.Err != nil {
					break
				}
				i.Column = columns[place]
				out.Items = append(out.Items, i)
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
	return whole(Inbox, pages, 1, err)
}

// A record fits where the largest does.
const _ = uint(RecordMax - (itemsChunk*(5*varint+1) + varint))
