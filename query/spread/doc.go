// Package spread answers from several nodes: a [query.Reader] over those that
// hold the shards, and the server that each of them runs.
//
//	            ┌── shards held here: in place
//	Reader ─────┼── link to node a ──► tidemark.hold.a.g1 ──► Server ──► query.Holder
//	(splits,    └── link to node b ──► tidemark.hold.b.g1 ──► Server ──► query.Holder
//	 merges)        one batch under way; what is asked meanwhile is the next
//
// A call is split by shard, and each shard goes to one of the nodes that hold it
// (directory.go says which they are): to this one, else to the less busy of two, away
// from those that failed or lagged a moment ago. What a call asks of one node is a
// part, or several where it is long. A part that is not answered (the node is gone,
// no longer holds the shard, lags, is late, or its answer came damaged) goes to
// the next node while there is time; what nobody answers is missing. That is
// scatter.go; rows.go, sets.go, unread.go, recent.go and pages.go say what is asked and
// how answers are put together.
//
// A link (link.go) has one batch under way. No timer gathers parts: while the
// node works on a batch, what comes waits for the next. A call that waits for long
// has its links look whether the nodes are still there.
//
// A Server (server.go) answers parts from memory at once, in one message where it
// can; it then says that the batch is taken. Parts that are large, that wait for a
// position or for the disk come later, each on its lane (serve.go; answer.go asks the
// holder, writer.go fills messages).
//
// Large because a question and its answer are one thing: rows.go and its like have what
// the asker does, and next to it, here or in answer.go, what the holder does.
//
// What goes over the wire is in the package wire. Nothing that arrives there
// changes state: a Holder only reads.
package spread
