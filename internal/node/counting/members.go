package counting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// openMembers joins the members. It fails if another process has this one's name, or
// counts something else.
func (g *Generation) openMembers() (err error) {
	schema, err := g.Config.Schema()
	if err != nil {
		return err
	}
	g.same = member(g.Config, g.Name, g.Version)
	g.same.Shards, g.same.Counters = g.Config.Shards, cluster.Summary(schema)
	g.same.Differs = len(g.Differs) > 0
	g.same.Fingerprint = cluster.FingerprintOf(g.owner())
	ctx, cancel := led.Context(g.ctx, g.host.InCluster())
	defer cancel()
	return g.led().Until(ctx, led.StartWithin, jetlog.Leaderless, g.joinMembers)
}

// MembersChanged is closed at the next change of the members; nil: this process has not
// joined them.
func (g *Generation) MembersChanged() <-chan struct{} {
	if g.members == nil {
		return nil
	}
	return g.members.Changed()
}

// joinMembers watches the members and is one from now on.
func (g *Generation) joinMembers(ctx context.Context) error {
	members, err := bucket.OpenMembers(ctx, g.streams, bucket.MembersOptions{Beat: bucket.MemberBeat, Expiry: bucket.MemberExpiry, Session: g.Session, Logger: g.Log})
	if err != nil {
		return err
	}
	g.members = members
	if err := members.Join(ctx, g.self()); err != nil {
		members.Close()
		g.members = nil
		return err
	}
	g.watched.Store(members)
	g.work.Go(g.beat)
	return nil
}

// member is what a configuration says of a process.
func member(c *config.Config, node, version string) cluster.Member {
	m := cluster.Member{Node: node, Zone: c.Zone, Weight: c.Weight, Version: version, Formats: cluster.OwnFormats(), FreshnessMS: c.Freshness.Milliseconds()}
	for role, bit := range map[string]cluster.Roles{config.RoleRoute: cluster.Route, config.RoleHold: cluster.Hold, config.RoleAnswer: cluster.Answer} {
		if c.Has(role) {
			m.Roles |= bit
		}
	}
	return m
}

// self is what this process says of itself. Until it is open it holds nothing, and acts on
// no assignment. The shards that it says it has fit the assignment that it names: see
// change.
func (g *Generation) self() cluster.Member {
	m := g.same
	if !g.open.Load() {
		return m
	}
	applied := g.sinks.Applied()
	m.Applied, m.Routes = applied, g.router.Stats.Active.Load()
	lag, caught := g.seen.lag(time.Now(), applied.Sequence())
	m.LagMS, m.Behind = lag.Milliseconds(), !caught || lag > g.Config.Ready.Lag
	g.behind.Store(m.Behind)
	h := &g.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Epoch = g.members.View().Assignment.Epoch
	for _, s := range g.sinks.Standings() {
		switch {
		case h.leaving.Has(s.Shard):
		case s.Err != nil:
			m.Failed.Add(s.Shard)
		case s.Answers:
			m.Ready.Add(s.Shard)
		}
	}
	h.failedLocked(&m.Failed)
	m.Loading = h.loadedLocked()
	for s := range m.Ready.All() {
		delete(m.Loading, s)
	}
	return m
}

// beat repeats what self says. If another process has taken this one's name, while this one
// was cut off or suspended, this one must not go on.
func (g *Generation) beat() {
	if err := g.members.Keep(g.ctx, g.self); err != nil {
		g.fail(fmt.Errorf("this process must stop: %w", err))
	}
}

// leave lets the other nodes know that this process stops, and what it has. Where it
// cannot, they hear nothing of it and come to the same conclusion: the last servers of a
// NATS cluster that stop no longer have a majority.
func (g *Generation) leave() {
	if g.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), bucket.MemberBeat)
	defer cancel()
	m := g.self()
	m.Routes = false
	if err := g.members.Leave(ctx, m); err != nil && !errors.Is(err, bucket.ErrNotJoined) {
		g.Log.Warn("tidemark: the others were not told that this node stops; they take it for away before long", "error", err)
	}
	g.members.Close()
}

