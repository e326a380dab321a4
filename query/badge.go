package query

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

// BadgeReader is what explains the numbers of a badge that are sizes of sets: the
// feed and the channels. What is in the sets are positions of events. A [Holder] is
// one for what it holds. Methods may be called concurrently; the last parameter
// is that of [Reader]'s.
type BadgeReader interface {
	// Standpoint says from where a user's feed and channels count, and what is in
	// the channels. ErrElsewhere or ErrStopped as in Holder.Following.
	Standpoint(ctx context.Context, ask *StandpointAsk, out *Standpoint, disk bool) error

	// Posts is Holder's.
	Posts(ctx context.Context, followees []uint64, from, before pipeline.Position, limit int, out *FeedPage, disk bool) error
}

// StandpointAsk asks for one user's.
type StandpointAsk struct {
	User     uint64
	Channels []string          // nil: all there are
	Before   pipeline.Position // notices below this are known
	Limit    int               // so many of them, the newest, of all channels together
}

// FolloweesMax is how many a user may follow whose feed is explained: each is looked
// at for every page, and their list goes from node to node.
const FolloweesMax = 100_000

// Standpoint is the answer of [BadgeReader.Standpoint]. It belongs to the caller.
type Standpoint struct {
	// Dropped: the user's last read is older than inactive_after, so all numbers
	// are 0. The rest means nothing then.
	Dropped bool
	// Read is up to where the user has read the feed. Feed.Mark may be later: what is
	// older than feed.retention is at or before it, too.
	Read    pipeline.Position
	Feed    CountAsk // followees by id; none where there are more than FolloweesMax
	Follows int      // the user's followees
	// PostsMax is how many posts of an author count, NoticesMax how many notices a
	// channel holds; 0: no bound.
	PostsMax, NoticesMax int
	// Channels are those that were named, or that have something unread.
	Channels []StandpointChannel
	Notices  []Notice // newest first, in all channels
	More     bool     // there are older ones, not above the last of Notices
	AsOf     pipeline.Position
	Cost     Cost
}

// StandpointChannel is a channel as one user sees it.
type StandpointChannel struct {
	Name   string
	Dot    bool
	Cursor pipeline.Position // notices after it are unread
	Unread uint64
	Held   uint64 // notices in it, read or not
}

// Notice is a live one that is unread.
type Notice struct {
	Position pipeline.Position
	Notice   uint64
	Channel  int // in Standpoint.Channels
}

// Reset empties it, and keeps its memory.
func (s *Standpoint) Reset() {
	*s = Standpoint{
		Feed:     CountAsk{Followees: s.Feed.Followees[:0]},
		Channels: s.Channels[:0], Notices: s.Notices[:0],
	}
}
