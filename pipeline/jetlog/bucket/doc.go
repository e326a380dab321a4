// Package bucket reads and writes the keys of the bucket TIDEMARK: what processes say to
// each other outside the streams. docs/formats.md lists all keys. Those of this package:
//
//	member.<node>, assignment, drain.<node>, degrade   [Members]: members.go joins and beats,
//	                                                   members_watch.go watches, members_write.go decides
//	generations                                        [Generations] (generations.go)
//	router, backup                                     [Lease] (lease.go)
//	node.<node>                                        [Checkpoints] (checkpoints.go)
//	backup.last                                        [Note], [SetNote] (notes.go)
//
// The second slot has keys of its own (keys.go), which [Clear] removes (clear.go).
//
// Nothing here is the truth. The bucket may be lost, or restored from an old copy:
// jetlog.Streams.Restore creates it again, processes write again what they know, and a
// value that cannot be decoded is logged and ignored. Each write that decides something
// is a compare-and-set of the key's revision. No two clocks are compared: a process, or
// the holder of a lease, is silent when its key has not changed for so long by the clock
// of the process that watches.
//
// All types are opened on a jetlog.Streams, which outlives them. Members and Generations
// watch their keys in a goroutine of their own, from OpenMembers and OpenGenerations until
// Close. It begins again whenever anything is odd (rewatch). View and Seen return what was
// seen last; a caller takes the channel Changed before, and waits for it after. A Lease
// has a goroutine while it is held, and Checkpoints have none.
//
// Members.mu, Generations.mu and Lease.mu are never held together, and no request is made
// while one is held.
package bucket
