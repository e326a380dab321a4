package explain

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// search goes back through the log, and reads what may have what is looked for.
type search struct {
	parts   Parts
	filters *filters // nil: everything is read
	extent  Extent
	tracer  pipeline.Tracer
	soft    time.Time
	turn    func(work func()) // nil: at once
	stats   *Stats
	read    int // messages
}

// Messages are read in runs of so many where no filter is. A run begins small,
// because what is looked for may be in the newest event, and because it takes as
// long as it takes: a message has up to 1,024 events, or a megabyte.
const (
	runMin = 16
	runMax = 16_384
	// runTime is how long a run should take.
	runTime = 100 * time.Millisecond
)

// quest is what a search looks for.
type quest struct {
	may   func(*opened) (bool, error)       // asks a filter
	visit func(*pipeline.Message) bool      // says whether the message has something
	done  func(first uint64) (uint64, bool) // see back
}

// back visits, from the message `from` back to the log's beginning, what may
// have what is looked for: stretch by stretch, the messages of each in order, until
// done says so after one of them, or it is late. done is given the first sequence
// of what was visited, and returns the first that it has seen all from: what is
// before it is visited again. back returns the first sequence that it has come to:
// all from there on has been seen.
func (s *search) back(ctx context.Context, from uint64, q quest) (reached uint64, err error) {
	w := way{search: s, may: q.may}
	if s.filters != nil {
		w.known = s.filters.all()
	}
	next := newAhead(ctx, s.parts)
	defer next.close()
	reached, run := from+1, uint64(runMin)
	for reached > s.extent.First {
		e, ok := next.take(reached)
		if !ok {
			e = w.next(reached, run)
		}
		if e.part.last < s.extent.First { // the rest was passed over
			return s.extent.First, nil
		}
		if time.Now().After(s.soft) && s.read > 0 {
			next.put(e)
			return reached, nil
		}
		begun, some := time.Now(), false
		source, err := e.source(ctx, s.parts)
		if err != nil {
			return reached, err
		}
		next.fill(w, e, run)
		n, err := read(ctx, source, e.part, func(run []pipeline.Message) {
			s.inTurn(func() {
				for i := range run {
					some = q.visit(&run[i]) || some
				}
			})
		})
		s.read += n
		s.stats.read(e.covered, some, n)
		if err != nil {
			return reached, err
		}
		took, enough := time.Since(begun), false
		reached, enough = q.done(e.part.first)
		switch {
		case enough:
			return reached, nil
		case e.covered:
		case reached > e.part.first || took > 2*runTime:
			run = max(run/2, 1)
		case took < runTime/2:
			run = min(2*run, runMax)
		}
	}
	return reached, nil
}

func (s *search) inTurn(work func()) {
	if s.turn == nil {
		work()
		return
	}
	s.turn(work)
}

// way is which parts of the log are to be read, going back.
type way struct {
	*search
	known []stretch // that have filters, and are not passed yet
	may   func(*opened) (bool, error)
}

// next is the part to read when all from `reached` on has been: a stretch that may
// have what is looked for, or so many messages that have no filter. Where there is
// none, it is what stands before the log's first message.
func (w *way) next(reached, run uint64) entry {
	e := entry{after: reached}
	for reached > w.extent.First {
		for n := len(w.known); n > 0 && w.known[n-1].last >= reached; n-- {
			w.known = w.known[:n-1] // one that is begun is read
		}
		e.part, e.covered = stretch{w.extent.First, reached - 1}, false
		if n := len(w.known); n > 0 {
			if e.covered = w.known[n-1].last == e.part.last; e.covered {
				e.part.first = max(w.known[n-1].first, w.extent.First)
			} else {
				e.part.first = max(e.part.first, w.known[n-1].last+1)
			}
		}
		switch {
		case e.covered && !w.search.may(w.known[len(w.known)-1], w.may):
			reached = e.part.first
			continue
		case !e.covered && e.part.last-e.part.first >= run:
			e.part.first = e.part.last - run + 1
		}
		return e
	}
	return entry{after: e.after}
}

// may asks the filter of a stretch. One that is damaged is taken away, to be
// made again.
func (s *search) may(part stretch, may func(*opened) (bool, error)) bool {
	o, err := s.filters.open(part)
	if err == nil {
		defer o.close()
		var is bool
		if is, err = may(o); err == nil {
			if !is {
				s.stats.PassedOver.Add(1)
			}
			return is
		}
	}
	if errors.Is(err, errDamaged) {
		s.stats.Damaged.Add(1)
		s.filters.drop(part)
	}
	return true
}

// hasAll asks for keys that must all be there.
func hasAll(keys ...uint64) func(*opened) (bool, error) {
	return func(o *opened) (bool, error) {
		for _, key := range keys {
			if has, err := o.has(key); !has || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}
