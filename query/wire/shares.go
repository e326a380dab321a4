package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// Followees who must be counted elsewhere go to the asker and on to their holders.
// Most have nothing new: that they are named is nearly all of what they cost. So the
// user's holder sorts them by shard, and the asker passes on the bytes of each
// shard to its holder without a look at them:
//
//	user's holder ─► shard │ share │ shard │ share │ …  ─► asker
//	asker         ─► the shares of a holder's shards    ─► holder
//
//	share   length │ ids │ width │ n × width bytes     0: counts from the mark;
//	                                                   else from base + this - 1
//
// The base is the user's: the least position from which one of them counts. Of users
// that have read their feed since they follow, all count from the mark, which takes no
// byte; an id is a step from the one before in its shard, of two or three.
//
// Where they are few, the holder says of each since when nothing has changed, too: the
// asker may know what was there then (package recent), and asks nobody.

// Rest is what of a user's feed must be counted elsewhere, as an asker has it.
type Rest struct {
	Mark, Base pipeline.Position
	Shares     []Share
	Changed    []pipeline.Position // query.Followee's, of all shares' followees in their order; nil: not known
}

// Share is followees of one shard.
type Share struct {
	Shard pipeline.Shard
	bytes []byte // with their length; the message's memory
}

const (
	// shareMax is how many followees a share has; a shard with more has several.
	shareMax = 512
	// shareBytes is the most bytes that a share takes, with its shard.
	shareBytes = 6*varint + 1 + shareMax*16
	// sharesMax is how long shares in a record become, but for the last one.
	sharesMax = RecordMax - shareBytes - 4*varint
	// ChangedMax is of how many followees of a user a holder says when they changed: to
	// look more of them up takes an asker as long as to ask.
	ChangedMax = 128
)

// Sharing is the memory in which followees are sorted by shard. It is reused.
type Sharing struct {
	starts []int32 // of each shard's
	shards []pipeline.Shard
	ids    []uint64 // sorted
	since  []uint64 // likewise
	buf    []byte

	changed []uint64          // sorted, if all are known and few
	oldest  pipeline.Position // of them
}

// Cap is how many followees the memory holds on to.
func (s *Sharing) Cap() int { return cap(s.ids) }

// lay sorts followees by shard, each shard's in their order (counting sort).
func (s *Sharing) lay(followees []query.Followee, shards int) (base pipeline.Position) {
	n := len(followees)
	s.shards, s.ids, s.since = slices.Grow(s.shards[:0], n)[:n], slices.Grow(s.ids[:0], n)[:n], slices.Grow(s.since[:0], n)[:n]
	few := n <= ChangedMax
	if s.changed = s.changed[:0]; few {
		s.changed = slices.Grow(s.changed, n)[:n]
	}
	s.starts = slices.Grow(s.starts[:0], shards+1)[:shards+1]
	clear(s.starts)
	below := ^pipeline.Position(0) // base - 1: none has 0
	for i, f := range followees {
		shard := pipeline.ShardOf(f.User, shards)
		s.shards[i] = shard
		s.starts[shard]++
		below = min(below, f.Since-1) // of 0 it is the most that there is
	}
	if below == ^pipeline.Position(0) {
		below = 0
	}
	at := int32(0)
	for i, n := range s.starts {
		s.starts[i], at = at, at+n
	}
	for i, f := range followees {
		at := s.starts[s.shards[i]]
		s.starts[s.shards[i]]++
		s.ids[at], s.since[at] = f.User, uint64(max(f.Since, below)-below)
		if few {
			s.changed[at] = uint64(f.Changed)
		}
	}
	s.age()
	return below + 1
}

// age makes what is known of when followees changed the time since the oldest of it.
func (s *Sharing) age() {
	if len(s.changed) == 0 {
		return
	}
	oldest := slices.Min(s.changed)
	if s.oldest = pipeline.Position(oldest); oldest == 0 { // it is not known of all
		s.changed = s.changed[:0]
	}
	for i := range s.changed {
		s.changed[i] -= oldest
	}
}

// each calls take with the user's followees, sorted by shard and in bytes, as many
// at a time as a record holds. The bytes are reused.
func (s *Sharing) each(followees []query.Followee, shards int, take func(base pipeline.Position, shares []byte)) {
	base := s.lay(followees, shards)
	b, from := s.buf[:0], int32(0)
	for shard := range shards { // starts has where the shard ends
		for to := s.starts[shard]; from < to; {
			some := min(to, from+shareMax)
			b = binary.AppendUvarint(b, uint64(shard))
			b = appendShare(b, s.ids[from:some], s.since[from:some])
			if from = some; len(b) > sharesMax {
				take(base, b)
				b = b[:0]
			}
		}
	}
	if len(b) > 0 {
		take(base, b)
	}
	s.buf = b
}

