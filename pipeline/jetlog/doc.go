// Package jetlog joins the pipeline to JetStream: it connects to the server, and creates,
// reads, appends to and mends the streams EVENTS and DELTAS.
//
// Three streams and a bucket make up the log:
//
//	EVENTS      events.>      what producers publish: the only truth
//	DELTAS      (see edition) one message a window, appended by compare-and-set
//	DEADLETTER  deadletter.>  what could not be understood, with the reason
//	TIDEMARK    (key-value)   the router's lease, members and assignment, nodes' checkpoints, import progress
//
// It creates all four. Two rooms build on it: package bucket has the keys, package letters
// has DEADLETTER. Package embed, which imports nothing of ours, is the server that a node
// may bring. Outside these rooms, commands, the importer, package node and backups into a
// bucket import JetStream for what is theirs (rules_test.go lists them).
//
// The tour: [Connect] reaches a server. [OpenStreams]
// creates what is missing and refuses what does not fit (misfits.go); [Attach] opens what
// others have created; [LookAt] compares and opens nothing (look.go); [Streams.Restore]
// recreates what was deleted. [OpenSource] reads EVENTS and [OpenTailer] reads DELTAS, both
// through the one reader of reader.go. [DeltaLog] appends; resent.go is how an event that was sent again is read.
// [Streams.Trim] takes the beginning from EVENTS, [Streams.MoveOn] has it go on from a lost one, and [Streams.RefuseWrites]
// has it refuse events; both change its settings through marks.go. [Slot] is where a
// generation has its DELTAS (slot.go, room.go).
//
// A [Streams] lives as long as the connection that it was opened on, needs no Close, and
// is safe for concurrent use. A source or tailer belongs to one goroutine. The locks are
// those of the figures (StreamStats) and of the edition that a DeltaLog appends to; they
// are never held together.
//
// # Why not the library's ordered consumer
//
// The reader is an ordered consumer by the book: ephemeral, in memory, without
// acknowledgements, checked by its consumer sequence and recreated after the
// last good message whenever anything is odd. It is written out here rather
// than taken from nats.go for four reasons, which the tests and BenchmarkRead hold:
//
//   - An event whose body is empty and that carries a header "Status" looks
//     like a control message to the library, which drops it, sees the
//     sequence break and starts over at the same message, for ever. One
//     hostile producer would stop the pipeline (I9).
//   - When it makes its consumer anew it does not look whether the stream is
//     still the same one, or whether messages it has not read are gone (I10).
//   - When the stream is deleted it retries for ever, in silence.
//   - It takes locks and a timer for every message, on cores that the router's
//     lanes need.
package jetlog
