package service

import (
	"sync"
	"time"
)

// What happens once is worth a line in the log, and what goes on for minutes is
// not worth thousands: somebody must find the other lines.
const (
	linePause    = time.Second // after the first line; twice as long after each
	linePauseMax = time.Minute
	// lineQuiet is how long nothing of a kind must happen for the next to be
	// news again.
	lineQuiet = time.Minute
)

// linePace says which events of a kind get a line in the log: the first, then
// one after a pause that grows while they go on. The zero value is ready.
type linePace struct {
	mu      sync.Mutex
	seen    time.Time     // the latest event
	next    time.Time     // before it no line
	pause   time.Duration // after the latest line
	leftOut uint64        // events since then
}

// line says whether an event at that time gets one, and how many got none
// since the line before.
func (p *linePace) line(now time.Time) (line bool, leftOut uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.seen) >= lineQuiet {
		p.pause = 0
	}
	p.seen = now
	if now.Before(p.next) {
		p.leftOut++
		return false, 0
	}
	leftOut, p.leftOut = p.leftOut, 0
	p.pause = min(max(2*p.pause, linePause), linePauseMax)
	p.next = now.Add(p.pause)
	return true, leftOut
}