func appendShare(b []byte, ids, since []uint64) []byte {
	at := len(b)
	b = append(b, 0)
	b = packed.AppendIDs(b, ids)
	b = packed.AppendCells(b, since)
	if n := len(b) - at - 1; n < 0x80 {
		b[at] = byte(n)
	} else { // two bytes
		b = slices.Insert(b, at+1, byte(n>>7))
		b[at] = byte(n) | 0x80
	}
	return b
}

// Rest appends what of a user's feed must be counted elsewhere.
func (p *Pieces) Rest(place int, rest *query.CountAsk, shards int, s *Sharing) {
	s.each(rest.Followees, shards, func(base pipeline.Position, shares []byte) {
		p.room(recordShares, 4*varint+len(shares))
		for _, u := range [...]uint64{uint64(place), uint64(rest.Mark), uint64(base), uint64(len(shares))} {
			p.uvarint(u)
		}
		p.Buf = append(p.Buf, shares...)
	})
	if len(s.changed) > 0 {
		p.room(recordChanged, 3*varint+1+8*len(s.changed))
		for _, u := range [...]uint64{uint64(place), uint64(s.oldest), uint64(len(s.changed))} {
			p.uvarint(u)
		}
		p.Buf = packed.AppendCells(p.Buf, s.changed)
	}
}

// Rest is the same of a holder in this process.
func (s *Sharing) Rest(ask *query.CountAsk, shards int) Rest {
	r := Rest{Mark: ask.Mark}
	s.each(ask.Followees, shards, func(base pipeline.Position, bytes []byte) {
		r.Base = base
		over(slices.Clone(bytes)).shares(&r, shards)
	})
	for _, after := range s.changed {
		r.Changed = append(r.Changed, s.oldest+pipeline.Position(after))
	}
	return r
}

// changed reads a record of when followees changed.
func (c *cursor) changed(to []Rest) {
	place, oldest := c.Within("user", len(to)), pipeline.Position(c.Uvarint())
	after := make([]int64, c.Count("changed", ChangedMax))
	c.Cells(after, len(after), 1)
	if c.Err != nil {
		return
	}
	r := &to[place]
	if len(r.Changed) > 0 {
		c.Fail("it is said twice when the followees of a user changed")
		return
	}
	for _, a := range after {
		if r.Changed = append(r.Changed, oldest+pipeline.Position(a)); r.Changed[len(r.Changed)-1] < oldest || oldest == 0 {
			c.Fail("a followee changed after all positions, or never")
			return
		}
	}
}

// known checks that it is said of all followees when they changed, or of none.
func (r *Rest) known() error {
	if len(r.Changed) == 0 {
		return nil
	}
	n := 0
	for i := range r.Shares {
		n += r.Shares[i].Len()
	}
	if n != len(r.Changed) {
		return fmt.Errorf("%w: %d followees, of whom %d changed", ErrDamaged, n, len(r.Changed))
	}
	return nil
}

// shares reads all there is as shares of a user.
func (c *cursor) shares(to *Rest, shards int) {
	if to.Shares == nil { // as a rule there is one record
		to.Shares = make([]Share, 0, min(shards, len(c.B)/4+1))
	}
	for len(c.B) > 0 {
		shard := c.Within("shard", shards)
		from := c.B
		c.Sized()
		if c.Err != nil {
			return
		}
		n := len(from) - len(c.B)
		to.Shares = append(to.Shares, Share{pipeline.Shard(shard), from[:n:n]})
	}
}

// rest reads a record of shares.
func (c *cursor) rest(to []Rest, shards int) {
	place := c.Within("user", len(to))
	mark, base := pipeline.Position(c.Uvarint()), pipeline.Position(c.Uvarint())
	bytes := over(c.Sized())
	if c.Err != nil {
		return
	}
	r := &to[place]
	if len(r.Shares) > 0 && (r.Mark != mark || r.Base != base) {
		c.Fail("user %d counts from %d and %d, and from %d and %d", place, r.Mark, r.Base, mark, base)
		return
	}
	r.Mark, r.Base = mark, base
	if bytes.shares(r, shards); bytes.Err != nil {
		c.Fail("user %d: %w", place, bytes.Err)
	}
}

