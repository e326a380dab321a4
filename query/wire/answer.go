package wire

import (
	"encoding/binary"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// Pieces cuts an answer into pieces. Its methods append an answer's records; an
// answer ends with End.
type Pieces struct {
	Buf   []byte // the message so far, with the piece at its end
	Limit int    // how long Buf may become
	// Cut ends the piece, and begins the next one in a Buf that has room for a
	// record (RecordMax).
	Cut func(*Pieces)
}

// The records of answers. A version that adds one sends it only to those that know it:
// their batch says their version.
const (
	recordEnd     = iota // of the answer: how far it reaches, what it cost
	recordMissing        // places of what cannot be answered here
	recordRows           // rows, one after the other
	recordNotices        // names of channels; they go by their place in all of these
	recordDots
	recordUser   // feed and 1:1 counts
	recordUnread // a user's channels with unread notices
	recordLit    // a user's dots that are lit
	recordRest   // of a standpoint: followees that must be counted elsewhere
	recordCounts // of CountPosts
	recordUsers  // of a page
	recordPosts
	recordPage // what a page says besides its list
	recordStandpoint
	recordChannel // of a standpoint
	recordNotice
	recordShares  // a user's followees that must be counted elsewhere
	recordChanged // when those changed
	recordHas     // of RowsHas: a bit for each member in each row
	recordMembers // of a page of members
	recordItems   // of a page of an inbox
)

const (
	// RecordMax is the most bytes that a record takes.
	RecordMax  = 24 << 10
	rowsMax    = 256  // rows in a record, less where there are many columns
	chunkMax   = 1024 // of all else in a record
	namesChunk = 16
	varint     = binary.MaxVarintLen64
	recordHead = 1 + 3*varint
)

// room begins a record of so many bytes at most.
func (p *Pieces) room(tag byte, bytes int) {
	if len(p.Buf)+recordHead+bytes > p.Limit {
		p.Cut(p)
	}
	p.Buf = append(p.Buf, tag)
}

func (p *Pieces) uvarint(u uint64) { p.Buf = binary.AppendUvarint(p.Buf, u) }

// Tail is what every answer says at its end.
type Tail struct {
	AsOf pipeline.Position
	Cost query.Cost
}

// End ends the answer.
func (p *Pieces) End(t Tail) {
	p.room(recordEnd, 0)
	p.uvarint(uint64(t.AsOf))
	p.uvarint(uint64(max(t.Cost.Cold, 0)))
	p.uvarint(uint64(max(t.Cost.Disk, 0) / time.Microsecond))
}

// Missing appends the places, from base on, of what is missing.
func (p *Pieces) Missing(base int, missing []int) {
	for len(missing) > 0 {
		some := missing[:min(len(missing), chunkMax)]
		p.room(recordMissing, len(some)*varint)
		p.uvarint(uint64(len(some)))
		for _, i := range some {
			p.uvarint(uint64(base + i))
		}
		missing = missing[len(some):]
	}
}

// Rows appends the answer of [query.Holder.Rows], without its end.
func (p *Pieces) Rows(rows *query.Rows, columns int) {
	p.Missing(0, rows.Missing)
	most := max(1, min(rowsMax, RecordMax/(columns*varint+1)))
	for from, ids := 0, len(rows.Exist); from < ids; from += most {
		n := min(most, ids-from)
		p.room(recordRows, n/8+1+n*columns*varint)
		p.uvarint(uint64(from))
		p.uvarint(uint64(n))
		bitmap := len(p.Buf)
		b := append(p.Buf, make([]byte, (n+7)/8)...)
		for i := range n {
			if !rows.Exist[from+i] {
				continue
			}
			b[bitmap+i/8] |= 1 << (i % 8)
			for _, v := range rows.Values[(from+i)*columns : (from+i+1)*columns] {
				if u := uint64(v<<1) ^ uint64(v>>63); u < 0x80 { // most are
					b = append(b, byte(u))
				} else {
					b = binary.AppendUvarint(b, u)
				}
			}
		}
		p.Buf = b
	}
	p.has(rows.Has)
}

// ChannelNames appends names of channels, which records of users refer to by
// their place among all of their kind.
func (p *Pieces) ChannelNames(dots bool, names []string) {
	tag := byte(recordNotices)
	if dots {
		tag = recordDots
	}
	for len(names) > 0 {
		some := names[:min(len(names), namesChunk)]
		p.room(tag, len(some)*(nameMax+varint))
		p.uvarint(uint64(len(some)))
		for _, name := range some {
			p.Buf = packed.AppendText(p.Buf, name)
		}
		names = names[len(some):]
	}
}

// User appends one user of [query.Holder.Profiles]. counts are those that were
// asked; notices and dots are the places of the answer's channels among those
// that ChannelNames had. What must be counted elsewhere is apart: Rest, Followees.
func (p *Pieces) User(place int, u *query.UserUnread, counts []int64, notices, dots []int) {
	p.room(recordUser, len(counts)*varint)
	p.uvarint(uint64(place))
	p.uvarint(u.Feed)
	for _, v := range counts {
		p.Buf = packed.AppendZigzag(p.Buf, v)
	}
	p.sparse(recordUnread, place, len(u.Notices), func(i int) bool { return u.Notices[i] > 0 }, func(i int) {
		p.uvarint(uint64(notices[i]))
		p.uvarint(u.Notices[i])
	})
	p.sparse(recordLit, place, len(u.Dots), func(i int) bool { return u.Dots[i] }, func(i int) { p.uvarint(uint64(dots[i])) })
}

// followees appends those whose posts a standpoint counts elsewhere.
func (p *Pieces) followees(place int, rest *query.CountAsk) {
	for left := rest.Followees; len(left) > 0; {
		some := query.CountAsk{Mark: rest.Mark, Followees: left[:min(len(left), chunkMax)]}
		p.room(recordRest, countAskMax(len(some.Followees)))
		p.uvarint(uint64(place))
		p.Buf = appendCountAsk(p.Buf, &some)
		left = left[len(some.Followees):]
	}
}

// sparse appends those of a user's n channels that say something.
func (p *Pieces) sparse(tag byte, place, n int, says func(int) bool, appendOne func(int)) {
	some := make([]int, 0, 16)
	for i := range n {
		if says(i) {
			some = append(some, i)
		}
		if len(some) == 0 || len(some) < chunkMax && i < n-1 {
			continue
		}
		p.room(tag, len(some)*2*varint)
		p.uvarint(uint64(place))
		p.uvarint(uint64(len(some)))
		for _, j := range some {
			appendOne(j)
		}
		some = some[:0]
	}
}

// Counts appends the answer of [query.Holder.CountPosts], without its end.
func (p *Pieces) Counts(c *query.Counts) {
	p.Missing(0, c.Missing)
	for from := 0; from < len(c.Posts); from += chunkMax {
		some := c.Posts[from:min(from+chunkMax, len(c.Posts))]
		p.room(recordCounts, len(some)*varint)
		p.uvarint(uint64(from))
		p.uvarint(uint64(len(some)))
		for _, n := range some {
			p.uvarint(n)
		}
	}
}

// UserPage appends a page of users, without its end. from is that of
// [query.Holder.Followees].
func (p *Pieces) UserPage(page *query.UserPage, from pipeline.Position) {
	for left := page.Users; len(left) > 0; {
		some := left[:min(len(left), chunkMax)]
		p.room(recordUsers, len(some)*8+varint)
		p.Buf = packed.AppendIDs(p.Buf, some)
		left = left[len(some):]
	}
	p.page(page.More, false, from)
}

// FeedPage appends the answer of [query.Holder.Posts], without its end.
func (p *Pieces) FeedPage(page *query.FeedPage) {
	for left := page.Posts; len(left) > 0; {
		some := left[:min(len(left), chunkMax/2)]
		p.room(recordPosts, len(some)*3*varint)
		p.uvarint(uint64(len(some)))
		for _, post := range some {
			p.uvarint(uint64(post.Position))
			p.uvarint(post.Post)
			p.uvarint(post.Author)
		}
		left = left[len(some):]
	}
	p.page(page.More, page.Missing, 0)
}

func (p *Pieces) page(more, missing bool, from pipeline.Position) {
	p.room(recordPage, 2)
	p.Buf = packed.AppendBool(packed.AppendBool(p.Buf, more), missing)
	p.uvarint(uint64(from))
}

// A record fits beside what stands around it into the smallest message.
const (
	_ = uint(MessageMin - RecordMax - recordHead - ReplyOverhead)
	_ = uint(RecordMax - (1 + 4*varint + chunkMax*(8+varint) + varint)) // rest
	_ = uint(RecordMax - chunkMax*2*varint - 2*varint)
	_ = uint(RecordMax - chunkMax/2*3*varint)
	_ = uint(RecordMax - namesChunk*(nameMax+varint))
	_ = uint(RecordMax - 8 - rowsMax/8)
	_ = uint(RecordMax - (3*varint + 1 + ChangedMax*8))
)
