package pipeline

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Freshness knows how old an answer can be (I11). It gets where the log ended when this
// process asked; an answer that reaches that far reflects all that was stored before
// the question:
//
//	asked ───────── stored ───── asked ──── now
//	│ ends at 5       6          │ ends at 6
//	└ an answer as of 5 is at most this old ─┘  (of what came since it lacks 6)
//
// So the age of an answer is the time since the latest question whose answer it
// reaches. A Freshness has no clock of its own and does no I/O. Nothing in it depends
// on the process having run meanwhile: a process that was suspended, or cannot ask,
// has only old questions. All methods may be called concurrently.
//
// In a cluster, a server that was cut off or suspended may take itself for the log's
// leader although the others have chosen another one, and give an end that is past.
// Take says which answers count.
type Freshness struct {
	within time.Duration
	clock  func() time.Duration
	begun  time.Duration

	proofs atomic.Pointer[[]proof] // ascending in both fields; never changed, but replaced

	mu     sync.Mutex
	leader string        // that answered last
	since  time.Duration // when it answered first, without a break
	heard  time.Duration // when it answered last
	sure   bool          // a majority was in contact with it after since
}

// proof says that the log ended at end at some time after asked.
type proof struct {
	asked time.Duration
	end   Position
}

// proofsMax bounds what is remembered, for ages of many minutes.
const proofsMax = 64

// FreshnessMax bounds how old an answer may be that is not said to be degraded: a read
// that waits waits for that long at most.
const FreshnessMax = 10 * time.Second

// FreshnessWait is how long a process must wait, by any clock, until every whole
// answer, of any process, has what was stored when the wait began. Nine tenths of it is
// the time for which an answer of the log counts: the rest is for clocks that run at
// different speeds.
func FreshnessWait(freshness time.Duration) time.Duration { return freshness * 23 / 25 }

// NewFreshness makes one for answers that are at most freshness old. The clock must go
// on while the machine is suspended; where it begins does not matter.
func NewFreshness(freshness time.Duration, clock func() time.Duration) *Freshness {
	return &Freshness{within: freshness * 9 / 10, clock: clock, begun: clock()}
}

// Now is the clock that LogEnd's times are of.
func (f *Freshness) Now() time.Duration { return f.clock() }

// LogEnd is where the log's leader said that the log ends.
type LogEnd struct {
	Asked    time.Duration // before the question was sent
	Answered time.Duration // after its answer came
	End      Position
	Leader   string // the server that answered; "" where there is one server only
	// Heard is, for every other server that has a copy of the log, how long before it
	// answered the leader had been in contact with it; HeardNever: it never was.
	Heard []time.Duration
}

const (
	// HeardNever is for a copy that the leader has not heard of.
	HeardNever time.Duration = math.MaxInt64
	// heardMax is how recent the contact with every copy must be for the leader to be the
	// only one for certain: nats-server chooses another one 4 s (minElectionTimeout)
	// after a copy has heard nothing at the earliest. What is left is for answers
	// that take long on their way to the leader.
	heardMax = 2500 * time.Millisecond
)

// Take takes in an answer, and says whether it counts.
//
// Where all copies of the log were in contact with the leader lately, no other leader
// can have been chosen before it answered. Where some were not, one of them may become
// leader with the votes of those that were; then the answer is as old as the contact of
// a majority: a server that voted for another leader after that had not done so yet.
//
// A server that was suspended and resumes may find such contacts in its own buffers,
// from before. So the first answer of a leader, and the first after a break, counts
// once a majority was in contact after it.
func (f *Freshness) Take(e LogEnd) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := e.Asked
	if copies := len(e.Heard) + 1; copies > 1 {
		heard := slices.Sorted(slices.Values(e.Heard))
		majority := heard[copies/2-1]
		if !f.sureLocked(&e, majority) {
			return false
		}
		if heard[len(heard)-1] > heardMax {
			asked -= majority
		}
	}
	f.proveLocked(proof{asked, e.End})
	return true
}

// sureLocked says whether the answer is of a leader that is not just back from a
// suspension. majority is how long ago a majority was in contact with it.
func (f *Freshness) sureLocked(e *LogEnd, majority time.Duration) bool {
	if e.Leader != f.leader || e.Asked-f.heard > f.within {
		f.leader, f.since, f.sure = e.Leader, e.Answered, false
	}
	f.heard = e.Answered
	f.sure = f.sure || majority <= e.Asked-f.since
	return f.sure && majority < f.within
}

// proveLocked remembers a proof. It takes the place of those that it makes useless: a
// later question with an answer that is no further.
func (f *Freshness) proveLocked(p proof) {
	var before []proof
	if list := f.proofs.Load(); list != nil {
		before = *list
	}
	if n := len(before); n > 0 && p.asked <= before[n-1].asked {
		return
	}
	keep := len(before)
	for keep > 0 && before[keep-1].end >= p.end {
		keep--
	}
	list := append(make([]proof, 0, keep+1), before[:keep]...)
	if keep >= proofsMax {
		list = thin(list)
	}
	list = append(list, p)
	f.proofs.Store(&list)
}

// thin leaves out every second proof of the older half. An age is then a little longer
// than it need be.
func thin(list []proof) []proof {
	kept := list[:0]
	for i, p := range list {
		if i > len(list)/2 || i%2 == 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// Age is how old an answer that reaches p can be. whole: it is not older than it may.
// An answer that reaches no end that this process knows is older than Age says.
func (f *Freshness) Age(p Position) (age time.Duration, whole bool) {
	asked := f.begun
	if list := f.proofs.Load(); list != nil {
		asked = (*list)[0].asked
		for i := len(*list) - 1; i >= 0; i-- {
			if (*list)[i].end <= p {
				age = f.clock() - (*list)[i].asked
				return age, age <= f.within
			}
		}
	}
	return f.clock() - asked, false
}

// Least is how far an answer must reach to be whole now. false: none can be, because
// the log has not said lately to this process where it ends.
func (f *Freshness) Least() (p Position, can bool) {
	list := f.proofs.Load()
	if list == nil {
		return 0, false
	}
	since := f.clock() - f.within
	for i := len(*list) - 1; i >= 0 && (*list)[i].asked >= since; i-- {
		p, can = (*list)[i].end, true
	}
	return p, can
}

// Reaches says whether an answer reaches the last end known: no other can be fresher, as
// far as this process knows.
func (f *Freshness) Reaches(p Position) bool {
	list := f.proofs.Load()
	return list == nil || (*list)[len(*list)-1].end <= p
}

// Left is for how long an answer that reaches the last known end may still be given
// as whole; 0: it may not.
func (f *Freshness) Left() time.Duration {
	list := f.proofs.Load()
	if list == nil {
		return 0
	}
	return max(0, (*list)[len(*list)-1].asked+f.within-f.clock())
}
