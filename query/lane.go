package query

import "sync/atomic"

// lane is for requests that the subscriptions' goroutines leave to others, so
// that they do not hold up those behind them.
//
// One that finds no place is answered in its subscription's goroutine: then
// requests wait in NATS's queue, as they would without lanes. Where a request
// waits for somebody else, so that one such answer could hold up the queue for
// seconds, it is refused.
type lane struct {
	most    int64         // requests in the lane at once
	workers chan struct{} // a place for each that is worked on; nil: all are
	refuses string        // what is in the lane, when one more is refused
	in      atomic.Int64
}

// newLanes divides the requests in flight: neither lane can take them all.
func newLanes(l Limits) (heavy, writes *lane) {
	heavy = &lane{most: int64(max(l.Requests/4, 1)), workers: make(chan struct{}, l.Workers)}
	writes = &lane{most: int64(max(l.Requests/2, 1)), refuses: "reads"}
	return heavy, writes
}

// admit takes a call in; it leaves at its finish.
func (l *lane) admit(c *call) *failure {
	if l == nil {
		return nil
	}
	if l.in.Add(1) <= l.most {
		c.lane = l
		return nil
	}
	l.in.Add(-1)
	if l.refuses == "" {
		return nil
	}
	return fail(codeNotReady, "busy: %d %s are in flight%s; ask again later", l.most, l.refuses, c.endpoint.early)
}
