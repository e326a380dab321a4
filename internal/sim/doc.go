// Package sim is a log and a disk that lie within their contracts, and the
// simulation that runs on them: routers, DELTAS, the nodes that follow it and
// their checkpoints, on one schedule and one clock, all from a seed.
//
// The fakes, for tests of any package:
//
//	server.go   EVENTS, DELTAS, DEADLETTER and the lease in memory; what happens to them
//	stream.go   a stream: sequences, deletions, message ids, a tail that is not on disk yet
//	gate.go     what stands before every call: which call goes on next, and what goes wrong
//	reader.go   pipeline.Source and pipeline.Tailer    deltas.go   pipeline.Log
//	events.go   pipeline.Events                        lease.go    pipeline.Lease
//	letters.go  pipeline.DeadLetters
//	bucket.go   the keys of nodes and of what they hold
//	disk.go     cold.Engine: what a process's store commits, which outlives it
//
// [Server.NewClient] is one process's view. Without a [Gate] every call goes
// well, at once. contract_test.go holds one suite, which the fake and jetlog on
// the embedded server both pass, and engine_test.go in sinks/cold one for the
// disk and Badger: what the simulation finds is true of the real ones as far as
// those suites go.
//
// Faults are where the roles let them show. A reader of jetlog's hides what the wire
// doubles, drops and resets (that is tested there, against the server); so here a
// reader returns runs of any length, breaks off, still returns what it had read before
// a power cut, and must find its place again after one. An append is stored or not,
// whatever its caller hears, or later; two may believe that they hold the lease. A
// commit is refused, or on disk when its process crashes, or not; for a while nothing
// can be read. A section makes no sense after all its changes: its shard stops in the
// middle of a window, and the node goes on without it until it starts anew.
//
// The simulation:
//
//	schedule_test.go  the gate that lets one call on at a time
//	world_test.go     what happens next, by chance; what must hold all the while
//	process_test.go   a node: the real pipeline.Router, Follower and Guard, the real lanes and sinks.Node
//	given_test.go     what each shard must have applied
//	facts_test.go     what a node must answer, if the model is right
//	nodes_test.go     some shards each: who holds what, and moves
//	inquiry_test.go   what several nodes answer together
//	audit_test.go     audits, and drifts for them to find
//	explain_test.go   what is behind the numbers, in the end
//	sim_test.go       seeds
//	freshness_test.go how old answers are: processes cut off from the log, old directories put back
//	broken_test.go    what must be noticed; brokenparts_test.go, what is left out for it
//
// Everything runs in a testing/synctest bubble. Between two steps every
// goroutine waits, at the gate or for the clock; a step is drawn from the seed
// (one call goes on, with a fate; producers store something; a process crashes;
// power is cut; time passes), and what it sets in motion comes to rest before
// the next. What runs in between is one call's sequel, or the sequels of timers
// that share no state: so the order in which the runtime wakes goroutines does
// not show, and a seed is the same story every time (TestNet).
//
// Looks at a disk pass no gate, because shards look under their locks. Where
// memory is bounded, a window is handed over only while the owners keep up: so
// reading ahead and evicting never meet within a step (world.pace).
//
// Among nodes (TestNodes) processes hold some of the shards each. Each sees the
// bucket's keys by the real cluster.Roster; the routing one decides by View.Next;
// shards are copied by the real cold.Export and Import, taken up and given up by the
// real Hold and Release, and given up by the real View.LetGo. Two things
// are copies of the real ones, which know NATS: when a move begins and ends, after
// internal/node, and what splits and merges answers, which is dumber than query/spread.
// Streams lose nothing there. Processes stand still, are cut off from the log and the
// bucket while others still ask them, and start from an old copy of their disk. The
// real pipeline.Freshness says which answers are whole: these must have all that was
// stored long enough before (I11). Of all goroutines that ask, one passes on the
// position of the last answer, and never gets an older one (I6).
//
// At random moments, whenever a position is reached that somebody waited for
// (I6), and at the end, all that a node answers is compared with internal/twin's
// model, which has for each shard all events up to where that shard stands (I1, I4).
// Windows must chain (I2), a shard that meets a gap fails the seed (I3), after a
// crash a shard stands at the end of a window that it had been given, and not
// before its last acknowledged checkpoint (I4), and every refused event must be
// in DEADLETTER (I9).
package sim
