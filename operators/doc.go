// Package operators turns events into changes: it decodes and checks them,
// runs the configuration's rules, merges what one window does to each cell by
// the delta law, and encodes windows. Everything in it is a pure function of
// the events and the rules (I5).
package operators
