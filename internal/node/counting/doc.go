// Package counting runs one generation of a process: all that it counts by one
// configuration, from EVENTS to its answers.
//
// [New] makes a [Generation]. OpenAll opens it step by step, Begin starts what runs as long
// as it does, Close makes a last checkpoint. BeginServing and EndServing begin and end what
// it does only while it serves. What it shares with the other generations of its process is
// in [Process]; what it asks of the process is [Host]. It ends with the context of New.
//
//	New ─► OpenAll: room ─► streams ─► members ─► store and shards ─► router ─► audit ─► log ends ─► other nodes
//	    ─► Begin ─► BeginServing ─► EndServing ─► Close ─► CloseStore
//	       └► (beside another one: never serves) ─► CloseAll
//	    ─► it does not begin: Undo with the process, UndoAll without
//
// Goroutines, from Begin on: follow applies DELTAS and alone changes which shards are held;
// route is the router while this process has the lease; arrange decides what is assigned and
// begins moves; keep does housekeeping. Locks: users before all others; audits.distrusting
// before audits.mu and holdings.mu, of which a goroutine holds one at a time. holdings.mu
// guards renewals, too.
//
// The generation:
//
//	generation.go open.go duties.go      how it opens and closes; what it does while it serves
//	streams.go keep.go                   its streams; housekeeping
//	route.go letters.go                  routing, dead letters
//	answers.go explain.go                its answers; which events are behind a number
//	lag.go freshness.go caughtup.go      how far it lags; where EVENTS ends; whether other nodes are as far
//	members.go degrade.go differs.go     what it says of itself, what operators switch off, where the file differs
//	remarks.go metrics.go inside.go      what /readyz says of it; its figures; what tests look into
//
// Its shards:
//
//	holdings.go commons.go               which are held, and how they come
//	derive.go heal.go renewals.go        derived from EVENTS; taken again after a fault, or when they differ
//	spare.go                             given up, and stored for a while
//
// Checks and upkeep:
//
//	audit.go checks.go                   what is served, compared with the log; the jobs that ask for it
//	base.go restoring.go                 backups that stand for a beginning; what a restore does of a generation
package counting
