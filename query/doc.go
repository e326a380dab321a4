// Package query answers questions about the counters and unread numbers over
// NATS, and takes in what users have read.
//
// [Service] is the NATS micro service "tidemark": it reads a request from the
// wire, resolves its words against the schema, waits until enough of the log
// is applied, asks a [Reader] and writes the reply. The Reader is the role
// that state fills: rows in batches, partial answers named as such.
//
// One endpoint is one file: get.go is tidemark.get from its request to its
// reply, unread.go, read.go, stats.go, slowlog.go and schema.go the same for
// theirs; page.go has the three that answer page by page (feed, following,
// followers). request.go holds what all requests share, ids.go their long
// lists, service.go the frame they run in, backlog.go what may wait in front
// of it, lane.go who waits for whom in it and ahead.go who waits for what is not
// in the log. clock.go parts the time that a request takes, slow.go remembers
// those that took long.
//
// get and unread have a binary form beside JSON: binary.go, and the package
// internal/packed, which the Go client shares.
//
// What is asked may be in memory or on disk. A small request is answered in
// its subscription's goroutine as long as all of it is in memory; one that is
// not goes on in the lane for cold requests, so that it holds up nobody.
//
// A Reader may be spread over several nodes (spread.go). A request that needs
// other nodes than this one goes on in the far lane; the package spread asks them.
//
// tidemark.read alone writes: it puts an event into the log, by a [Publisher],
// and is checked as strictly as the router checks it. Go programs speak to
// the service through the package client; docs/queries.md tells everyone else
// what goes over the wire.
package query
