package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// each reads an answer's records; take reads the rest of one and says false
// where it has no place.
func each(pieces [][]byte, what Kind, take func(c *cursor, tag byte) bool) (t Tail, err error) {
	ended := false
	for _, piece := range pieces {
		c := over(piece)
		for len(c.B) > 0 && !ended {
			switch tag := c.Byte(); {
			case tag == recordEnd:
				t.AsOf = pipeline.Position(c.Uvarint())
				t.Cost.Cold = int(min(c.Uvarint(), 1<<40))
				t.Cost.Disk = time.Duration(min(c.Uvarint(), withinMax*1000)) * time.Microsecond
				ended = c.Err == nil
			case !take(c, tag):
				c.Fail("record %d", tag)
			}
		}
		if c.Err == nil && len(c.B) > 0 {
			c.Fail("%d bytes behind the end", len(c.B))
		}
		if c.Err != nil {
			return t, fmt.Errorf("%w: the answer to %s: %w", ErrDamaged, what, c.Err)
		}
	}
	if !ended {
		return t, fmt.Errorf("%w: the answer to %s has no end", ErrDamaged, what)
	}
	return t, nil
}

// missing reads a record's places, below n.
func (c *cursor) missing(to []int, n int) []int {
	for range c.Count("missing", chunkMax) {
		if to = append(to, c.Within("missing", n)); c.Err != nil {
			break
		}
	}
	return to
}

var errNotWhole = errors.New("not all that was asked is in it")

func whole(what Kind, is, should int, err error) error {
	if err == nil && is != should {
		return fmt.Errorf("%w: the answer to %s: %w: %d of %d", ErrDamaged, what, errNotWhole, is, should)
	}
	return err
}

// DecodeRows reads the answer for ids that go to the places items of rows; rows
// has columns columns, and rows.Sets was asked. missing are indexes of items.
func DecodeRows(pieces [][]byte, items []int32, columns int, rows *query.Rows) (t Tail, missing []int, err error) {
	seen, bits := 0, 0
	t, err = each(pieces, Rows, func(c *cursor, tag byte) bool {
		switch tag {
		case recordMissing:
			missing = c.missing(missing, len(items))
		case recordRows:
			if first := c.Within("first", len(items)); first != seen {
				c.Fail("row %d comes after %d", first, seen)
			}
			seen += c.rows(items[seen:], columns, rows)
		case recordHas:
			bits += c.has(bits, items, rows)
		default:
			return false
		}
		return true
	})
	err = whole(Rows, seen, len(items), err)
	return t, missing, whole(RowsHas, bits, len(items)*len(rows.Sets), err)
}

// rows reads one record and returns how many rows were in it.
func (c *cursor) rows(items []int32, columns int, rows *query.Rows) int {
	n := c.Count("rows", len(items))
	bitmap := c.Bytes(uint64(n+7) / 8)
	if c.Err != nil {
		return 0
	}
	b := c.B
	for i, place := range items[:n] {
		exists := bitmap[i/8]>>(i%8)&1 == 1
		rows.Exist[place] = exists
		if !exists {
			continue
		}
		values := rows.Values[int(place)*columns : (int(place)+1)*columns]
		for j := range values {
			if len(b) > 0 && b[0] < 0x80 { // most are
				values[j] = int64(b[0]>>1) ^ -int64(b[0]&1)
				b = b[1:]
				continue
			}
			u, size := binary.Uvarint(b)
			if size <= 0 {
				c.Fail("it ends within row %d", i)
				return n
			}
			values[j], b = int64(u>>1)^-int64(u&1), b[size:]
		}
	}
	c.B = b
	return n
}

// ProfilesAnswer is [query.Profiles] as an asker has it.
type ProfilesAnswer struct {
	query.Unreads
	Rest []Rest // of each user
}

// DecodeProfiles reads the answer for so many users and columns of nodes that have
// so many shards. The shares in it are in the pieces' memory.
func DecodeProfiles(pieces [][]byte, users, columns, shards int, out *ProfilesAnswer) error {
	d := profiles{shards: shards, missing: out.Missing[:0], rest: make([]Rest, users), feed: make([]uint64, users), counts: make([]int64, users*columns), known: make([]bool, users)}
	t, err := each(pieces, Profiles, func(c *cursor, tag byte) bool { return d.take(c, tag, users, columns) })
	for _, i := range d.missing {
		if !d.known[i] {
			d.known[i], d.seen = true, d.seen+1
		}
	}
	for i := range d.rest {
		err = cmp.Or(err, d.rest[i].known())
	}
	if err := whole(Profiles, d.seen, users, err); err != nil {
		return err
	}
	out.Reset(users, columns, d.notices, d.dots)
	out.Missing, out.Rest, out.AsOf, out.Cost = d.missing, d.rest, t.AsOf, t.Cost
	for i := range users {
		out.Users[i].Feed = d.feed[i]
		copy(out.Users[i].Counts, d.counts[i*columns:])
	}
	for _, m := range d.marks {
		if m.dot {
			out.Users[m.user].Dots[m.channel] = true
		} else {
			out.Users[m.user].Notices[m.channel] = m.unread
		}
	}
	return nil
}

