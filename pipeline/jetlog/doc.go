// Package jetlog joins the pipeline to JetStream. No other room keeps the log in it;
// commands, the importer, package node and backups into a bucket import JetStream for
// what is theirs (rules_test.go lists them).
//
// Three streams and a bucket make up the log:
//
//	EVENTS      events.>      what producers publish: the only truth
//	DELTAS      (see edition) one message a window, appended by compare-and-set
//	DEADLETTER  deadletter.>  what could not be understood, with the reason
//	TIDEMARK    (key-value)   the router's lease, members and assignment, nodes' checkpoints, import progress
//
// The tour: [StartServer] embeds a server, on its own or in a cluster of such
// (natscluster.go), [Connect] reaches any. [OpenStreams]
// creates what is missing and refuses what does not fit; [Streams.Restore]
// recreates what was deleted. [OpenSource] reads
// EVENTS and [OpenTailer] reads DELTAS, both through the one reader of
// reader.go. [DeltaLog] appends; [DeadLetters] keeps; [Lease] elects;
// [Checkpoints] remember how far nodes are; [Members] say who is there and who
// holds what (package cluster); [Events] is mended after a power cut (I10).
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