// deciding is what the assignment is decided by.
func (g *Generation) deciding() cluster.Options {
	return cluster.Options{Shards: g.Config.Shards, Replicas: g.Config.Cluster.Replicas, ReplaceAfter: g.Config.Cluster.ReplaceAfter}
}

// decide writes the next assignment, if this is the process that decides and there is a
// next one.
func (g *Generation) decide(ctx context.Context) error {
	if !g.router.Stats.Active.Load() {
		return nil
	}
	view := g.members.View()
	next, due := view.Next(g.deciding())
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	err := g.members.Assign(ctx, view, next)
	if errors.Is(err, bucket.ErrDecided) { // the next view has it
		return nil
	}
	if err == nil {
		g.Log.Info("tidemark: shards are assigned", "epoch", next.Epoch, "nodes", len(next.Nodes()), "replicas", next.Replicas)
	}
	return err
}

// tidyEvery paces what is done about keys of members that nobody needs.
const tidyEvery = time.Minute

// tidy is for the process that routes.
func (g *Generation) tidy(ctx context.Context) error {
	if time.Since(g.tidied) < tidyEvery {
		return nil
	}
	g.tidied = time.Now()
	return g.members.Tidy(ctx)
}

// heldAtStart are the shards that are held from the start: those that are stored and that
// DELTAS brings on, assigned to this node or not. Damaged ones that another node has are
// left out. Those that are assigned to other nodes are given up later, as any shard is.
// What else is assigned comes once the node runs: from another node, or derived beside
// those held. Where the commons must be derived from EVENTS, all that is stored or must be
// derived is held and derived with them; and what is assigned is held where DELTAS has all
// windows and they are few, or nothing is stored. Where nothing is assigned and no other
// node holds anything, all is held.
func (g *Generation) heldAtStart() []pipeline.Shard {
	held := []pipeline.Shard{}
	if !g.Config.Has(config.RoleHold) {
		return held
	}
	view, me := g.members.View(), g.Name
	assigned, others := view.Assignment.HeldSet(me), false
	for _, m := range view.Members {
		others = others || m.Node != me && m.Roles.Has(cluster.Hold) && m.Status != cluster.Away
	}
	alone := view.Assignment.Shards() == 0 && !others && g.Config.Weight > 0
	old, commons, whole := g.old()
	reads := commons || whole || !g.store.Stack(pipeline.Shard(g.Config.Shards)).Stored() // EVENTS, in any case
	for i := range g.Config.Shards {
		s := pipeline.Shard(i)
		others := len(g.elsewhere(view, s)) > 0
		switch stored := g.store.Stack(s).Stored(); {
		case stored && others && g.damaged(s):
			g.holdings.retake(s)
			g.Lines.Say(slog.LevelWarn, "tidemark: shards whose runs are damaged are taken again from another node", s, nil)
		case stored && (!old.Has(s) || reads && !others), alone,
			reads && assigned.Has(s) && !others && !view.MayHave(s, me, g.Config.Cluster.ReplaceAfter):
			held = append(held, s)
		}
	}
	return held
}

// elsewhere are the other nodes that answer for a shard.
func (g *Generation) elsewhere(view *cluster.View, s pipeline.Shard) (nodes []string) {
	for _, node := range view.Answering(s) {
		if node != g.Name {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Attach joins the members of a system that others keep, unless it has. Nothing is created.
func (g *Generation) Attach(ctx context.Context) error {
	if g.members != nil {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	streams, err := jetlog.Attach(soon, g.NC, g.Slot, jetlog.Owner{Number: g.Number}, g.Log)
	if err != nil {
		return err
	}
	g.streams, g.same = streams, member(g.Config, g.Name, g.Version)
	if err := g.joinMembers(ctx); err != nil {
		return err
	}
	return g.openEnds()
}
