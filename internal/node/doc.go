// Package node runs one process of Tidemark. It puts the rooms together, from the streams
// to the answers, and starts and stops them in order.
//
// [Start] makes a [Node], and [Node.Close] stops it. A Node has one generation or two
// (package counting). A generation counts by one configuration: it reads EVENTS, routes or
// follows its own DELTAS, holds shards, and answers other nodes for them. One generation
// serves: by it the process answers everybody. The other one is being built, or is kept to
// go back to. What all generations of a process use is in counting.Process, which the start
// fills in; what a generation asks of its process is counting.Host. A Node calls methods of
// a generation, and reads no field of it but which one it is and what it counts by.
//
//	Start ─► HTTP port, data directory, NATS ─► the record of generations: which one serves
//	      ─► that generation: streams, members, store, shards ─► answers ─► begin
//	Close ─► no more requests ─► generations: a last checkpoint ─► HTTP, store, NATS, data directory
//
// One goroutine, attendRebuilds, opens and closes generations and says which one serves.
//
// The process:
//
//	node.go stop.go host.go              Node: how it opens and closes; what generations ask of it
//	connect.go led/                      connections; how a start waits for the server
//	natscluster.go tend.go               the embedded server, in a cluster and on a full disk
//	datadir/                             the data directory, and what it has of each generation
//	http.go door/                        /metrics, /readyz and /healthz; HTTP for applications
//	serve.go reader.go jobs.go           what answers everybody; what commands ask
//	thin.go                              a process that only answers
//	restore.go repair.go                 a data directory from a backup; ways out by hand
//
// Which generations there are:
//
//	record.go rebuilds.go switch.go      the record; what is open here; from one that serves to the next
//	rebuild.go rebuildbegin.go rebuilddrop.go   the leader: each step of a rebuild
//	rebuildask.go rebuildjobs.go rebuildplan.go rebuildfigures.go   its commands and figures
//	rebuild/                             two generations, compared with the log
//
// What generations use: counting/, and below it history/, lookup/, checks/, upkeep/, shardlog/.
package node
