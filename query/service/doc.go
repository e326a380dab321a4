// Package service is the NATS micro service "tidemark": it answers questions about the
// counters and unread numbers, and takes in what users have read.
//
// [Service] reads a request from the wire, resolves its words against the schema
// (catalog.go), waits until enough of the log is applied, asks a [query.Reader] and
// writes the reply. A request in work is a call. It goes through:
//
//	handle ──► prepare ──► a lane ──────► wait ────────► answer ──► finish
//	backlog    parse       if it must     min_position   Reader     freshness, reply
//
// One endpoint is one file: get.go is tidemark.get from its request to its reply,
// unread.go, read.go, stats.go, slow.go, schema.go and explain.go the same for theirs;
// nodes.go has nodes and shards, page.go the three that answer page by page (feed,
// following, followers), members.go that of sets, view.go tidemark.page, which is a get;
// has.go says of both in which sets a member is. request.go holds what all requests share, ids.go their long
// lists, service.go starts and stops the service, call.go takes a call through the steps
// above. explained.go writes the answer of explain, sets.go reads the feed and channels.
//
// get and unread have a binary form beside JSON: binary.go, and the package
// query/internal/packed, which the Go client shares. fits.go refuses what is too large
// for a reply.
//
// A small request is answered in the goroutine of its subscription while all of it is in
// memory. Any other goes on in a lane (lane.go), on workers of its own, and delays no
// small one: large ones, pages, those that read the disk, those that need other nodes
// (spread.go), and those that wait for a position (ahead.go: also for one that is not in
// the log yet). backlog.go bounds what waits for a subscription, turn.go how many
// compute at once.
//
// fresh.go says of a reply how old it can be. clock.go divides the time of a request into
// stages, slow.go remembers the slow ones, pace.go limits their lines in the log,
// metrics.go counts.
//
// Stop takes the service off NATS, answers what has arrived, and returns. Three contexts
// end in this order: serving, reading, ctx. Service.mu guards only that no goroutine
// joins `waiting` after the end. Lock order: logEnd.mu before Service.mu, slowLog.mu before
// linePace.mu.
//
// Large because every endpoint is here, and all take the same steps: a call and its lanes
// know each endpoint, and endpoints use the memory of the call.
//
// tidemark.read alone writes: it puts an event into the log, by a [query.Publisher],
// and is checked as strictly as the router checks it. docs/queries.md says what goes over
// the wire.
package service
