package counting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// audits compare what is served here with the log: the audit that never ends, and what
// commands ask for (checks.go). A shard that differs is no longer trusted (renewals.go).
type audits struct {
	*check.Auditor

	distrusting sync.Mutex // held by distrust

	mu      sync.Mutex
	renewed map[pipeline.Shard]time.Time // when a shard was last not trusted
	stop    context.CancelFunc           // of the audit that never ends; nil: it has not begun
	renewals
}

// auditRun and auditRunBytes are about how much of EVENTS is derived at a time: deriving it
// takes some milliseconds, and so does taking it in.
const auditRun, auditRunBytes = 1024, 512 << 10

// openAudits makes what reads the log: explanations and, if this process holds shards, the
// auditor.
func (g *Generation) openAudits() error {
	g.openExplainer()
	if !g.Config.Has(config.RoleHold) {
		return nil
	}
	c, o := g.Config, g.sinksOptions(nil, 0)
	events := g.eventsIn(jetlog.RunOptions{MessagesMax: auditRun, BytesMax: auditRunBytes, Logger: g.Log})
	g.audits.Auditor = &check.Auditor{
		Served: g.sinks,
		Open:   events.Open,
		Bases:  g.bases, Filters: g.explainer,
		Lane:   func() pipeline.Deriver { return g.program.NewLane() },
		Schema: g.store.Schema(),
		Shards: c.Shards,
		Users:  o.Users, Channels: o.Channels, Notices: o.Notices, Dots: o.Dots,
		Dir: g.Dir.Path, Room: g.roomToCopy,
		Logger: g.Log,
	}
	return nil
}

// whileOpen calls do with a ctx that ends with the generation, which is not closed before
// do returns.
func (g *Generation) whileOpen(ctx context.Context, do func(ctx context.Context) (any, error)) (any, error) {
	gone := &job.Error{Code: job.CodeGone, Text: "what is compared is closed; ask again"}
	g.users.RLock()
	defer g.users.RUnlock()
	if g.closed {
		return nil, gone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	result, err := do(ctx)
	if err != nil && g.ctx.Err() != nil {
		err = gone
	}
	return result, err
}

// audit is the audit that never ends, if there is to be one.
func (g *Generation) audit(ctx context.Context) {
	if g.Config.Audit.Rate == 0 {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.audits.mu.Lock()
	g.audits.stop = stop
	g.audits.mu.Unlock()
	if g.mixed() {
		g.Log.Warn("tidemark: there is no audit: what is counted here was not all counted by today's rules and limits, so the log says something else; 'tidemark repair --replay' counts all again")
		return
	}
	rounds := check.Rounds{
		Auditor: g.audits.Auditor, Bits: g.Config.Audit.Bits(), Rate: g.Config.Audit.Rate, Memory: int(g.Config.Audit.Memory),
		Found: g.found,
	}
	rounds.Run(ctx)
}

// found logs what the audit has found, and repairs shards that differ. It repairs nothing if
// a base backup was used, which may itself be wrong, with the copy that it was made of.
func (g *Generation) found(r *check.Report) {
	if g.host.Generations().Recounts() { // EVENTS has lost its tail: everything is counted again
		return
	}
	for i, d := range r.Examples {
		g.Log.Error("audit: what is served is not what the log says", "counter", d.Counter, "id", d.ID, "column", d.Column, "is", d.Is, "should", d.Should, "at", d.At, "shard", d.Shard)
		if i == 4 {
			break
		}
	}
	if len(r.Notices) > 0 {
		g.Log.Error("audit: the channels are not what the log says", "notices", len(r.Notices))
	}
	if r.Base != "" {
		g.Log.Error("audit: EVENTS lacks its beginning, and what stands for it may be what is wrong, with the copy that it was made of: nothing is repaired; 'tidemark recount --repair' makes it what base and log say", "base", r.Base)
		return
	}
	_, _ = g.repair(r) // it has said so
}

// repair has the shards that differ taken again, and corrects notices. It returns which shards, and
// why others are not.
func (g *Generation) repair(r *check.Report) (renewed []pipeline.Shard, faults error) {
	drifted := r.Drifted()
	for _, s := range slices.Sorted(maps.Keys(drifted)) {
		if err := g.distrust(g.ctx, s, drifted[s], r.Shards[s].Since); err != nil {
			g.Log.Error("audit: a shard that differs is not taken again", "shard", s, "error", err)
			faults = errors.Join(faults, fmt.Errorf("shard %d: %w", s, err))
			continue
		}
		renewed = append(renewed, s)
	}
	return renewed, errors.Join(faults, g.correct(r.Notices))
}

// correct has notices be what the log said. What it has said of them since, the next comparison
// tells.
func (g *Generation) correct(notices []check.Difference) error {
	switch {
	case len(notices) == 0:
		return nil
	case g.mixed():
		return errMixed
	}
	list := make([]shard.Correction, len(notices))
	for i, d := range notices {
		list[i] = shard.Correction{Channel: d.Column, Notice: d.ID, Is: pipeline.Position(max(d.Is, 0)), Should: pipeline.Position(max(d.Should, 0))}
	}
	made, err := g.sinks.Correct(g.ctx, list)
	if err != nil {
		return fmt.Errorf("the channels: %w", err)
	}
	g.Log.Info("audit: notices are corrected", "notices", made)
	return nil
}

// renewEvery is how long after a repair a shard may be repaired again: the reason why it
// differs may be in how it is derived.
const renewEvery = time.Hour

// distrust gives up a shard whose ids differ from the log, forgets it, and has it taken
// again: from another node whose copy of these ids agrees with the log, or else from the
// log. Where it is not known that this makes it right, the shard stays, and an error says
// why. A shard that is already being taken again, or was since this comparison began, is
// left alone: what still differs is found again.
func (g *Generation) distrust(ctx context.Context, s pipeline.Shard, ids []uint64, since time.Time) (err error) {
	if g.mixed() {
		return errMixed
	}
	a := &g.audits
	a.distrusting.Lock()
	defer a.distrusting.Unlock()
	if g.renewedSince(s, since) {
		return nil
	}
	if err := a.first(s); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.again(s)
		}
	}()
	view := g.members.View()
	for _, m := range view.Members { // a node that is new does not know by which rules the others began
		if m.Node == g.Name || m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) {
			continue
		}
		r, err := checks.AskAgree(ctx, g.Queries, m.Node, nil)
		if err != nil {
			return fmt.Errorf("node %s does not say by what rules it counted: %w", m.Node, err)
		}
		if r.Mixed {
			g.setMixed()
			return errMixed
		}
	}
	var trusted, wrong []string
	for _, node := range g.elsewhere(view, s) {
		r, err := checks.AskAgree(ctx, g.Queries, node, ids)
		switch {
		case err != nil:
			return fmt.Errorf("the copy of node %s could not be compared: %w", node, err)
		case r.Differs > 0:
			g.Log.Warn("audit: another node's copy does not agree with the log either", "shard", s, "node", node)
			wrong = append(wrong, node)
		case r.IDs != len(ids):
			return fmt.Errorf("the copy of node %s could not be compared: it compared %d of %d ids", node, r.IDs, len(ids))
		default:
			trusted = append(trusted, node)
		}
	}
	if err := g.comesFrom(trusted); err != nil {
		return err
	}
	g.Log.Error("tidemark: a shard differs from the log; it is given up and taken again", "shard", s, "ids", len(ids), "not_from", wrong)
	g.renew(s, wrong)
	return nil
}

