// Package wire is how nodes ask each other: the bytes of [query.Holder]'s
// methods, as they go over NATS to the subject of a holder.
//
//	asker ─► batch of parts, each a question ──────────────► holder
//	asker ◄─ message: pieces of answers, each names its part ◄─┘
//
// A batch holds the questions of several callers to one holder. The answer to a
// part is a list of records, and is cut between records into as many pieces as
// it takes, which come in order; pieces of different parts share messages, and come
// in any order.
//
// frame.go has what stands around parts and pieces: versions, checksum, limits.
// ask.go has the questions, answer.go the records, decode.go reads them, cursor.go a message's bytes.
// shares.go has followees on their way from a user's holder to their own, sets.go what is asked of sets.
// How ids are packed is in query/internal/packed.
// docs/formats.md draws all of it.
//
// What comes from the wire may come from anybody: a decoder returns an error and
// never panics, and what it allocates is bounded by the bytes that it is given.
package wire
