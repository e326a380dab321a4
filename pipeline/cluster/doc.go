// Package cluster says which processes there are, and which of them holds
// which shard.
//
// Every process says of itself what it is and has: a [Member], one key in the
// bucket, written again each beat. One process, the one that routes, computes
// from them the [Assignment], shard to holders, by [Decide]. A [Roster] takes
// the keys as they come and gives a [View]: the members with their states, the
// assignment, what is drained, how far answers are degraded. [View.Next] is
// what the deciding process would write next, [View.Answering] who can be
// asked about a shard, [Holder] from which node a backup takes it, [View.Needed]
// which positions of EVENTS nodes may still read from, [View.LetGo]
// what a holder may give up. [View.Lacking], [View.Come] and [View.Unanswered]
// say how far the shards and their holders are (caughtup.go).
//
// Every value is checked when it is decoded, and one that no process can have written is
// ignored.
//
// The package imports the standard library and the nouns only. It does no I/O
// and reads no clock; bucket.Members is the part that does. No two clocks are
// compared: how long a member has been silent is what the observer has seen by
// its own, and only while it heard anything at all.
//
// # How shards are placed
//
// Placing is weighted rendezvous hashing (Thaler, Ravishankar, "A Name-Based
// Mapping Scheme for Rendezvous", 1996; the weights after Schindelhauer,
// Schomaker, "Weighted Distributed Hash Tables", 2005) with bounds on what each
// node holds. Decide begins with what the previous assignment says, so that
// nothing moves that need not: it takes out what may not stay, fills what is
// missing, and moves copies one by one while a node holds more or less than its
// bounds. docs/decisions/0020-assignment.md has the reasons and the limits.
package cluster
