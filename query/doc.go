// Package query answers questions about the counters over NATS.
//
// [Service] is the NATS micro service "tidemark": it reads a request from the
// wire, resolves its words against the schema, waits until enough of the log
// is applied, asks a [Reader] and writes the reply. The Reader is the role
// that state fills: rows in batches, partial answers named as such.
//
// One endpoint is one file: get.go is tidemark.get from its request to its
// reply, stats.go and schema.go the same for theirs. request.go holds what
// all requests share, service.go the frame they run in. Go programs speak to
// the service through the package client; docs/queries.md tells everyone else
// what goes over the wire.
package query
