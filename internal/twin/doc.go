// Package twin holds a naive model of Tidemark and the twin test: what the
// pipeline and a node answer about generated events must equal what the model
// answers, which is written from the contract's sentences, keeps the list of
// all events and works every answer out from it anew.
//
//	event.go          an event as its producer means it, and its JSON
//	model.go          the naive model, sentence by sentence
//	sets.go           what counts once, where the configuration says so
//	generate.go       events by chance
//	facts.go          both for other tests: [Generate], [Model], [Configuration]
//	community.go      both for tests of whole processes: [Community], [Board]
//	reading.go        a question for counts and members that must agree: [OneReading]
//	crowd.go          a model for users with a million followees: [Crowd]
//	crowd_test.go     that model against the naive one
//	world_test.go     the real thing: messages, windows, a node on Badger, restarts and crashes
//	twin_test.go      one against the other, thousands of sequences; shrinks what fails
//	story_test.go     how the cases are written
//	cases_test.go     the cases that must be right, each with its sentence
//	holders_test.go   holders of some shards each, put together by merged_test.go
//	explain_test.go   the events behind each number
//	audit_test.go     audits, with and without a backup, and drift for them to find
package twin
