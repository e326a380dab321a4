package shard

import "github.com/tidemark-io/tidemark/pipeline"

// State says how far a shard's entries are: everything the windows up to
// Applied changed is in them, nothing of what came later.
type State struct {
	Applied  pipeline.Position `json:"applied"`  // end of the last window that is in
	Sequence uint64            `json:"sequence"` // of that window in DELTAS
	Time     int64             `json:"time"`     // the shard's clock, in milliseconds since 1970
}

// Sink takes what a shard hands over to be kept, in any order; of what comes
// twice for one key the last counts. It keeps nothing that is passed to it
// after it has returned.
type Sink interface {
	// Row is a whole row: its cells as they are, by column.
	Row(counter int, id uint64, cells []int64)
	// Change is what has come to a row since what was handed over before, by
	// column; Identity where nothing has.
	Change(counter int, id uint64, deltas []pipeline.Delta)
	// Following is a user's follow and since when; 0: they follow no more.
	Following(user, followee uint64, since pipeline.Position)
	// Follower is one of a user's followers, or one no more.
	Follower(user, follower uint64, follows bool)
	// Post is an entry of an author's outbox; post 0: it is no more.
	Post(author uint64, position pipeline.Position, post uint64)
	// Marks are how far a user has read: feed, all, first, last.
	Marks(user uint64, marks [4]uint64)
	// Cursor is how far a user has read a channel.
	Cursor(user uint64, channel string, position pipeline.Position)
	// Notice is one of a channel's notices and where it is; 0: it is no more.
	Notice(channel string, notice uint64, position pipeline.Position)
	// Member is a member of the set that a column has of an id, or one no more;
	// second is that of log time at which it came, where the set forgets.
	Member(column pipeline.Column, id uint64, member pipeline.Member, second int64, there bool)
	// Item is an item of the list that a column has of an id, or one no more: then only its
	// position says which.
	Item(column pipeline.Column, id uint64, item *Item, there bool)
	// Empty says that of a set or list nothing counts that was handed over earlier. What
	// comes beside it, before or after, came to it after it was emptied.
	Empty(column pipeline.Column, id uint64)
	// Second is the first position within a Unix second; 0: it is known no more.
	Second(second int64, position pipeline.Position)
	// State says what all of this is the state of, and ends it.
	State(State)
}
