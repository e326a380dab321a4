// Package pipeline holds Tidemark's nouns and the loop that joins them.
//
// One event's way, in this package's words: a [Message] of the stream EVENTS
// stands at a [Position]. A [Deriver] turns a run of messages into a
// [Window]: for every [Shard] a section of changes, merged by the law of
// [Delta]. The [Router] reads a [Source], derives in parallel lanes and
// appends the windows, in order and one at a time, to the [Log] DELTAS.
// Every state node follows that log and applies each section to its shard.
//
// The package imports the standard library only, does no I/O of its own and
// reads no clock except to pace itself. The rooms that do (jetlog, sinks, query)
// import it; of each other only sinks imports query, for the types of answers.
// rules_test.go has what each room may import.
//
// Invariants are cited by number; docs/architecture.md lists them.
package pipeline
