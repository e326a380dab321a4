// Package explain finds the events behind a number. It reads them in
// EVENTS, runs the rules over each alone, and says what that changed.
//
//	newest ◄──────────────────────── back through the log ──────────────────────── oldest
//	 tail, read │ stretch │ stretch │ stretch │ … each with a filter of the ids in it
//	            └── passed over, unless the filter has the id (stretch.go, filters.go)
//
// A change that does not depend on what was before (+1, =0) follows from the event
// itself, so a page needs no more than its own events (page.go). Some depend on it:
// whether a follow was new depends on the last event between the same two users
// (pairs.go), and whether a member was in a set already on the last event that put it
// in or took it out (sets.go); what a read with `seen` took off, and whether a row
// existed, depend on the count, which is worked out from the last event that set it.
//
// Filters are a cache: whatever they lack is read. They know nothing of rules:
// what is in them is every whole number that stands in an event.
package explain
