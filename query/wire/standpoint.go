package wire

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// AppendStandpointAsk appends the question of [query.Holder.Standpoint].
func AppendStandpointAsk(b []byte, a *query.StandpointAsk) []byte {
	b = binary.AppendUvarint(b, a.User)
	b = binary.AppendUvarint(b, uint64(a.Before))
	b = binary.AppendUvarint(b, uint64(a.Limit))
	b = packed.AppendBool(b, a.Channels == nil)
	b = binary.AppendUvarint(b, uint64(len(a.Channels)))
	for _, name := range a.Channels {
		b = packed.AppendText(b, name)
	}
	return b
}

// DecodeStandpointAsk reads it from the body of a part.
func DecodeStandpointAsk(body []byte, version byte) (a query.StandpointAsk, err error) {
	c := over(body)
	a.User, a.Before, a.Limit = c.Uvarint(), pipeline.Position(c.Uvarint()), c.Count("limit", LimitMax)
	all := c.Bool()
	if !all {
		a.Channels = []string{}
	}
	for range c.Count("channels", channelsMax) {
		if a.Channels = append(a.Channels, c.name()); c.Err != nil {
			break
		}
	}
	if c.Err == nil && (a.User == 0 || a.Limit == 0 || all && len(a.Channels) > 0) {
		c.Fail("user %d, limit %d, all channels: %v, and %d besides", a.User, a.Limit, all, len(a.Channels))
	}
	return a, c.end(version, Standpoint.String())
}

// Standpoint appends the answer, without its end.
func (p *Pieces) Standpoint(s *query.Standpoint) {
	p.room(recordStandpoint, 8*varint)
	p.Buf = packed.AppendBool(p.Buf, s.Dropped)
	p.Buf = packed.AppendBool(p.Buf, s.More)
	for _, u := range []uint64{uint64(s.Read), uint64(s.Feed.Mark), uint64(s.Follows), uint64(s.PostsMax), uint64(s.NoticesMax)} {
		p.uvarint(u)
	}
	p.followees(0, &s.Feed)
	for _, c := range s.Channels {
		p.room(recordChannel, nameMax+6*varint)
		p.Buf = packed.AppendText(p.Buf, c.Name)
		p.Buf = packed.AppendBool(p.Buf, c.Dot)
		p.uvarint(uint64(c.Cursor))
		p.uvarint(c.Unread)
		p.uvarint(c.Held)
	}
	for left := s.Notices; len(left) > 0; {
		some := left[:min(len(left), chunkMax/2)]
		p.room(recordNotice, len(some)*3*varint)
		p.uvarint(uint64(len(some)))
		for _, n := range some {
			p.uvarint(uint64(n.Position))
			p.uvarint(n.Notice)
			p.uvarint(uint64(n.Channel))
		}
		left = left[len(some):]
	}
}

// DecodeStandpoint reads the answer, of limit notices at most.
func DecodeStandpoint(pieces [][]byte, limit int, out *query.Standpoint) error {
	out.Reset()
	some := 0
	var ids []uint64
	t, err := each(pieces, Standpoint, func(c *cursor, tag byte) bool {
		switch tag {
		case recordStandpoint:
			some++
			out.Dropped, out.More = c.Bool(), c.Bool()
			out.Read, out.Feed.Mark = pipeline.Position(c.Uvarint()), pipeline.Position(c.Uvarint())
			out.Follows = int(min(c.Uvarint(), 1<<40))
			out.PostsMax, out.NoticesMax = int(min(c.Uvarint(), 1<<40)), int(min(c.Uvarint(), 1<<40))
		case recordRest:
			c.Within("user", 1)
			var a query.CountAsk
			a, ids = c.countAsk(ids, query.FolloweesMax-len(out.Feed.Followees))
			out.Feed.Followees = append(out.Feed.Followees, a.Followees...)
		case recordChannel:
			if len(out.Channels) >= channelsKnown {
				c.Fail("more than %d channels", channelsKnown)
			}
			ch := query.StandpointChannel{Name: c.name(), Dot: c.Bool(), Cursor: pipeline.Position(c.Uvarint())}
			ch.Unread, ch.Held = c.Uvarint(), c.Uvarint()
			out.Channels = append(out.Channels, ch)
		case recordNotice:
			for range c.Count("notices", limit-len(out.Notices)) {
				n := query.Notice{Position: pipeline.Position(c.Uvarint()), Notice: c.Uvarint(), Channel: c.Within("channel", len(out.Channels))}
				if out.Notices = append(out.Notices, n); c.Err != nil {
					break
				}
			}
		default:
			return false
		}
		return true
	})
	out.AsOf, out.Cost = t.AsOf, t.Cost
	return whole(Standpoint, some, 1, err)
}

const _ = uint(RecordMax - nameMax - 6*varint)
