package sim

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// brokenMax is how many seeds it may take to notice that something is broken.
const brokenMax = 1000

// broken are variants of the router, of what it derives by and of what it
// stands on, each with one thing left out. notices is what the simulation must
// say of it, a regular expression; seed is one that noticed it when somebody last
// looked, tried before all others.
var broken = map[string]struct {
	seed    uint64
	notices string
	fault
}{
	"compare-and-set left out": {26, `\(I2`, fault{
		router: func(_ context.Context, p *process, r *pipeline.Router) { r.Log = blind{r.Log, p.w.server} },
	}},
	"an unknown append taken for one that was not stored": {19, `\(I2`, fault{
		router: func(_ context.Context, p *process, r *pipeline.Router) { r.Log = hasty{r.Log, p.w.server} },
	}},
	"EVENTS' tail guarded before the end of DELTAS is read": {103, `\(I10\)`, fault{
		setup: looseEvents,
		route: func(ctx, held context.Context, p *process) error {
			if err := p.guard.Check(ctx); err != nil {
				return err
			}
			r := p.router(ctx)
			r.Open = p.guard.Events.Open
			return r.Run(held)
		},
	}},
	"a lost tail of EVENTS not noticed": {23, `\(I10\)|what the model says`, fault{
		guard: func(g *pipeline.Guard) { g.Events = unnoticed{g.Events} },
	}},
	"DELTAS followed by its sequences alone": {29, `\(I2, I3\)`, fault{
		setup:    looseDeltas,
		state:    func(o *sinks.Options) { o.DirtyRowsMax, o.CheckpointEvery = 20, time.Second },
		follower: func(g *pipeline.Guard) { g.Log = credulous{g.Log} },
	}},
	"not caught up": {36, `\(I2, I3\)`, fault{
		setup:    behind,
		follower: func(g *pipeline.Guard) { g.Log = endless{g.Log} },
	}},
	"runs listed before they are durable": {1, `corrupt`, fault{
		engine: func(e cold.Engine) cold.Engine { return unsealed{e} },
	}},
	"applied position not compared": {11, `what the model says`, fault{
		state: func(o *sinks.Options) {
			o.Joins = func(pipeline.Position, *pipeline.Window) (bool, error) { return true, nil }
		},
	}},
	"a dead letter told by its position alone": {302, `\(I9\)`, fault{
		setup: func(s *setup) { s.machine, s.processes, s.lanes, s.cuts, s.events = outside, 1, 3, 12, []int{1} },
		story: func(s *twin.Story) { // what is to be refused, over and over
			good := s.Messages[:1:1]
			bad := slices.DeleteFunc(s.Messages[1:], func(m twin.Message) bool { return !m.Refused(0) })
			s.Messages = append(good, slices.Repeat(bad, 5)...)
		},
		router: func(_ context.Context, p *process, r *pipeline.Router) {
			r.Letters = byPosition{r.Letters, p.w.server}
		},
	}},
	"audit: an answer compared with the log at another position than its own": {5, `a drift that is none`, fault{
		setup: func(s *setup) {
			audited(s)
			s.solid, s.audits, s.plants = true, 30, 0
		},
		audits: auditFault{once: true, served: func(p *process, s check.Served) check.Served { return furthermost{s, p} }},
	}},
	"audit: a shard left out of a round": {2, `does not find a drift`, fault{setup: audited, audits: auditFault{passes: 1}}},
	"nodes: an assignment written without compare-and-set": {4, `epoch is not newer`, fault{
		setup: func(s *setup) {
			nodes(s)
			s.steals, s.crashes = 6, 1
		},
		nodes: nodeFault{blind: true},
	}},
	"nodes: a double holder: a shard that has moved is not given up": {1, `which is assigned to others`, fault{
		setup: nodes, nodes: nodeFault{keeps: true},
	}},
	"nodes: a lease measured from the answer instead of from the question": {14, `is whole, and lacks`, fault{
		setup: func(s *setup) {
			nodes(s)
			s.crashes, s.steals, s.faults = 0, 0, 0
		},
		nodes: nodeFault{late: true},
	}},
	"nodes: a move that skips windows: it takes the shard for as far as the other node is": {3, `what the model says`, fault{
		setup: nodes, nodes: nodeFault{source: func(from *process, s cold.Source) cold.Source { return skipping{s, from} }},
	}},
	"nodes: a move begun again while the shard is taken up": {14, `what the model says`, fault{
		setup: nodes, nodes: nodeFault{again: true},
	}},
	"nodes: a partial sum counted twice": {3, `between what the model says`, fault{setup: nodes, nodes: nodeFault{twice: true}}},
	"nodes: what nobody answers is 0":    {1, `between what the model says|\(I6\)`, fault{setup: nodes, nodes: nodeFault{zero: true}}},
}

// looseEvents has EVENTS lose its tail again and again, under routers that
// replace each other.
func looseEvents(s *setup) {
	s.machine, s.processes, s.steals, s.cuts, s.events = outside, 3, 6, 8, []int{7, 7, 7}
	s.crashes, s.leaders, s.faults = 0, 0, 0
}

// looseDeltas has DELTAS lose its tail under one process that goes on, or
// crashes.
func looseDeltas(s *setup) {
	s.machine, s.processes, s.solid, s.cuts, s.events = outside, 1, true, 8, []int{20}
	s.crashes, s.leaders, s.faults = 1, 0, 0
}

// behind has shards stop and DELTAS purged past them.
func behind(s *setup) {
	s.machine, s.shards, s.crashes, s.spoils, s.presses = safe, 4, 4, 4, true
}

// Each of these promises rests on one thing that could be left out; without it
// the simulation must fail, and say why.
func TestBroken(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broken[name]
			for n := range uint64(brokenMax + 1) {
				seed := n
				if n == 0 {
					seed = b.seed
				}
				_, err := simulate(t, seed, &b.fault, nil)
				if err == nil {
					continue
				}
				if !regexp.MustCompile(b.notices).MatchString(err.Error()) {
					t.Errorf("seed %d: %v\nwant something about %q", seed, err, b.notices)
				}
				t.Logf("noticed by seed %d (%d expected): %.300s", seed, b.seed, err)
				return
			}
			t.Errorf("%d seeds do not notice it", brokenMax)
		})
	}
}
