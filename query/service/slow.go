package service

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Slow says which requests tidemark.slowlog remembers.
type Slow struct {
	// Threshold is the time above which a request is slow: then it is kept
	// among the latest, counted, and logged (see linePace, for each endpoint).
	// What it waited for a position is not counted in: the log was not there
	// yet, and no answer could be. 0: nothing is slow, and only the slowest are
	// kept.
	Threshold time.Duration
	// Entries is how many of the slowest and how many of the latest are kept.
	// Default 128: each takes a kilobyte at most, and people read no more.
	Entries int
}

const (
	// slowRequestMax is how many bytes of what was asked are kept: two dozen
	// ids, enough to ask it again by hand.
	slowRequestMax = 512
	// slowLineMax is how many of them the log's line has.
	slowLineMax = 120
)

// slowLog remembers requests that took long: the slowest since the last reset, however
// long ago, and the latest above the threshold. The one list shows what can happen, the
// other what happens now.
//
// For a request that is neither it costs two comparisons.
type slowLog struct {
	threshold time.Duration
	entries   int

	bar atomic.Int64 // what took no longer is not among the slowest

	mu      sync.Mutex
	since   time.Time    // of the last reset
	over    uint64       // requests above the threshold since then
	slowest []*slowEntry // the longest first, entries at most
	latest  []*slowEntry // a ring: the oldest is at next once it is full
	next    int
	paces   map[string]*linePace // by endpoint: bulk work of one must not hide what is slow at another
}

// slowEntry is a request that was answered. It does not change.
type slowEntry struct {
	clock     clock // stopped
	endpoint  string
	code      code
	ids, cold int
	request   string // clipped, on one line
}

func newSlowLog(o Slow) *slowLog {
	if o.Entries <= 0 {
		o.Entries = 128
	}
	l := &slowLog{threshold: max(o.Threshold, 0), entries: o.Entries, paces: map[string]*linePace{}}
	l.take(true)
	return l
}

// wants reports whether a request that took so long may be kept.
func (l *slowLog) wants(k *clock) bool { return int64(k.total) > l.bar.Load() || l.isOver(k) }

func (l *slowLog) isOver(k *clock) bool {
	return l.threshold > 0 && k.total-k.spent[stagePosition] > l.threshold
}

// add keeps an entry where it belongs. over says that it is above the threshold, line
// that it should be logged, leftOut how many were above it and not logged since the
// line before.
func (l *slowLog) add(e *slowEntry) (over, line bool, leftOut uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := e.clock.total
	if len(l.slowest) < l.entries || total > l.slowest[l.entries-1].clock.total {
		at, _ := slices.BinarySearchFunc(l.slowest, total, func(o *slowEntry, total time.Duration) int {
			if o.clock.total >= total { // of those as slow, the first stays first
				return -1
			}
			return 1
		})
		l.slowest = slices.Insert(l.slowest[:min(len(l.slowest), l.entries-1)], at, e)
	}
	if over = l.isOver(&e.clock); over {
		line, leftOut = l.overLocked(e)
	}
	l.raiseLocked()
	return over, line, leftOut
}

func (l *slowLog) overLocked(e *slowEntry) (line bool, leftOut uint64) {
	l.over++
	if len(l.latest) < l.entries {
		l.latest = append(l.latest, e)
	} else {
		l.latest[l.next] = e
		l.next = (l.next + 1) % l.entries
	}
	pace := l.paces[e.endpoint]
	if pace == nil {
		pace = new(linePace)
		l.paces[e.endpoint] = pace
	}
	return pace.line(e.clock.start.Add(e.clock.total))
}

func (l *slowLog) raiseLocked() {
	bar := time.Duration(-1) // there is room for any
	if len(l.slowest) == l.entries {
		bar = l.slowest[l.entries-1].clock.total
	}
	l.bar.Store(int64(bar))
}

// slowView is what a slowLog holds: the slowest first, the latest first.
type slowView struct {
	since           time.Time
	over            uint64
	slowest, latest []*slowEntry
}

// take shows what is kept, and with reset forgets it in the same moment: no
// request is lost in between.
func (l *slowLog) take(reset bool) slowView {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := slices.Concat(l.latest[l.next:], l.latest[:l.next])
	slices.Reverse(latest)
	view := slowView{l.since, l.over, slices.Clone(l.slowest), latest}
	if reset {
		l.since, l.over, l.slowest, l.latest, l.next = time.Now(), 0, nil, nil, 0
		l.raiseLocked()
	}
	return view
}

// remember keeps a call that slowLog.wants, at its end.
func (s *Service) remember(c *call, result code) {
	e := &slowEntry{
		clock: c.clock, endpoint: c.endpoint.name, code: result,
		ids: c.ids, cold: c.cold, request: clipTo(c.text(slowRequestMax), slowRequestMax),
	}
	over, line, leftOut := s.slow.add(e)
	if over {
		s.metrics.slow.Inc()
	}
	if line {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "query: a slow request", e.attributes(leftOut)...)
	}
}

// attributes are an entry's for the log; stages that took no time are left out.
func (e *slowEntry) attributes(leftOut uint64) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("endpoint", e.endpoint), slog.Int("code", int(e.code)),
		slog.Duration("total", e.clock.total),
	}
	for stage, spent := range e.clock.spent {
		if spent > 0 {
			attrs = append(attrs, slog.Duration(stageNames[stage], spent))
		}
	}
	return append(attrs, slog.Int("ids", e.ids), slog.Int("cold", e.cold),
		slog.Uint64("left_out", leftOut), slog.String("request", clipTo([]byte(e.request), slowLineMax)))
}
