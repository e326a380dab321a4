package explain

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ahead are the stretches that come next, opened while the ones before are read:
// most of what a stretch takes is waiting for the log.
type ahead struct {
	parts  Parts
	ctx    context.Context // of what is opened
	cancel context.CancelFunc
	list   []entry
	read   int // parts that were read: a reader that finds all in the newest ones opens no others
}

func newAhead(ctx context.Context, parts Parts) *ahead {
	a := &ahead{parts: parts}
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a
}

// aheadMax is how many are open at a time beside the one that is read.
const aheadMax = 3

// entry is a part that is to be read.
type entry struct {
	after   uint64 // when all from here on has been read
	part    stretch
	covered bool // by a filter
	opening chan opening
}

type opening struct {
	source pipeline.Source
	err    error
}

// take is the entry that comes when all from `reached` on has been read, if it is
// here. Those that are passed are let go of.
func (a *ahead) take(reached uint64) (entry, bool) {
	for len(a.list) > 0 && a.list[0].after > reached {
		a.list[0].close()
		a.list = a.list[1:]
	}
	if len(a.list) == 0 || a.list[0].after < reached {
		return entry{}, false
	}
	e := a.list[0]
	a.list = a.list[1:]
	return e, true
}

// put gives one back that is not read.
func (a *ahead) put(e entry) { a.list = append(a.list, e) }

// fill plans what comes after an entry that is read now, and opens it, up to the
// first part that no filter covers.
func (a *ahead) fill(w way, e entry, run uint64) {
	if len(a.list) > 0 {
		e = a.list[len(a.list)-1]
	}
	for first := len(a.list) == 0; len(a.list) < min(a.read, aheadMax) && (first || e.covered); first = false {
		e = w.next(e.part.first, run)
		if e.covered {
			e.opening = make(chan opening, 1)
			go func(e entry) {
				source, err := open(a.ctx, a.parts, e.part)
				e.opening <- opening{source, err}
			}(e)
		}
		a.list = append(a.list, e)
	}
	a.read++
}

// source is that of the part, which may have been opened ahead.
func (e *entry) source(ctx context.Context, parts Parts) (pipeline.Source, error) {
	if e.opening == nil {
		return open(ctx, parts, e.part)
	}
	o := <-e.opening
	return o.source, o.err
}

func (e *entry) close() {
	if e.opening == nil {
		return
	}
	if o := <-e.opening; o.source != nil {
		o.source.Close()
	}
}

// close lets go of all. What is being opened is given up.
func (a *ahead) close() {
	a.cancel()
	for i := range a.list {
		a.list[i].close()
	}
}