// first notes that a shard is not trusted. It fails if that was noted within renewEvery.
func (a *audits) first(s pipeline.Shard) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, before := a.renewed[s]; before && time.Since(at) < renewEvery {
		return errors.New("it was taken again less than an hour ago, and differs still: this may be a bug in Tidemark, please report it")
	}
	if a.renewed == nil {
		a.renewed = make(map[pipeline.Shard]time.Time)
	}
	a.renewed[s] = time.Now()
	return nil
}

// again notes that a shard was not taken again after all: it may be at any time.
func (a *audits) again(s pipeline.Shard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.renewed, s)
}

// errMixed: counts stand that other rules or limits made.
var errMixed = errors.New("what is counted was not all counted by today's rules and limits")

func (g *Generation) mixed() bool {
	_, mixed := g.counted()
	return mixed
}

func (g *Generation) counted() (by string, mixed bool) {
	g.audits.mu.Lock()
	defer g.audits.mu.Unlock()
	is := g.Dir.Counted(g.Number)
	return is.Counting, is.Mixed
}

func (g *Generation) setMixed() {
	g.audits.mu.Lock()
	defer g.audits.mu.Unlock()
	if g.audits.stop != nil {
		g.audits.stop()
	}
	is := g.Dir.Counted(g.Number)
	is.Mixed = true
	if err := g.Dir.Note(g.Number, is); err != nil {
		g.Log.Warn("tidemark: that counts are mixed was not noted", "error", err)
	}
}

// auditFigures are those of the audit and of what commands have checked.
func (g *Generation) auditFigures(c *figures.Collector) {
	if !g.Config.Has(config.RoleHold) {
		return
	}
	stats := func(of func(s *check.Stats) float64) func() float64 {
		return func() float64 {
			if g.audits.Auditor == nil {
				return 0
			}
			return of(&g.audits.Stats)
		}
	}
	c.Counter("audit_events_total", "Events of EVENTS that were derived again, to compare.", stats(func(s *check.Stats) float64 { return float64(s.Events.Load()) }))
	c.Counter("audit_ids_total", "Ids compared with the log, each with all that is known of it.", stats(func(s *check.Stats) float64 { return float64(s.IDs.Load()) }))
	c.Counter("audit_drifted_total", "Of these, ids that were not what the log says.", stats(func(s *check.Stats) float64 { return float64(s.Differ.Load()) }))
	c.Counter("audit_passes_total", "Samples that the audit has compared.", stats(func(s *check.Stats) float64 { return float64(s.Passes.Load()) }))
	c.Gauge("audit_refused", "1 while the audit cannot derive: EVENTS lacks its beginning, and no backup stands for it.", stats(func(s *check.Stats) float64 {
		if s.Refused.Load() {
			return 1
		}
		return 0
	}))
	c.Add(prometheus.GaugeValue, "audit_round_age_seconds", "Since the audit had last compared all ids; none before the first time since the start.", nil, func(emit func(float64, ...string)) {
		if g.audits.Auditor == nil {
			return
		}
		if at := g.audits.Stats.FullAt.Load(); at != 0 {
			emit(time.Since(time.UnixMilli(at)).Seconds())
		}
	})
}
