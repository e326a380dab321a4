package pipeline

// FactKind is a kind of what is known of an id.
type FactKind uint8

// The kinds, and what a Fact of each says.
const (
	FactCell    FactKind = iota // Column of ID's row is Value
	FactMark                    // user ID's mark number Other is position Value
	FactCursor                  // user ID's cursor in channel Name is position Value
	FactFollows                 // user ID follows Other, since position Value; 0: the feed was read since
	FactMember                  // Column's set of row ID has Member; Value is 1, or of a set that forgets, the log second in which it was put in. NoColumn: user ID is followed by Member
	FactPost                    // author ID's post Other is listed, at position Value
	FactNotice                  // channel Name has notice Other, at position Value
)

// The marks of a user, by their number in a FactMark.
const (
	MarkFeed  = iota // the feed is read up to here
	MarkAll          // everything is
	MarkFirst        // the mark of the first read of anything
	MarkLast         // the newest read itself
	MarksCount
)

// Fact is one thing that is known of an id; its kind says which fields count.
// What is 0 of a cell, a mark or a cursor is no fact.
type Fact struct {
	Kind   FactKind
	Column Column
	ID     uint64
	Other  uint64
	Member Member
	Name   string
	Value  int64
}

// FactPart is a part of what is known of ids: what is read together, as of one
// position.
type FactPart uint8

// The parts.
const (
	PartRows    FactPart = iota // IDs' rows of a counter
	PartUser                    // one user's marks, followees, and cursors in Channels
	PartMembers                 // the sets of a column of some ids, a page of them
	PartPosts                   // the newest posts of authors
	PartNotices                 // one channel's notices
)

// FactsAsk asks for facts. Which fields count depends on Part.
type FactsAsk struct {
	Part     FactPart
	Shard    Shard    // all IDs are its
	Counter  int      // of PartRows
	Column   Column   // of PartMembers; NoColumn: followers
	IDs      []uint64 // one, of PartUser; they ascend, of PartMembers
	Channels []string // of PartUser; one, of PartNotices
	After    Member   // of PartMembers: of the first id those above this one,
	Limit    int      // and so many of each at most, and of all about
}
