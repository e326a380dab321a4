package service

import "sync/atomic"

// lane is for requests that the subscriptions' goroutines leave to others, so
// that they do not hold up those behind them.
//
// One that finds no place is refused. To answer it in its subscription's
// goroutine would hold up the small ones behind it.
//
// A call is in one lane at a time. While it waits for its min_position it takes no
// place from requests that can be worked on, and one that turns out to need the disk
// leaves its lane for the cold one.
type lane struct {
	most    int64         // places
	workers chan struct{} // a place for each that is worked on; nil: all are
	refuses string        // what is in the lane, when one more is refused
	noTurn  string        // the answer to one that waited for a worker in vain
	inTurns bool          // they compute in turns with those of other lanes: see Service.inTurn
	place   int           // bytes of request that take a place; 0: a request takes one
	in      atomic.Int64  // places taken
}

const (
	// farPlaces is how many places in the far lane there are for each of
	// Limits.Requests: with the default 4,096, which hold 16 MiB of requests.
	// They wait for less than a millisecond, as a rule.
	farPlaces = 4
	farPlace  = 4 << 10 // bytes of request that take a place
)

// lanes are all there are.
type lanes struct {
	unsure      *lane // requests that wait to know whether the log holds their min_position
	waits       *lane // requests that wait for their min_position
	longWaits   *lane // the long ones of these: each holds its whole message
	futures     *lane // requests that wait for what the log does not hold yet
	longFutures *lane // the long ones of these
	heavy       *lane // large requests
	pages       *lane // feeds and lists of users
	cold        *lane // requests that must read the disk
	far         *lane // requests that wait for other nodes
	writes      *lane // requests that wait for the log
	explains    *lane // requests that read the log
	spare       *lane // requests of some size, while processors may be free; nobody waits or is refused
}

func newLanes(l Limits) lanes {
	quarter := int64(max(l.Requests/4, 1))
	return lanes{
		unsure:      &lane{most: unsureMax, place: unsurePlace, refuses: "requests that wait for the log to say where it ends"},
		waits:       &lane{most: int64(l.Requests), refuses: "requests that wait for their min_position"},
		longWaits:   &lane{most: quarter, refuses: "large requests that wait for their min_position"},
		futures:     &lane{most: quarter, refuses: "requests that wait for what the log does not hold yet"},
		longFutures: &lane{most: max(quarter/4, 1), refuses: "large requests that wait for what the log does not hold yet"},
		heavy: &lane{
			most:    quarter,
			workers: make(chan struct{}, l.Workers),
			inTurns: true,
			refuses: "large requests",
			noTurn:  "no turn for a large request; ask again later, or for less at once",
		},
		pages: &lane{
			most:    quarter,
			workers: make(chan struct{}, l.Workers),
			inTurns: true,
			refuses: "requests for pages",
			noTurn:  "no turn for a page; ask again later",
		},
		cold: &lane{
			most:    quarter,
			workers: make(chan struct{}, l.ColdReads),
			refuses: "requests that read the disk",
			noTurn:  "no turn for a request that reads the disk; ask again later",
		},
		far:    &lane{most: int64(l.Requests) * farPlaces, place: farPlace, refuses: "places of requests that wait for other nodes"},
		writes: &lane{most: int64(max(l.Requests/2, 1)), refuses: "reads"},
		explains: &lane{
			most:    explainPlaces,
			workers: make(chan struct{}, l.Workers),
			refuses: "requests that read the log",
			noTurn:  "no turn for a request that reads the log; ask again later",
		},
		spare: &lane{most: int64(max(1, l.Processors-1))},
	}
}

// enter takes a call in if there is a place.
func (l *lane) enter(c *call) bool {
	if l.in.Add(l.takes(c)) > l.most {
		l.in.Add(-l.takes(c))
		return false
	}
	c.lane = l
	return true
}

// takes is how many places the call needs.
func (l *lane) takes(c *call) int64 {
	if l.place == 0 {
		return 1
	}
	return 1 + int64(len(c.body)/l.place)
}

// admit takes a call in or says why not. No lane takes all, nowhere.
func (l *lane) admit(c *call) *failure {
	if l == nil || l.enter(c) {
		return nil
	}
	return fail(codeNotReady, "busy: %d %s are in flight%s; ask again later", l.most, l.refuses, c.endpoint.early)
}

// tooLate is the answer for a call that got no worker in its time.
func (l *lane) tooLate() *failure { return fail(codeNotReady, "busy: %s", l.noTurn) }

// leave gives a call's place back; at its finish, if not before.
func (c *call) leave() {
	if c.lane != nil {
		c.lane.in.Add(-c.lane.takes(c))
		c.lane = nil
	}
}