// CountMax is the most bytes that an ask of CountPosts takes besides its shares.
const CountMax = 3 * varint

// BeginCounts begins a question of so many asks: each is BeginCount and its shares.
func BeginCounts(b []byte, asks int) []byte { return binary.AppendUvarint(b, uint64(asks)) }

// BeginCount begins an ask of so many shares of one user.
func BeginCount(b []byte, mark, base pipeline.Position, shares int) []byte {
	b = binary.AppendUvarint(b, uint64(mark))
	b = binary.AppendUvarint(b, uint64(base))
	return binary.AppendUvarint(b, uint64(shares))
}

// Append appends the share to an ask.
func (s *Share) Append(b []byte) []byte { return append(b, s.bytes...) }

// Len is how many followees it says that it has.
func (s *Share) Len() int {
	c := over(s.bytes)
	c.Uvarint()
	return c.Count("followees", FolloweesMax)
}

// Bytes is how many Append appends.
func (s *Share) Bytes() int { return len(s.bytes) }

// CountAsks are asks as a holder reads them. The memory is reused.
type CountAsks struct {
	Asks []query.CountAsk

	list []query.Followee // of all asks
	ends []int            // in list, of each ask's
	ids  []uint64
}

// Reset takes all asks away.
func (a *CountAsks) Reset() { a.Asks, a.list, a.ends = a.Asks[:0], a.list[:0], a.ends[:0] }

// Cap is how many followees the memory holds on to.
func (a *CountAsks) Cap() int { return cap(a.list) }

// Len is how many followees there are, of all asks.
func (a *CountAsks) Len() int { return len(a.list) }

// Begin begins an ask. Shares are added to it until the next Begin, or End.
func (a *CountAsks) Begin(mark pipeline.Position) {
	a.Asks, a.ends = append(a.Asks, query.CountAsk{Mark: mark}), append(a.ends, len(a.list))
}

// Add adds a share to the last ask.
func (a *CountAsks) Add(s *Share, base pipeline.Position) error {
	c := over(s.bytes)
	c.share(a, base, FolloweesMax)
	return c.end(Version, "share")
}

// End gives the asks their followees. Nothing is added after it.
func (a *CountAsks) End() {
	end := len(a.list)
	for i := len(a.Asks) - 1; i >= 0; i-- {
		from := a.ends[i]
		a.Asks[i].Followees, end = a.list[from:end:end], from
	}
}

// share reads a share to the last ask.
func (c *cursor) share(a *CountAsks, base pipeline.Position, most int) {
	s := over(c.Sized())
	a.ids = s.IDs(a.ids[:0], "followees", most)
	n := len(a.ids)
	if s.Err == nil {
		a.list = slices.Grow(a.list, n)
		list := a.list[len(a.list) : len(a.list)+n]
		s.since(a.ids, base, list)
		a.list = a.list[:len(a.list)+n]
	}
	if err := s.End(); err != nil {
		c.Fail("a share: %w", err)
	}
}

// since reads where each of some ids counts from.
func (c *cursor) since(ids []uint64, base pipeline.Position, list []query.Followee) {
	width := uint64(c.Byte())
	if width > 8 {
		c.Fail("%d bytes are no width of a position", width)
	}
	from := c.Bytes(uint64(len(ids)) * width)
	if c.Err != nil {
		return
	}
	if width == 0 {
		for i, id := range ids {
			list[i] = query.Followee{User: id}
		}
		return
	}
	mask := ^uint64(0) >> (64 - 8*width)
	for i, id := range ids {
		since := pipeline.Position(packed.Load(from[uint64(i)*width:]) & mask)
		if since > 0 {
			if since += base - 1; since < base {
				c.Fail("a followee counts from after all positions")
				return
			}
		}
		list[i] = query.Followee{User: id, Since: since}
	}
}

// Decode reads asks from the body of a part.
func (a *CountAsks) Decode(body []byte, version byte) error {
	a.Reset()
	c := over(body)
	for range c.Count("asks", IDsMax) {
		a.Begin(pipeline.Position(c.Uvarint()))
		base := pipeline.Position(c.Uvarint())
		for range c.Count("shares", FolloweesMax) {
			if c.share(a, base, FolloweesMax-len(a.list)); c.Err != nil {
				break
			}
		}
		if c.Err != nil {
			break
		}
	}
	a.End()
	return c.end(version, CountPosts.String())
}

// Shares and what stands around them fit into a record.
const (
	_ = uint(sharesMax)
	_ = uint(0x3fff - shareBytes) // a share's length takes two bytes at most
)
