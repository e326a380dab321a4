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
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/audit"
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
	"an unknown append taken for one that was stored": {234, `\(I2|stuck`, fault{
		setup:  func(s *setup) { s.machine, s.processes, s.steals, s.faults, s.events = safe, 3, 6, 0.3, []int{1, 2, 7} },
		router: func(_ context.Context, _ *process, r *pipeline.Router) { r.Log = trusting{r.Log} },
	}},
	"window cut not recorded: a restart goes on at the end of EVENTS": {1, `\(I2|stuck`, fault{
		router: func(_ context.Context, p *process, r *pipeline.Router) { r.Log = forgetful{r.Log, p.w.server} },
	}},
	"window cut not recorded: a restart goes on at the next message": {1, `what the model says`, fault{
		router: func(_ context.Context, _ *process, r *pipeline.Router) {
			lane := r.Lane
			r.Lane = func() pipeline.Deriver { return whole{lane()} }
		},
	}},
	"read merged in the wrong order": {1, `what the model says`, fault{
		router: func(ctx context.Context, p *process, r *pipeline.Router) {
			r.Lane = func() pipeline.Deriver { return p.witness(ctx, &remerger{shards: p.w.shards, wrong: true}) }
		},
	}},
	"a window left out": {1, `\(I2`, fault{
		router: func(_ context.Context, _ *process, r *pipeline.Router) { r.Log = &unchained{Log: r.Log} },
	}},
	"EVENTS' tail guarded before the end of DELTAS is read": {103, `\(I10\)`, fault{
		setup: looseEvents,
		route: func(ctx, held context.Context, p *process) error {
			if err := p.guard.Mend(ctx); err != nil {
				return err
			}
			r := p.router(ctx)
			r.Open = p.guard.Events.Open
			return r.Run(held)
		},
	}},
	"EVENTS' tail guarded before EVENTS is opened, and not after": {332, `\(I10\)`, fault{
		setup: func(s *setup) {
			looseEvents(s)
			s.processes, s.steals, s.cuts = 1, 0, 16
		},
		router: func(ctx context.Context, p *process, r *pipeline.Router) {
			r.Open = func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
				if err := p.guard.Mend(ctx); err != nil {
					return nil, err
				}
				return p.guard.Events.Open(held, from)
			}
		},
	}},
	"EVENTS' tail guarded without waiting for the shards": {65, `\(I10\)|\(I1\)|what the model says`, fault{
		setup: func(s *setup) {
			looseDeltas(s)
			s.events, s.crashes, s.solid, s.blinds = []int{2}, 0, false, 6
		},
		state: forgetting,
		guard: func(g *pipeline.Guard) { g.Shards = unsettled{g.Shards} },
	}},
	"what was stored at used sequences not moved": {23, `\(I10\)|what the model says`, fault{
		guard: func(g *pipeline.Guard) { g.Events = unmoved{g.Events} },
	}},
	"windows that go over where shards stand handed to them": {9, `\(I2, I3\)`, fault{
		setup: func(s *setup) {
			s.processes, s.machine, s.intrusions, s.solid, s.events = 3, safe, 4, true, []int{1, 7, 20}
		},
		follower: func(g *pipeline.Guard) { g.Shards = &placeless{Shards: g.Shards} },
	}},
	"DELTAS followed by its sequences alone": {29, `\(I2, I3\)`, fault{
		setup:    looseDeltas,
		state:    func(o *sinks.Options) { o.DirtyRowsMax, o.CheckpointEvery = 20, time.Second },
		follower: func(g *pipeline.Guard) { g.Log = credulous{g.Log} },
	}},
	"DELTAS followed from a window later": {1, `\(I2, I3\)`, fault{
		follower: func(g *pipeline.Guard) { g.Shards = hurried{g.Shards} },
	}},
	"not caught up": {36, `\(I2, I3\)`, fault{
		setup:    behind,
		follower: func(g *pipeline.Guard) { g.Log = endless{g.Log} },
	}},
	"caught up from where the furthest shard stands": {36, `\(I2, I3\)`, fault{
		setup:    behind,
		follower: func(g *pipeline.Guard) { g.Shards = furthest{g.Shards} },
	}},
	"caught up in windows that go over where shards stand": {43, `\(I2, I3\)`, fault{
		setup:    behind,
		follower: func(g *pipeline.Guard) { g.Shards = outermost{g.Shards} },
	}},
	"caught up from a message later": {36, `what the model says`, fault{
		setup:    behind,
		follower: func(g *pipeline.Guard) { g.Events = late{g.Events} },
	}},
	"runs listed before they are durable": {1, `corrupt`, fault{
		engine: func(e cold.Engine) cold.Engine { return unsealed{e} },
	}},
	"runs merged in the wrong order: older over newer": {5, `what the model says`, fault{
		store: func(s *cold.Store) { s.Broken.Merge = backwards },
	}},
	"a run lost: a merge leaves it out": {5, `what the model says`, fault{
		store: func(s *cold.Store) { s.Broken.Merge = allButNewest },
	}},
	"a run doubled: a merge leaves it in the list": {5, `what the model says`, fault{
		store: func(s *cold.Store) { s.Broken.Replace = newestStays },
	}},
	"a stale filter: of a run as it was before a merge": {5, `what the model says`, fault{
		store: func(s *cold.Store) { newStale(s) },
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
		audits: auditFault{once: true, served: func(p *process, s audit.Served) audit.Served { return furthermost{s, p} }},
	}},
	"audit: a window of the log skipped": {1, `a drift that is none`, fault{
		setup: audited, audits: auditFault{lane: func(d pipeline.Deriver) pipeline.Deriver { return &skips{Deriver: d} }},
	}},
	"audit: what differs while EVENTS is mended is not looked at again": {4, `a drift that is none`, fault{
		setup: func(s *setup) {
			looseEvents(s)
			audited(s)
			s.audits, s.plants, s.cuts = 30, 0, 16
		},
		audits: auditFault{once: true},
	}},
	"audit: a shard left out of a round":    {2, `does not find a drift`, fault{setup: audited, audits: auditFault{passes: 1}}},
	"backup: EVENTS trimmed above its base": {8, `above its base`, fault{setup: backedUp, backups: backupFault{baseless: true}}},
	"backup: EVENTS trimmed while a generation is being built": {3, `is being built`, fault{
		setup: func(s *setup) {
			backedUp(s)
			s.backups, s.audits, s.crashes, s.steals, s.faults = 20, 0, 0, 0, 0
		},
		backups: backupFault{heedless: true},
	}},
	"backup: taken as verified with a state of another position than it says": {1, `what the model says`, fault{
		setup: backedUp, backups: backupFault{source: func(from *process, s cold.Source) cold.Source { return skipping{s, from} }},
	}},
	"backup: a restore that begins the log an event late":  {1, `what the model says`, fault{setup: backedUp, backups: backupFault{late: true}}},
	"backup: a restore that begins the log an event early": {1, `what the model says|shards stand at`, fault{setup: backedUp, backups: backupFault{early: true}}},
	"archive: a segment left out": {13, `are missing|the archive ends with|is missing|EVENTS was whole`, fault{
		setup: archivedSoon, archives: archiveFault{files: func(w *world, f archive.Files) archive.Files { return leaving{f, w.vault.n} }},
	}},
	"archive: a segment there twice": {6, `are there twice`, fault{
		setup: archived, archives: archiveFault{files: func(_ *world, f archive.Files) archive.Files { return doubling{f} }},
	}},
	"archive: EVENTS trimmed before what is archived is safe": {4, `the archive ends with`, fault{setup: archivedSoon, archives: archiveFault{early: true}}},
	"restore: what half a restore has left is taken for restored": {55, `\(I4\)`, fault{
		setup: func(s *setup) {
			archivedSoon(s)
			s.crashes = 8
		},
		archives: archiveFault{believing: true},
	}},
	"restore: the log behind the backup begun a message late":  {1, `what the model says`, fault{setup: archived, archives: archiveFault{short: true}}},
	"restore: a position past the log's end taken for the end": {1, `past the end of the log`, fault{setup: archived, archives: archiveFault{past: true}}},
	"nodes: an assignment written without compare-and-set": {4, `epoch is not newer`, fault{
		setup: func(s *setup) {
			nodes(s)
			s.steals, s.crashes, s.forges = 6, 1, 0
		},
		nodes: nodeFault{blind: true},
	}},
	"nodes: an old epoch acted on": {1, `which is assigned to`, fault{setup: nodes, nodes: nodeFault{frozen: true}}},
	"nodes: a double holder: a shard that has moved is not given up": {1, `which is assigned to others`, fault{
		setup: nodes, nodes: nodeFault{keeps: true},
	}},
	"nodes: a copy dropped unseen": {1, `is dropped, and no other process has it`, fault{
		setup: nodes, nodes: nodeFault{unseen: true},
	}},
	"nodes: a lease measured from the answer instead of from the question": {14, `is whole, and lacks`, fault{
		setup: func(s *setup) {
			nodes(s)
			s.crashes, s.steals, s.faults, s.forges = 0, 0, 0, 0
		},
		nodes: nodeFault{late: true},
	}},
	"nodes: a move that skips windows: it takes the shard for as far as the other node is": {1, `what the model says`, fault{
		setup: nodes, nodes: nodeFault{source: func(from *process, s cold.Source) cold.Source { return skipping{s, from} }},
	}},
	"nodes: a move that leaves out the newest run": {1, `what the model says`, fault{
		setup: nodes, nodes: nodeFault{source: func(_ *process, s cold.Source) cold.Source { return incomplete{s} }},
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

// forgetting has shards wait for their disk, with windows handed to them.
func forgetting(o *sinks.Options) { o.MemoryBytes, o.Owners = 1, 1 }

// behind has shards stop and DELTAS purged past them.
func behind(s *setup) {
	s.machine, s.shards, s.crashes, s.spoils, s.presses = safe, 4, 4, 4, true
}

// Each of these promises rests on one thing that could be left out; without it
// the simulation must fail, and say why.
func TestBroken(t *testing.T) {
	skipRaced(t)
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
