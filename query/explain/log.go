package explain

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Log is EVENTS. It may be used concurrently.
type Log interface {
	// Extent is what there is now.
	Extent(ctx context.Context) (Extent, error)
	// Open is that of pipeline.Events. So many messages will be read.
	Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error)
}

// Extent is which messages a stream holds.
type Extent struct {
	First, Last uint64 // sequences; First is above Last where there are none
	Created     time.Time
}

// read visits the messages of s, in order.
func read(ctx context.Context, log Log, s stretch, visit func(*pipeline.Message)) (messages int, err error) {
	source, err := log.Open(ctx, pipeline.EndOf(s.first-1), int(min(s.last-s.first, 1<<30))+1)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	for {
		run, err := source.Next(ctx)
		if err != nil {
			return messages, err
		}
		for i := range run {
			if run[i].Sequence > s.last {
				return messages, nil
			}
			visit(&run[i])
			messages++
		}
		if run[len(run)-1].Sequence == s.last {
			return messages, nil
		}
	}
}

// search goes back through the log, and reads what may have what is looked for.
type search struct {
	log     Log
	filters *filters // nil: everything is read
	extent  Extent
	tracer  pipeline.Tracer
	soft    time.Time
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

// back visits, from the message `from` back to the log's beginning, what may
// have what is looked for: stretch by stretch, the messages of each in order, until
// done says so after one of them, or it is late. done is given the first sequence
// of what was visited, and returns the first that it has seen all from: what is
// before it is visited again. may asks a filter. back returns the first sequence
// that it has come to: all from there on has been seen.
func (s *search) back(ctx context.Context, from uint64, may func(*opened) (bool, error), visit func(*pipeline.Message), done func(first uint64) (uint64, bool)) (reached uint64, err error) {
	var known []stretch
	if s.filters != nil {
		known = s.filters.all()
	}
	reached, run := from+1, uint64(runMin)
	for reached > s.extent.First {
		for n := len(known); n > 0 && known[n-1].last >= reached; n-- {
			known = known[:n-1] // one that is begun is read
		}
		part, covered := stretch{s.extent.First, reached - 1}, false
		if n := len(known); n > 0 {
			if covered = known[n-1].last == part.last; covered {
				part = known[n-1]
			} else {
				part.first = max(part.first, known[n-1].last+1)
			}
		}
		if covered && !s.may(part, may) {
			reached = part.first
			continue
		}
		if !covered && part.last-part.first >= run {
			part.first = part.last - run + 1
		}
		if time.Now().After(s.soft) && s.read > 0 {
			return reached, nil
		}
		begun := time.Now()
		n, err := read(ctx, s.log, stretch{max(part.first, s.extent.First), part.last}, visit)
		s.read += n
		if err != nil {
			return reached, err
		}
		took, enough := time.Since(begun), false
		reached, enough = done(part.first)
		switch {
		case enough:
			return reached, nil
		case covered:
		case reached > part.first || took > 2*runTime:
			run = max(run/2, 1)
		case took < runTime/2:
			run = min(2*run, runMax)
		}
	}
	return reached, nil
}

// may asks the filter of a stretch. One that is damaged is taken away, to be
// made again.
func (s *search) may(part stretch, may func(*opened) (bool, error)) bool {
	o, err := s.filters.open(part)
	if err == nil {
		defer o.close()
		var is bool
		if is, err = may(o); err == nil {
			return is
		}
	}
	if errors.Is(err, errDamaged) {
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
