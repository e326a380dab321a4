// Package twin holds the twin test: what the pipeline and a node answer about
// generated events must equal what a naive model answers, which is written
// from the contract's sentences, keeps the list of all events and works every
// answer out from it anew. Only tests live here.
//
//	event_test.go     an event as its producer means it, and its JSON
//	model_test.go     the naive model, sentence by sentence
//	world_test.go     the real thing: messages, windows, a node on Badger, restarts and crashes
//	generate_test.go  events by chance
//	twin_test.go      one against the other, thousands of sequences; shrinks what fails
//	story_test.go     how the cases are told
//	cases_test.go     the cases that must be right, each with its sentence
//	marks_test.go     those about reads, channels and ages
package twin
