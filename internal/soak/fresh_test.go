package soak

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// Lookers poll as an application does that has written nothing: every other time
// without a position, every other time with the position of the answer before.
// An answer that does not say that it is degraded is as of an end of the log that is
// no older than freshness:
//
//	acknowledged    100        101   102                 103
//	time          ───┼──────────┼─────┼───────●───────────┼────●──────►
//	                                     asked − freshness      asked
//	                                     as_of ≥ end of 102

const (
	freshness    = 2 * time.Second // the contract's
	lookersCount = 3
	lookEvery    = 50 * time.Millisecond // and what an answer takes
)

// ends are the ends of the log as publishers heard of them, both ascending.
type ends struct {
	mu   sync.Mutex
	at   []time.Time
	last []uint64
}

// note notes that a message was stored before at.
func (e *ends) note(at time.Time, sequence uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.last); n > 0 && e.last[n-1] >= sequence {
		return
	}
	e.at, e.last = append(e.at, at), append(e.last, sequence)
}

// forget is for a log that has lost its tail.
func (e *ends) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at, e.last = nil, nil
}

// before is the greatest sequence acknowledged before a moment; 0: none is known.
func (e *ends) before(at time.Time) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := sort.Search(len(e.at), func(i int) bool { return e.at[i].After(at) })
	if n == 0 {
		return 0
	}
	return e.last[n-1]
}

// looks count what lookers were answered.
type looks struct{ answers, degraded, backwards atomic.Int64 }

func (l *looks) text() string {
	return fmt.Sprintf("%7d  answers to polls that had written nothing: none older than %v but the %d degraded ones; %d were as of a position before an earlier answer's, of those asked without one",
		l.answers.Load(), freshness, l.degraded.Load(), l.backwards.Load())
}

// look asks until ctx ends.
func (pr *probes) look(ctx context.Context, p *publisher) {
	c := client.New(p.nc)
	js, err := jetstream.New(p.nc)
	if err != nil {
		panic(err) // of options only
	}
	seen := pipeline.Position(0)
	for turn := 0; ctx.Err() == nil; sleep(ctx, lookEvery) {
		about := p.anybody()
		if about == nil {
			continue
		}
		turn++
		at := pipeline.Position(0)
		if turn%2 == 0 {
			at = seen
		}
		pr.ask(question(turn%int(questionsCount)), func(ctx context.Context, in phase) error {
			asked := time.Now()
			a, err := question(turn%int(questionsCount)).ask(ctx, c, about, at)
			if err != nil {
				return err
			}
			if at == 0 && a.asOf < seen {
				pr.looks.backwards.Add(1)
			}
			seen = max(seen, a.asOf)
			if err := pr.fresh(a, p.book.ends.before(asked.Add(-freshness))); err != nil {
				return err
			}
			return pr.take(ctx, js, in, a)
		})
	}
}

// fresh is an error where an answer is older than it may be.
func (pr *probes) fresh(a told, end uint64) error {
	pr.looks.answers.Add(1)
	if a.degraded {
		pr.looks.degraded.Add(1)
		return nil
	}
	if end > 0 && a.asOf < pipeline.EndOf(end) {
		return fmt.Errorf("%w: as of %d and not degraded, and message %d, which ends at %d, was acknowledged more than %v before it was asked",
			errWrong, a.asOf, end, pipeline.EndOf(end), freshness)
	}
	return nil
}

// anybody is one of the communities; nil: there is none yet.
func (p *publisher) anybody() people {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	n := len(p.book.communities)
	if n == 0 {
		return nil
	}
	return p.book.communities[n-1-p.random.IntN(min(n, livingAtOnce*publishersCount))]
}

// The check of lookers is seen to fail.
func TestStaleAnswerIsNoticed(t *testing.T) {
	var e ends
	begun := time.Now()
	for i := range 5 {
		e.note(begun.Add(time.Duration(i)*time.Second), uint64(10+i))
	}
	e.note(begun.Add(10*time.Second), 3) // an acknowledgement that came late
	if got := e.before(begun.Add(2500 * time.Millisecond)); got != 12 {
		t.Fatalf("12 was acknowledged last, not %d", got)
	}
	if got := e.before(begun.Add(-1)); got != 0 {
		t.Fatalf("nothing was acknowledged, not %d", got)
	}
	pr := &probes{}
	for _, c := range []struct {
		asOf     pipeline.Position
		degraded bool
		wrong    bool
	}{{pipeline.EndOf(12), false, false}, {pipeline.EndOf(11), false, true}, {pipeline.EndOf(11), true, false}} {
		if err := pr.fresh(told{asOf: c.asOf, degraded: c.degraded}, 12); (err != nil) != c.wrong {
			t.Errorf("as of %d, degraded %v: %v", c.asOf, c.degraded, err)
		}
	}
}
