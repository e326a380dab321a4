package query

import "sync/atomic"

// lane is for requests that the subscriptions' goroutines leave to others, so
// that they do not hold up those behind them. There are four: heavy for large
// requests, pages for feeds and lists of users, cold for those that must read
// the disk, writes for those that wait for the log.
//
// One that finds no place is refused. To answer it in its subscription's
// goroutine would hold up the small ones behind it.
//
// A call is in one lane at most. One that turns out to need the disk leaves its
// lane for the cold one.
type lane struct {
	most    int64         // requests in the lane at once
	workers chan struct{} // a place for each that is worked on; nil: all are
	refuses string        // what is in the lane, when one more is refused
	noTurn  string        // what one is told that waited for a worker in vain
	in      atomic.Int64
}

// newLanes divides the requests in flight: no lane can take them all.
func newLanes(l Limits) (heavy, pages, cold, writes *lane) {
	heavy = &lane{
		most:    int64(max(l.Requests/4, 1)),
		workers: make(chan struct{}, l.Workers),
		refuses: "large requests",
		noTurn:  "no turn for a large request; ask again later, or for less at once",
	}
	pages = &lane{
		most:    int64(max(l.Requests/4, 1)),
		workers: make(chan struct{}, l.Workers),
		refuses: "requests for pages",
		noTurn:  "no turn for a page; ask again later",
	}
	cold = &lane{
		most:    int64(max(l.Requests/4, 1)),
		workers: make(chan struct{}, l.ColdReads),
		refuses: "requests that read the disk",
		noTurn:  "no turn for a request that reads the disk; ask again later",
	}
	writes = &lane{most: int64(max(l.Requests/2, 1)), refuses: "reads"}
	return heavy, pages, cold, writes
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
	return fail(codeNotReady, "busy: %d %s are in flight%s; ask again later", l.most, l.refuses, c.endpoint.early)
}
