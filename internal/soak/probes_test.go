package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// phase says what goes on while honest users ask.
type phase int

const (
	unmeasured   phase = iota
	withoutAbuse       // and without faults
	besideAbuse        // without faults
	besideFaults       // and abuse
	phases
)

func (p phase) String() string {
	return [...]string{"not measured", "without abuse and faults", "beside abuse", "beside abuse and faults"}[p]
}

// question is what honest users ask again and again.
type question int

const (
	postsGet question = iota
	unreadPoll
	usersGet
	questionsCount
)

func (q question) String() string {
	return [...]string{"get of one community's posts", "unread of one community", "get of one community's users"}[q]
}

// probes are honest users who write something and at once ask for what includes
// it. How long that takes is measured in each phase, and reported. Without
// faults each must be answered, and not told to come again, whatever abuse
// there is. What they are answered is compared when EVENTS was read back
// (between_test.go).
type probes struct {
	gate  sync.RWMutex // held by each question
	phase phase        // changes with the gate locked

	mu      sync.Mutex
	took    [phases][questionsCount][]time.Duration
	busy    [phases]int // answers that say: ask again (503)
	lost    [phases]int // questions without an answer
	missing [phases]int // answers that are not whole
	wrong   error       // the first that must not be
	told    []told      // since the last check
	looks   looks

	work sync.WaitGroup
	stop context.CancelFunc
}

const (
	probesCount = 4
	probeEvery  = 30 * time.Millisecond // and what an answer takes

	// answeredWithin finds a question that is never answered: it asks again
	// when it is told to.
	answeredWithin = 30 * time.Second
	// faultyWithin is how long it asks among faults, where it may be in vain.
	faultyWithin = 2 * time.Second
	askAgain     = 20 * time.Millisecond
)

func startProbes(url string, ps *publishers) (*probes, error) {
	ctx, cancel := context.WithCancel(context.Background())
	pr := &probes{stop: cancel}
	for i := range probesCount {
		p, err := ps.newPublisher(url, 400+uint64(i))
		if err != nil {
			cancel()
			return nil, err
		}
		pr.work.Go(func() {
			defer p.nc.Close()
			pr.run(ctx, p)
		})
	}
	for i := range lookersCount {
		p, err := ps.newPublisher(url, 500+uint64(i))
		if err != nil {
			cancel()
			return nil, err
		}
		pr.work.Go(func() {
			defer p.nc.Close()
			pr.look(ctx, p)
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

func (pr *probes) run(ctx context.Context, p *publisher) {
	c := client.New(p.nc)
	js, err := jetstream.New(p.nc)
	if err != nil {
		panic(err) // of options only
	}
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
		about, at := lines[0].about, pipeline.EndOf(sequence)
		turn = (turn + 1) % questionsCount
		pr.ask(turn, func(ctx context.Context, phase phase) error {
			answer, err := turn.ask(ctx, c, about, at)
			if err != nil {
				return err
			}
			return pr.take(ctx, js, phase, answer)
		})
	}
}

// ask asks until there is an answer, and notes how long that took.
func (pr *probes) ask(q question, ask func(context.Context, phase) error) {
	pr.gate.RLock()
	defer pr.gate.RUnlock()
	if pr.phase == unmeasured {
		return
	}
	within := answeredWithin
	if pr.phase == besideFaults {
		within = faultyWithin
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	begun, busy := time.Now(), 0
	err := ask(ctx, pr.phase)
	for ; isBusy(err) && ctx.Err() == nil; err = ask(ctx, pr.phase) {
		busy++
		sleep(ctx, askAgain)
	}
	took := time.Since(begun)
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.busy[pr.phase] += busy
	if err == nil {
		pr.took[pr.phase][q] = append(pr.took[pr.phase][q], took)
	} else {
		pr.lost[pr.phase]++
	}
	if (err != nil || busy > 0) && pr.wrong == nil && (pr.phase != besideFaults || errors.Is(err, errWrong)) {
		pr.wrong = fmt.Errorf("%v: an honest %v: %d times 503, and then, after %v: %v", pr.phase, q, busy, took.Round(time.Millisecond), cmp.Or(err, errGood))
	}
}

// errGood is an answer, in the place of an error.
var errGood = errors.New("answered")

// isBusy: asking again may help.
func isBusy(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == http.StatusServiceUnavailable
}

// err is the first answer that was owed and did not come.
func (pr *probes) err() error {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.wrong
}

// lines are the table of the report.
func (pr *probes) lines() (lines []string) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for p := withoutAbuse; p < phases; p++ {
		lines = append(lines, fmt.Sprintf("%v (%d times 503 and asked again, %d without an answer, %d not whole)", p, pr.busy[p], pr.lost[p], pr.missing[p]))
		for q := range questionsCount {
			took := pr.took[p][q]
			if len(took) == 0 {
				continue
			}
			slices.Sort(took)
			of := func(share float64) time.Duration {
				return took[int(share*float64(len(took)-1))].Round(10 * time.Microsecond)
			}
			lines = append(lines, fmt.Sprintf("  %-28s p50 %9v  p99 %9v  most %9v  of %d", q, of(0.5), of(0.99), of(1), len(took)))
		}
	}
	return lines
}

// calmFor is how long a phase without faults is.
func calmFor() time.Duration { return min(max(*soakFlag/40, 1500*time.Millisecond), 6*time.Second) }

// abuseBegins is what is left to abuse before it is measured.
const abuseBegins = time.Second

// calm measures without faults, first without abuse, which rests, and then
// beside it; after that abuse goes on.
func (s *soak) calm() {
	s.Helper()
	s.caughtUp()
	s.allReady()
	if len(s.abuse.kinds) == 0 {
		s.probes.enter(besideFaults)
		return
	}
	time.Sleep(time.Until(time.Unix(0, s.abuse.waitsEnd.Load())))
	s.measure(withoutAbuse)
	s.abuse.goOn()
	time.Sleep(abuseBegins)
	s.measure(besideAbuse)
	if len(s.kinds) > 0 {
		s.probes.enter(besideFaults)
	} else {
		s.probes.enter(besideAbuse)
	}
}

func (s *soak) measure(p phase) {
	s.Helper()
	s.probes.enter(p)
	time.Sleep(calmFor())
	s.unmeasured()
}

// unmeasured ends a phase. What was owed in it must have been answered.
func (s *soak) unmeasured() {
	s.Helper()
	s.probes.enter(unmeasured)
	s.alive()
	if err := s.probes.err(); err != nil {
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
