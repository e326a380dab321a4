// Package node runs one process of Tidemark. It puts the rooms together, from the streams
// to the answers, and starts and stops them in order.
//
// [Start] makes a [Node], and [Node.Close] stops it. A Node has one generation or two. A
// generation counts by one configuration: it reads EVENTS, routes or follows its own
// DELTAS, holds shards, and answers other nodes for them. One generation serves: by it the
// process answers everybody. The other one is being built, or is kept to go back to. What
// all generations of a process use is in the struct process; what a generation asks of its
// process is the interface host. A Node calls methods of a generation, and reads no field of
// it but which one it is (number, slot, config).
//
//	Start ─► HTTP port, data directory, NATS ─► the record of generations: which one serves
//	      ─► that generation: streams, members, store, shards ─► answers ─► begin
//	Close ─► no more requests ─► generations: a last checkpoint ─► HTTP, store, NATS, data directory
//
// One goroutine, attendRebuilds, opens and closes generations and says which one serves.
// One goroutine of each generation, follow, changes which shards are held.
//
// The process:
//
//	node.go stop.go                      Node: how it opens and closes
//	connect.go led/                      connections; how a start waits for the server
//	natscluster.go tend.go               the embedded server, in a cluster and on a full disk
//	datadir/                             the data directory, and what it has of each generation
//	http.go metrics.go                   /metrics, /readyz and /healthz
//	serve.go reader.go jobs.go           what answers everybody; what commands ask
//	thin.go                              a process that only answers
//
// One generation:
//
//	generation.go open.go duties.go      generation: how it opens and closes; what it does while it serves
//	streams.go history/                  its streams, and what is archived of EVENTS
//	answers.go lookup/                   its answers, and which node is asked about which shard
//	route.go letters.go keep.go          routing, dead letters, housekeeping
//	lag.go freshness.go caughtup.go      how far it lags; where EVENTS ends; whether all nodes have caught up
//	remarks.go                           what /readyz says of it
//	members.go degrade.go differs.go     what it says of itself, what operators switch off, where the file differs
//	explain.go                           which events are behind a number
//
// Its shards:
//
//	shardlog/                            log lines about shards, one for many
//	holdings.go commons.go               which are held, and how they come
//	derive.go heal.go renewals.go        derived from EVENTS; taken again after a fault, or when they differ
//	parting.go spare.go                  compared and given up; stored for a while
//
// Which generations there are:
//
//	record.go rebuilds.go switch.go      the record; what is open here; from one that serves to the next
//	rebuild.go rebuildbegin.go rebuilddrop.go   the leader: each step of a rebuild
//	rebuildask.go rebuildjobs.go rebuildplan.go rebuildfigures.go   its commands and figures
//	compare.go rebuild/                  two generations, compared with the log
//
// Upkeep:
//
//	audit.go checks.go checks/           what is served, compared with the log
//	base.go upkeep/                      backups: what they stand for; they are made, EVENTS is trimmed
//	restore.go repair.go                 a data directory from a backup; ways out by hand
//	restoring.go                         what both do of a generation
package node
