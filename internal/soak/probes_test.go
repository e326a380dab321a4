package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// phase says what goes on while honest users ask.
type phase int

const (
	nobodyAsks phase = iota
	withoutFaults
	besideFaults
)

// question is what honest users ask again and again.
type question int

const (
	postsGet question = iota
	unreadPoll
	usersGet
	questionsCount
)

// probes are honest users. Some write something and at once ask for what includes it. Others
// have written nothing: every other time they ask with the position of the answer before. What
// comes back without a word that it is degraded is as of an end of the log that is no older than
// freshness (I11). Without faults each must be answered, and not told to come again, whatever
// abuse there is. Each number is held between the least and the most that the twin has from the
// answer's as_of to the last message stored when it came, once EVENTS was read back that far. Unread
// feeds and channels are compared at rest only.
type probes struct {
	gate  sync.RWMutex // held by each question
	phase phase        // changes with the gate locked

	mu       sync.Mutex
	answers  int
	degraded int
	lost     int    // questions without an answer, beside faults
	wrong    error  // the first that must not be
	told     []told // since the last check

	work sync.WaitGroup
	stop context.CancelFunc
}

const (
	freshness    = 2 * time.Second // the contract's
	writersCount = 4
	lookersCount = 3
	probeEvery   = 40 * time.Millisecond // and what an answer takes

	// answeredWithin finds a question that is never answered: it asks again
	// when it is told to.
	answeredWithin = time.Minute
	// faultyWithin is how long it asks among faults, where it may be in vain.
	faultyWithin = 2 * time.Second
)

func startProbes(url string, ps *publishers) (*probes, error) {
	ctx, cancel := context.WithCancel(context.Background())
	pr := &probes{stop: cancel}
	for i := range writersCount + lookersCount {
		p, err := ps.newPublisher(url, 400+uint64(i))
		if err != nil {
			cancel()
			return nil, err
		}
		pr.work.Go(func() {
			defer p.nc.Close()
			if i < writersCount {
				pr.write(ctx, p)
			} else {
				pr.look(ctx, p)
			}
		})
	}
	return pr, nil
}

func (pr *probes) close() {
	pr.stop()
	pr.work.Wait()
}

// enter begins a phase when all questions of the one before are answered.
func (pr *probes) enter(p phase) {
	pr.gate.Lock()
	defer pr.gate.Unlock()
	pr.phase = p
}

func (pr *probes) write(ctx context.Context, p *publisher) {
	c := client.New(p.nc)
	for turn := question(0); ctx.Err() == nil; sleep(ctx, probeEvery) {
		if !p.gate.TryRLock() {
			continue
		}
		lines := p.draw()
		sequence := p.publish(ctx, lines)
		p.gate.RUnlock()
		if sequence == 0 {
			return
		}
		turn = (turn + 1) % questionsCount
		pr.ask(func(ctx context.Context) (told, error) {
			return turn.ask(ctx, c, lines[0].about, pipeline.EndOf(sequence))
		})
	}
}

