package service

import (
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// What may wait in this process for the endpoints' subscriptions. nats.go's own
// limits are switched off: it drops what is above them without a word.
const (
	// waitingMax is a second or two of small requests: a client that has waited longer is
	// hardly still there. It is some 260,000 requests without a body.
	waitingMax = 32 << 20
	// waitingMessage is what a message is reckoned at besides its body.
	waitingMessage = 128
	// waitingMark is how often backlog makes sure of its figure.
	waitingMark = 1 << 20
)

// backlog says whether too much has arrived that no endpoint has taken yet: it
// compares what the connection has counted with what the endpoints, and discovery, have
// taken. That alone would drift, since the connection counts headers as well, and what
// discovery drops. So now and then a mark is put behind all that has arrived, in every
// subscription: when the last of them has passed it, all that is taken.
type backlog struct {
	nc     *nats.Conn
	taken  atomic.Int64 // never more than what was taken of all that has arrived
	marked atomic.Int64 // what had arrived at the last mark
}

func newBacklog(nc *nats.Conn) *backlog {
	b := &backlog{nc: nc}
	arrived := b.arrived()
	b.taken.Store(arrived)
	b.marked.Store(arrived)
	return b
}

func (b *backlog) arrived() int64 {
	in := b.nc.Stats()
	return int64(in.InBytes) + waitingMessage*int64(in.InMsgs)
}

// take counts a message that an endpoint takes, and says whether too much still
// waits.
func (b *backlog) take(bytes int) (full bool) {
	taken := b.taken.Add(int64(bytes) + waitingMessage)
	arrived := b.arrived()
	if last := b.marked.Load(); arrived-last >= waitingMark && b.marked.CompareAndSwap(last, arrived) {
		// An error is a closed connection's, on which nothing arrives.
		_ = b.nc.Barrier(func() { b.tookAll(arrived) })
	}
	return arrived-taken > waitingMax
}

// tookAll is called when everything up to there has been taken.
func (b *backlog) tookAll(arrived int64) {
	for taken := b.taken.Load(); taken < arrived && !b.taken.CompareAndSwap(taken, arrived); {
		taken = b.taken.Load()
	}
}
