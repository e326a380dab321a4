// Package operators turns events into changes: it decodes and checks them,
// runs the configuration's rules, merges what one window does to each cell by
// the delta law, and encodes windows. Everything in it is a pure function of
// the events and the rules (I5).
//
// [Compile] makes a [Program] of rules (rule.go, program.go), and a [Lane] runs it over
// messages (derive.go): decode.go and scan.go take a line apart, types.go and the file of
// a larger type check it, words.go finds a name, and merge.go gathers what it changes.
// A rule that says once counts in a set (once.go). trace.go does the same for one event.
package operators