// profiles is an answer while it is read: the names of all channels are known
// at its end.
type profiles struct {
	notices, dots []string
	feed          []uint64
	counts        []int64
	known         []bool // has a record, or is missing
	seen          int
	marks         []channelMark
	missing       []int
	shards        int
	rest          []Rest
}

type channelMark struct {
	user, channel int
	unread        uint64
	dot           bool
}

func (d *profiles) take(c *cursor, tag byte, users, columns int) bool {
	switch tag {
	case recordMissing:
		d.missing = c.missing(d.missing, users)
	case recordNotices:
		d.notices = c.names(d.notices)
	case recordDots:
		d.dots = c.names(d.dots)
	case recordUser:
		d.user(c, users, columns)
	case recordUnread, recordLit:
		d.channels(c, users, tag == recordLit)
	case recordShares:
		c.rest(d.rest, d.shards)
	case recordChanged:
		c.changed(d.rest)
	default:
		return false
	}
	return true
}

// names reads a record of channels. Each takes room for every user of the answer.
func (c *cursor) names(to []string) []string {
	if len(to) > channelsKnown {
		c.Fail("more than %d channels", channelsKnown)
	}
	for range c.Count("channels", namesChunk) {
		if to = append(to, c.name()); c.Err != nil {
			break
		}
	}
	return to
}

func (d *profiles) user(c *cursor, users, columns int) {
	place := c.Within("user", users)
	if c.Err == nil && d.known[place] {
		c.Fail("user %d is there twice", place)
	}
	feed := c.Uvarint()
	if c.Err != nil {
		return
	}
	d.known[place], d.feed[place], d.seen = true, feed, d.seen+1
	for j := range columns {
		d.counts[place*columns+j] = c.Zigzag()
	}
}

func (d *profiles) channels(c *cursor, users int, lit bool) {
	user, names := c.Within("user", users), len(d.notices)
	if lit {
		names = len(d.dots)
	}
	for range c.Count("channels", chunkMax) {
		m := channelMark{user: user, channel: c.Within("channel", names), unread: 1, dot: lit}
		if !lit {
			m.unread = c.Uvarint()
		}
		if c.Err != nil {
			return
		}
		d.marks = append(d.marks, m)
	}
}

// DecodeCounts reads the answer to so many asks.
func DecodeCounts(pieces [][]byte, asks int, out *query.Counts) error {
	*out = query.Counts{Posts: out.Posts[:0], Missing: out.Missing[:0]}
	t, err := each(pieces, CountPosts, func(c *cursor, tag byte) bool {
		switch tag {
		case recordMissing:
			out.Missing = c.missing(out.Missing, asks)
		case recordCounts:
			if first := c.Uvarint(); first != uint64(len(out.Posts)) {
				c.Fail("ask %d comes after %d", first, len(out.Posts))
			}
			for range c.Count("counts", asks-len(out.Posts)) {
				if out.Posts = append(out.Posts, c.Uvarint()); c.Err != nil {
					break
				}
			}
		default:
			return false
		}
		return true
	})
	out.AsOf, out.Cost = t.AsOf, t.Cost
	return whole(CountPosts, len(out.Posts), asks, err)
}

// DecodeUserPage reads the answer to a page of limit users at most.
func DecodeUserPage(pieces [][]byte, what Kind, limit int, out *query.UserPage) (from pipeline.Position, err error) {
	out.Reset()
	pages := 0
	t, err := each(pieces, what, func(c *cursor, tag byte) bool {
		switch tag {
		case recordUsers:
			out.Users = c.IDs(out.Users, "users", limit-len(out.Users))
		case recordPage:
			out.More = c.Bool()
			c.Bool()
			from = pipeline.Position(c.Uvarint())
			pages++
		default:
			return false
		}
		return true
	})
	out.AsOf, out.Cost = t.AsOf, t.Cost
	return from, whole(what, pages, 1, err)
}

// DecodeFeedPage reads the answer to a page of limit posts at most.
func DecodeFeedPage(pieces [][]byte, limit int, out *query.FeedPage) error {
	out.Reset()
	pages := 0
	t, err := each(pieces, Posts, func(c *cursor, tag byte) bool {
		switch tag {
		case recordPosts:
			for range c.Count("posts", limit-len(out.Posts)) {
				p := query.FeedPost{Position: pipeline.Position(c.Uvarint()), Post: c.Uvarint(), Author: c.Uvarint()}
				if out.Posts = append(out.Posts, p); c.Err != nil {
					break
				}
			}
		case recordPage:
			out.More, out.Missing = c.Bool(), c.Bool()
			c.Uvarint()
			pages++
		default:
			return false
		}
		return true
	})
	out.AsOf, out.Cost = t.AsOf, t.Cost
	return whole(Posts, pages, 1, err)
}

// DecodeNothing reads the answer to a part that asks only for a position.
func DecodeNothing(pieces [][]byte) (Tail, error) {
	return each(pieces, Applied, func(*cursor, byte) bool { return false })
}
