// Package sim is a log that lies within its contract, and the simulation that
// runs on it: routers, DELTAS and those who follow it, on one schedule and one
// clock, all from a seed.
//
// The fake, for tests of any package:
//
//	server.go   EVENTS, DELTAS, DEADLETTER and the lease in memory; what happens to them
//	stream.go   a stream: sequences, deletions, message ids, a tail that is not on disk yet
//	gate.go     what stands before every call: who goes on next, and what goes wrong
//	reader.go   pipeline.Source and pipeline.Tailer    deltas.go   pipeline.Log
//	letters.go  pipeline.DeadLetters                   lease.go    pipeline.Lease
//
// [Server.NewClient] is one process's view. Without a [Gate] every call goes
// well, at once. contract_test.go holds one suite, which the fake and jetlog on
// the embedded server both pass: what the simulation finds is true of the real
// log as far as that suite goes.
//
// Faults are where the roles let them show. A reader of jetlog's hides what the
// wire doubles, drops and resets (that is tested there, against the server); so
// here a reader returns runs of any length, breaks off, still returns what it
// had read before a power cut, and must find its place again after one. An
// append is stored or not, whatever its caller is told, or later; the lease may
// have two who believe to hold it.
//
// The simulation:
//
//	schedule_test.go  the gate that lets one call on at a time
//	world_test.go     what happens next, by chance; what must hold all the while
//	process_test.go   a node: the real pipeline.Router, the real lanes, and a follower
//	state_test.go     what a follower keeps: plain maps
//	sim_test.go       seeds
//	broken_test.go    what must be noticed
//
// Everything runs in a testing/synctest bubble. Between two steps every
// goroutine waits, at the gate or for the clock; a step is drawn from the seed
// (one call goes on, with a fate; producers store something; a process crashes;
// power is cut; time passes), and what it sets in motion comes to rest before
// the next. What runs meanwhile is one call's sequel, or the sequels of timers
// that share no state: so the order in which the runtime wakes goroutines does
// not show, and a seed is the same story every time (TestSameSeedSameStory).
//
// At random moments and at the end, what each shard has is compared with
// internal/twin's model, told all events up to where the shard stands (I1, I4);
// windows must chain (I2), a shard that meets a gap fails the seed (I3), and
// every refused event must be in DEADLETTER (I9).
package sim
