package pipeline_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

const fresh = 2 * time.Second

// aCopy is one server's copy of the log in a world of three.
type aCopy struct {
	term      int
	heard     time.Duration    // of a leader, last
	contact   [3]time.Duration // of the leader with the others; -1: never
	leads     bool
	cut       [3]bool // from the others
	suspended time.Duration
	log       []time.Duration // when each message was acknowledged
	inbox     []func()        // what comes while it is suspended
}

// freshWorld is three servers, of which one leads as nats-server's do: it sends heartbeats
// every second, a server that hears nothing for 4 s asks for votes, and every server gives
// its vote to a newer term, whether it has heard of the leader or not.
type freshWorld struct {
	now     time.Duration
	rand    *rand.Rand
	servers [3]aCopy
	acked   []time.Duration // when message i+1 was acknowledged
}

func (w *freshWorld) connected(a, b int) bool { return !w.servers[a].cut[b] }

// deliver runs what a server receives: at once, or when it is no longer suspended.
func (w *freshWorld) deliver(to int, do func()) {
	s := &w.servers[to]
	if s.suspended > w.now || len(s.inbox) > 0 {
		s.inbox = append(s.inbox, do)
		return
	}
	do()
}

// reach runs do at another server, if it can be reached.
func (w *freshWorld) reach(from, to int, do func()) {
	if w.connected(from, to) {
		w.deliver(to, do)
	}
}

// heartbeat has a leader say that it leads. A server that knows a newer term says so.
func (w *freshWorld) heartbeat(leader int) {
	term := w.servers[leader].term
	for other := range w.servers {
		if other == leader {
			continue
		}
		w.reach(leader, other, func() {
			o := &w.servers[other]
			if o.term > term {
				w.reach(other, leader, func() { w.resign(leader, o.term) })
				return
			}
			if o.term < term || !o.leads {
				o.term, o.leads, o.heard = term, false, w.now
			}
			w.reach(other, leader, func() { w.servers[leader].contact[other] = w.now })
		})
	}
}

func (w *freshWorld) resign(server, term int) {
	if s := &w.servers[server]; s.term < term {
		s.term, s.leads = term, false
	}
}

// campaign has a server that has heard nothing ask for votes.
func (w *freshWorld) campaign(server int) {
	s := &w.servers[server]
	s.term++
	s.heard = w.now
	votes := 1
	for other := range w.servers {
		if other == server || !w.connected(server, other) || w.servers[other].suspended > w.now {
			w.reach(server, other, func() { w.resign(other, s.term) })
			continue
		}
		if o := &w.servers[other]; o.term < s.term && len(o.log) <= len(s.log) {
			o.term, o.leads, o.heard = s.term, false, w.now
			votes++
		}
	}
	if votes < 2 {
		return
	}
	s.leads, s.contact = true, [3]time.Duration{-1, -1, -1}
	w.heartbeat(server)
}

// publish stores a message where a leader has a majority that goes along.
func (w *freshWorld) publish() {
	for server := range w.servers {
		s := &w.servers[server]
		if !s.leads || s.suspended > w.now {
			continue
		}
		var with []int
		for other := range w.servers {
			o := &w.servers[other]
			if other != server && w.connected(server, other) && o.suspended <= w.now && o.term <= s.term {
				with = append(with, other)
			}
		}
		if len(with) == 0 {
			continue
		}
		w.acked = append(slices.Clone(s.log), w.now)
		s.log = w.acked
		for _, other := range with {
			w.servers[other].log, w.servers[other].heard = w.acked, w.now
			s.contact[other] = w.now
		}
		return
	}
}

// ask is what a server answers that takes itself for the leader.
func (w *freshWorld) ask(server int) (e pipeline.LogEnd, answers bool) {
	s := &w.servers[server]
	if !s.leads {
		return e, false
	}
	e = pipeline.LogEnd{Leader: string(rune('a' + server))}
	if len(s.log) > 0 {
		e.End = pipeline.EndOf(uint64(len(s.log)))
	}
	for other, at := range s.contact {
		switch {
		case other == server:
		case at < 0:
			e.Heard = append(e.Heard, pipeline.HeardNever)
		default:
			e.Heard = append(e.Heard, max(w.now-at, 1))
		}
	}
	return e, true
}

// question is on its way to a server and back.
type question struct {
	asked  time.Duration
	at     int // the server
	answer *pipeline.LogEnd
	comes  time.Duration // when the answer is with the asker
}

// process has the server answer, if it takes itself for the leader.
func (q *question) process(w *freshWorld) {
	if q.answer != nil || q.asked == 0 || w.servers[q.at].suspended > w.now {
		return
	}
	if e, answers := w.ask(q.at); answers {
		e.Asked = q.asked
		q.answer, q.comes = &e, w.now+time.Duration(w.rand.IntN(150))*time.Millisecond
	}
}

