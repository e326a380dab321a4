// Package letters keeps the events that were refused, in the stream DEADLETTER: it stores
// them, lists them, deletes them and sends them again.
//
// [DeadLetters] stores letters (deadletters.go) as messages with the headers of letter.go.
// A router that begins again derives letters that an earlier run has stored; stored.go
// looks for these first. [Box] reads DEADLETTER (box.go), counts and purges
// (upkeep.go). [Resender] sends letters again (resend.go): each event has one subject in
// EVENTS for this, so that it is stored once, whatever is interrupted. Before EVENTS is
// trimmed, [SettleBelow] deletes the letters of events that were sent again, because
// nothing says so afterwards.
//
// DeadLetters live as long as the connection; the router calls Begin each time that it
// begins. A command opens a Box for itself. Both are safe for concurrent use; a
// Resender belongs to one goroutine. The only lock is that of the letters found in
// DEADLETTER (stored.mu), and no request is made while it is held.
package letters
