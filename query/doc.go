// Package query holds the nouns and roles of answers: what can be asked about
// counters, unread numbers, feeds and follows, and what an answer says. It knows
// neither NATS nor JSON, and does no I/O.
//
// A question goes down, from role to role, and its answer is put together on the way
// back:
//
//	service ──► Reader, or Spread ──► Holder ──► the shards of one process
//	(NATS)      all shards            one process
//
// [Reader] (reader.go) is the state that answers come from. It reads rows, unread
// numbers, feeds, the follow graph, and the sets that columns have. [Holder]
// (holder.go) is what one process holds; it answers for its own shards only. Package
// sinks fills it. [Spread] (spread.go) is a Reader over several Holders. Package
// query/spread fills it. [Publisher] takes the one thing that a client writes, what a
// user has read. [Freshness] (fresh.go) knows how old an answer can be. [Cluster]
// (nodes.go) knows the nodes and the shards that each holds. [BadgeReader] (badge.go)
// and [Explainer] (explain.go) say which events a number is made of. Package
// sinks/check fills the second.
//
// An answer ([Rows], [Unreads], [FeedPage], [UserPage], [MemberPage], [Counts]
// and others) belongs to the caller, who uses it for the next question too: the role
// calls its Reset first, fills it, and keeps nothing of it. Each has AsOf, the position that it reaches (I6),
// Missing, what could not be read, and [Cost], what the disk cost it.
//
// Most errors say where else the answer is: [ErrCold] on disk, [ErrFar] on another node,
// [ErrElsewhere] at another Holder. [ErrStopped], [ErrBehind] and [ErrNobody] say that
// there is none. All methods of roles may be called concurrently. There are no locks here.
//
// The NATS service is query/service, the Go client query/client. subjects.go has what
// both sides of NATS agree on. query/wire has what nodes ask each other, in bytes.
package query