// answered is the answer, once.
func (q *question) answered(now time.Duration) (e pipeline.LogEnd, came bool) {
	if q.answer == nil || q.comes > now {
		return e, false
	}
	e = *q.answer
	e.Answered = now
	*q = question{}
	return e, true
}

// broken changes what is told to Freshness, as a mistake in the program would.
type broken struct {
	name string
	take func(*pipeline.LogEnd)
	asOf func(asOf, end pipeline.Position) pipeline.Position // what is claimed of an answer
}

// run lets an asker live in such a world, and returns the first answer that is said to be
// whole and lacks something that was acknowledged more than freshness before.
func (w *freshWorld) run(steps int, b broken) (lacks time.Duration) {
	const step = 50 * time.Millisecond
	f := pipeline.NewFreshness(fresh, func() time.Duration { return w.now })
	var applied, end pipeline.Position
	var next, suspended, stalled time.Duration
	var q question
	for range steps {
		w.now += step
		w.turn()
		q.process(w)
		if suspended > w.now {
			continue // and its clock goes on
		}
		if w.rand.IntN(120) == 0 {
			suspended = w.now + time.Duration(w.rand.IntN(9000))*time.Millisecond
		}
		if e, came := q.answered(w.now); came {
			if b.take != nil {
				b.take(&e)
			}
			f.Take(e)
			end = max(end, e.End)
		}
		if w.now >= next {
			q, next = question{asked: w.now, at: w.rand.IntN(3)}, w.now+500*time.Millisecond
		}
		if w.rand.IntN(200) == 0 {
			stalled = w.now + time.Duration(w.rand.IntN(6000))*time.Millisecond
		}
		if stalled <= w.now {
			applied = max(applied, end)
		}
		claimed := applied
		if b.asOf != nil {
			claimed = b.asOf(applied, end)
		}
		if _, whole := f.Age(claimed); whole {
			for i := int(applied.Sequence()); i < len(w.acked); i++ {
				lacks = max(lacks, w.now-w.acked[i])
			}
		}
	}
	return lacks
}

// turn has the servers do what they do in a moment, and faults come and go.
func (w *freshWorld) turn() {
	for i := range w.servers {
		s := &w.servers[i]
		if s.suspended > w.now {
			continue
		}
		for n := 10 + w.rand.IntN(20); n > 0 && len(s.inbox) > 0; n-- { // it takes its time
			do := s.inbox[0]
			s.inbox = s.inbox[1:]
			do()
		}
		switch {
		case s.leads && int(w.now/(50*time.Millisecond))%20 == i:
			w.heartbeat(i)
		case !s.leads && w.now-s.heard > 4*time.Second+time.Duration(w.rand.IntN(3000))*time.Millisecond:
			w.campaign(i)
		}
		if w.rand.IntN(400) == 0 {
			s.suspended = w.now + time.Duration(w.rand.IntN(12000))*time.Millisecond
		}
	}
	if w.rand.IntN(100) == 0 {
		a, b := w.rand.IntN(3), w.rand.IntN(3)
		cut := w.rand.IntN(2) == 0
		w.servers[a].cut[b], w.servers[b].cut[a] = cut && a != b, cut && a != b
	}
	if w.rand.IntN(4) == 0 {
		w.publish()
	}
}

func newFreshWorld(seed uint64) *freshWorld {
	w := &freshWorld{now: time.Second, rand: rand.New(rand.NewPCG(seed, 21))}
	w.campaign(0)
	return w
}

// docs/contract.md: "An answer that is not said to be degraded is at most `freshness` (2
// s) old: the process that computed it has, within that time, asked the log where it ends
// and been answered, and has applied it."
//
// Three servers are cut off, suspended and choose leaders; the asker is suspended, too.
// Mistakes in what Freshness is told are noticed.
func TestFreshnessTwin(t *testing.T) {
	const seeds, steps = 60, 4000
	worst := func(b broken) (lacks time.Duration) {
		for seed := range uint64(seeds) {
			lacks = max(lacks, newFreshWorld(seed).run(steps, b))
		}
		return lacks
	}
	if lacks := worst(broken{}); lacks > fresh {
		t.Errorf("an answer that is said to be whole lacks what was acknowledged %v before", lacks)
	}
	for _, b := range []broken{
		{name: "the lease begins with the answer", take: func(e *pipeline.LogEnd) { e.Asked = e.Answered }},
		{name: "no majority is asked for", take: func(e *pipeline.LogEnd) { e.Heard = nil }},
		{name: "what the log said is not applied", asOf: func(_, end pipeline.Position) pipeline.Position { return end }},
	} {
		if lacks := worst(b); lacks <= fresh {
			t.Errorf("%s: not noticed, the worst is %v", b.name, lacks)
		}
	}
}
