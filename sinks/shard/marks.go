package shard

import "github.com/tidemark-io/tidemark/pipeline"

// The cells of a user's marks, positions all of them. 0: never.
const (
	markFeed  = iota // the feed is read up to here
	markAll          // everything is
	markFirst        // the mark of the user's first read of anything
	markLast         // the newest read itself, for inactive_after
	marksCount
)

// cursor is one user's place in one channel.
type cursor struct {
	user    uint64
	channel uint32 // in the shard's names
}

// readLocked moves a user's marks. They never go back: a read that comes late
// or twice does no harm.
func (s *Shard) readLocked(o *pipeline.Operation) {
	mark, user := int64(o.Mark), o.ID
	cells := s.marks.Touch(user)
	if o.Looked&pipeline.LookedFeed != 0 {
		cells[markFeed] = max(cells[markFeed], mark)
	}
	if o.Looked&pipeline.LookedAll != 0 {
		cells[markAll] = max(cells[markAll], mark)
	}
	if cells[markFirst] == 0 {
		cells[markFirst] = max(mark, 1) // 1 is before every event, and not never
	}
	cells[markLast] = max(cells[markLast], int64(o.Position))
	for _, name := range o.Channels {
		if mark <= max(cells[markAll], cells[markFirst]) {
			continue // these say as much, and more
		}
		if _, known := s.channels[name]; !known && len(s.names) >= namesMax {
			continue
		}
		at := cursor{user, s.channel(name)}
		if o.Mark > s.cursors[at] {
			s.cursors[at] = o.Mark
			s.changed = append(s.changed, change{kindCursor, user, uint64(at.channel)})
		}
	}
}

// namesMax bounds the channels that the users of one shard have cursors in:
// far more than there may be channels (ChannelsMax), so only names that nobody
// publishes to are passed over.
const namesMax = 16 * ChannelsMax

// channel is a channel's number in this shard.
func (s *Shard) channel(name string) uint32 {
	number, ok := s.channels[name]
	if !ok {
		number = uint32(len(s.names))
		s.channels[name] = number
		s.names = append(s.names, name)
	}
	return number
}

// Marks are what a user has read.
type Marks struct {
	Feed, All, First, Last pipeline.Position
}

func (s *Shard) marksLocked(user uint64) Marks {
	cells := s.marks.Row(user)
	if cells == nil {
		return Marks{}
	}
	return Marks{
		Feed: pipeline.Position(cells[markFeed]), All: pipeline.Position(cells[markAll]),
		First: pipeline.Position(cells[markFirst]), Last: pipeline.Position(cells[markLast]),
	}
}
