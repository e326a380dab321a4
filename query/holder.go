package query

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ErrElsewhere: what was asked lies in a shard that is not held here, or not
// ready yet. Another holder may have it.
var ErrElsewhere = errors.New("query: the shard is held elsewhere")

// Holder is what one process holds: some of the shards, and the channels. It
// answers for those shards alone; a [Reader] over several nodes puts its
// answers together from theirs. All methods may be called concurrently; the
// last parameter is that of Reader's methods, and so is what Applied and
// WaitApplied promise.
type Holder interface {
	Applied() pipeline.Position
	WaitApplied(ctx context.Context, p pipeline.Position) error

	// Holds says whether a shard is held here and ready to answer.
	Holds(pipeline.Shard) bool

	// Rows is Reader's. Ids whose shard is not held go to rows.Missing too.
	Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *Rows, disk bool) error

	// Profiles is the first half of Reader.Unread: what the users' own shards
	// and the channels tell, and the feed's count over those followees whose
	// shards are held here. A user who cannot be answered (the shard is stopped
	// or not held, or that of a followee held here is stopped) goes to
	// out.Missing.
	Profiles(ctx context.Context, users []uint64, channels []string, out *Profiles, disk bool) error

	// CountPosts is the second half: for each ask, the posts of its followees
	// after its mark. An ask of which any followee cannot be counted here goes
	// to out.Missing.
	CountPosts(ctx context.Context, asks []CountAsk, out *Counts, disk bool) error

	// Followees lists a user's followees, by id, for a feed; all else is as in
	// Reader.Following. from is the first position that the feed still shows.
	Followees(ctx context.Context, user, after uint64, limit int, out *UserPage, disk bool) (from pipeline.Position, err error)

	// Posts is the second half of Reader.Feed: the listed posts of followees
	// that lie in [from, before), newest first, limit of them at most. Followees
	// that cannot be read here set out.Missing.
	Posts(ctx context.Context, followees []uint64, from, before pipeline.Position, limit int, out *FeedPage, disk bool) error

	// Standpoint is BadgeReader's; ErrElsewhere where the user's shard is not held.
	Standpoint(ctx context.Context, ask *StandpointAsk, out *Standpoint, disk bool) error

	// Following and Followers are Reader's; ErrElsewhere where the user's shard
	// is not held.
	Following(ctx context.Context, user, after uint64, limit int, out *UserPage, disk bool) error
	Followers(ctx context.Context, user, after uint64, limit int, out *UserPage, disk bool) error

	// Members is Reader's; ErrElsewhere where the id's shard is not held.
	Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *MemberPage, disk bool) error

	// Inbox is Reader's; ErrElsewhere where the user's shard is not held.
	Inbox(ctx context.Context, ask *InboxAsk, out *InboxPage, disk bool) error
}

// Profiles is the answer of [Holder.Profiles]. It belongs to the caller.
type Profiles struct {
	Unreads // Users[i].Feed counts what is held here

	// Rest[i] is what of the i-th user's feed must be counted elsewhere; no
	// followees: nothing.
	Rest []CountAsk
}

// CountAsk asks for the posts of followees after a mark.
type CountAsk struct {
	Mark      pipeline.Position // posts at or before it do not count: the user's mark, and what is too old
	Followees []Followee
}

// Followee is one user that another follows.
type Followee struct {
	User  uint64
	Since pipeline.Position // posts at or before it do not count either; 0 where the mark says it
	// Changed is, of [Profiles], where the followee's outbox changed last, or after
	// that: from there to the answer's AsOf no post came or went. 0: it is not known.
	Changed pipeline.Position
}

// Counts is the answer of [Holder.CountPosts]. It belongs to the caller.
type Counts struct {
	Posts   []uint64 // for each ask
	Missing []int    // the indexes of asks that cannot be answered wholly here
	AsOf    pipeline.Position
	Cost    Cost
}