func (pr *probes) look(ctx context.Context, p *publisher) {
	c, seen := client.New(p.nc), pipeline.Position(0)
	for turn := 0; ctx.Err() == nil; sleep(ctx, probeEvery) {
		about := p.anybody()
		if about == nil {
			continue
		}
		turn++
		at := seen * pipeline.Position(turn%2)
		pr.ask(func(ctx context.Context) (told, error) {
			end := p.book.ends.before(time.Now().Add(-freshness))
			a, err := question(turn%int(questionsCount)).ask(ctx, c, about, at)
			if err == nil && !a.degraded && end > 0 && a.asOf < pipeline.EndOf(end) {
				err = fmt.Errorf("%w: as of %d and not degraded, and message %d was acknowledged more than %v before it was asked",
					errWrong, a.asOf, end, freshness)
			}
			seen = max(seen, a.asOf)
			return a, err
		})
	}
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

// errWrong is an answer that must never be.
var errWrong = errors.New("soak: not the answer")

// ask asks until there is an answer.
func (pr *probes) ask(ask func(context.Context) (told, error)) {
	pr.gate.RLock()
	defer pr.gate.RUnlock()
	if pr.phase == nobodyAsks {
		return
	}
	within := answeredWithin
	if pr.phase == besideFaults {
		within = faultyWithin
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	a, err := ask(ctx)
	for ; isBusy(err) && pr.phase == besideFaults && ctx.Err() == nil; a, err = ask(ctx) {
		sleep(ctx, probeEvery)
	}
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if err == nil {
		if pr.answers++; a.degraded {
			pr.degraded++
		}
		pr.told = append(pr.told, a)
		if a.missing > 0 && pr.phase == withoutFaults {
			err = fmt.Errorf("%d of %d are missing", a.missing, len(a.ids))
		}
	} else {
		pr.lost++
	}
	if err != nil && pr.wrong == nil && (pr.phase == withoutFaults || errors.Is(err, errWrong)) {
		pr.wrong = fmt.Errorf("an honest question, phase %d: %w", pr.phase, err)
	}
}

// isBusy: asking again may help.
func isBusy(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == http.StatusServiceUnavailable
}

// told is an answer.
type told struct {
	about    people
	asOf     pipeline.Position
	came     time.Time // nothing stored later is in it
	counter  string
	columns  []string
	ids      []uint64
	rows     [][]int64 // nil: missing
	missing  int
	degraded bool // the answer says so
}

// ask asks once.
func (q question) ask(ctx context.Context, c *client.Client, about people, at pipeline.Position) (a told, err error) {
	a.about = about
	if q == unreadPoll {
		a.counter, a.ids = "unread", about.Users()
		reply, err := c.UnreadMany(ctx, client.UnreadRequest{Users: a.ids, MinPosition: at, Timeout: answeredWithin})
		if err != nil {
			return a, err
		}
		for _, u := range reply.Users {
			if a.columns == nil && !u.Missing {
				a.columns = slices.Sorted(maps.Keys(u.Counts))
			}
			var row []int64
			for _, kind := range a.columns {
				if !u.Missing {
					row = append(row, u.Counts[kind])
				}
			}
			a.rows = append(a.rows, row)
		}
		a.asOf, a.missing, a.degraded = reply.AsOf, len(reply.Missing), reply.Degraded
	} else {
		a.counter, a.ids, a.columns = "post", about.Posts(), twin.PostColumns
		if q == usersGet {
			a.counter, a.ids, a.columns = "user", about.Users(), twin.UserColumns
		}
		reply, err := c.Get(ctx, client.GetRequest{
			Counter: a.counter, IDs: a.ids, Columns: a.columns, MinPosition: at, Timeout: answeredWithin,
		})
		if err != nil {
			return a, err
		}
		for _, row := range reply.Rows {
			a.rows = append(a.rows, row.Values)
		}
		a.asOf, a.missing, a.degraded = reply.AsOf, len(reply.Missing), reply.Degraded
	}
	if a.asOf < at || len(a.rows) != len(a.ids) {
		return a, fmt.Errorf("%w: %d of %d rows, as of %d, asked for %d", errWrong, len(a.rows), len(a.ids), a.asOf, at)
	}
	a.came = time.Now()
	return a, nil
}

// check compares the answers since the last check. EVENTS was read back, and stored is where it
// ended at moments. What a server says of its end is no bound: one that has just begun to lead may
// not know yet what another has delivered.
func (pr *probes) check(stored *ends) (numbers int, err error) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	histories := map[people]*twin.History{}
	var wrong []string
	for _, a := range pr.told {
		h := histories[a.about]
		if h == nil {
			h = a.about.(*twin.Community).History()
			histories[a.about] = h
		}
		newest := max(pipeline.EndOf(stored.before(a.came)), a.asOf) // a tail that was lost may have been counted
		for i, row := range a.rows {
			for j, v := range row {
				numbers++
				if low, high := h.Between(a.counter, a.columns[j], a.ids[i], a.asOf, newest); v < low || v > high {
					wrong = append(wrong, fmt.Sprintf("%s.%s of %d is %d, must be %d to %d as of %d to %d\n%s",
						a.counter, a.columns[j], a.ids[i], v, low, high, a.asOf, newest, a.about.About(a.ids[i])))
				}
			}
		}
	}
	pr.told = nil
	if len(wrong) > 0 {
		return numbers, fmt.Errorf("%d numbers of answers given meanwhile are not the twin's:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), differencesMax)], "\n"))
	}
	return numbers, nil
}

// ends are the ends of the log at moments, both ascending.
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

// before is the greatest sequence stored before a moment; 0: none is known.
func (e *ends) before(at time.Time) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := sort.Search(len(e.at), func(i int) bool { return e.at[i].After(at) })
	if n == 0 {
		return 0
	}
	return e.last[n-1]
}

// calm has honest users ask without faults, beside abuse; after that faults may come.
func (s *soak) calm() {
	s.Helper()
	s.caughtUp()
	s.allReady()
	s.abuse.goOn()
	s.probes.enter(withoutFaults)
	time.Sleep(min(max(*soakFlag/40, 2*time.Second), 6*time.Second)) // the length of a phase
	s.asked()
	s.probes.enter(besideFaults)
}

// asked ends a phase. What was owed in it must have been answered.
func (s *soak) asked() {
	s.Helper()
	s.probes.enter(nobodyAsks)
	s.alive()
	s.probes.mu.Lock()
	defer s.probes.mu.Unlock()
	if err := s.probes.wrong; err != nil {
		s.fail("%v", err)
	}
}

// caughtUp waits until every node has what EVENTS has now.
func (s *soak) caughtUp() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	end, err := endOf(ctx, s.js)
	if err != nil {
		s.fail("%v", err)
	}
	for _, n := range s.nodes {
		s.reach(n, end)
	}
}
