// Package pull reads a stream through one pull consumer that it makes for itself: in
// memory, without acknowledgements, gone when it is closed.
//
// [Open] makes the consumer and asks for messages, which come through
// Puller.Arrived. Take accounts for each: it says where the message stands ([Ack], read
// by hand from the reply subject, ack.go), asks for more in time, and fails when a
// message was lost on the way. A Puller that has failed is closed, and its owner opens
// another one. It belongs to one goroutine.
//
// The doc of package jetlog says why the library's consumers are not used.
package pull
