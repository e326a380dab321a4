package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const (
	// memberBeat is how often a process says how it is, memberExpiry after how
	// long a silence others take it for away.
	memberBeat   = time.Second
	memberExpiry = jetlog.MemberExpiry
)

// openMembers says that this process is there. It is refused where another has
// its name, or counts something else.
func (n *generation) openMembers() (err error) {
	schema, err := n.config.Schema()
	if err != nil {
		return err
	}
	n.same = member(n.config, n.name, n.o.Version)
	n.same.Shards, n.same.Counters = n.config.Shards, cluster.Summary(schema)
	n.same.Differs = len(n.differs) > 0
	n.same.Fingerprint = cluster.FingerprintOf(n.owner())
	ctx, cancel := n.startContext()
	defer cancel()
	return n.untilLed(ctx, startWithin, jetlog.Leaderless, n.joinMembers)
}

// joinMembers watches the members and is one from now on.
func (n *generation) joinMembers(ctx context.Context) error {
	members, err := jetlog.OpenMembers(ctx, n.streams, jetlog.MembersOptions{Beat: memberBeat, Expiry: memberExpiry, Session: n.session, Logger: n.log})
	if err != nil {
		return err
	}
	n.members = members
	if err := members.Join(ctx, n.self()); err != nil {
		members.Close()
		n.members = nil
		return err
	}
	n.watched.Store(members)
	n.work.Go(n.beat)
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

// self is what this process says of itself. Until it is open it holds nothing,
// and acts on no assignment. What it says that it has fits the assignment that it
// names: see change.
func (n *generation) self() cluster.Member {
	m := n.same
	if !n.open.Load() {
		return m
	}
	applied := n.sinks.Applied()
	m.Applied, m.Routes = applied, n.router.Stats.Active.Load()
	lag, caught := n.seen.lag(time.Now(), applied.Sequence())
	m.LagMS, m.Behind = lag.Milliseconds(), !caught || lag > n.config.Ready.Lag
	n.behind.Store(m.Behind)
	h := &n.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Epoch = n.members.View().Assignment.Epoch
	for _, s := range n.sinks.Standings() {
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

// beat says it again and again. A process whose name another one has taken,
// while this one was cut off or suspended, must not go on.
func (n *generation) beat() {
	if err := n.members.Keep(n.ctx, n.self); err != nil {
		n.fail(fmt.Errorf("this process must stop: %w", err))
	}
}

// fail says that the process cannot go on.
func (n *Node) fail(err error) {
	n.log.Error("tidemark: cannot go on", "error", err)
	n.trouble.set("node", err)
	n.failing.Do(func() {
		n.failure = err
		close(n.failed)
	})
}

// Failed is closed when the process cannot go on; Failure says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Failure is why the process cannot go on; nil until Failed is closed.
func (n *Node) Failure() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

// leave tells the others that this process stops, and what it has. Where it
// cannot, they hear nothing of it and come to the same conclusion: the last
// servers of a NATS cluster that stop have no majority any more.
func (n *generation) leave() {
	if n.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), memberBeat)
	defer cancel()
	m := n.self()
	m.Routes = false
	if err := n.members.Leave(ctx, m); err != nil && !errors.Is(err, jetlog.ErrNotJoined) {
		n.log.Warn("tidemark: the others were not told that this node stops; they take it for away before long", "error", err)
	}
	n.members.Close()
}

// deciding is what the assignment is decided by.
func (n *generation) deciding() cluster.Options {
	return cluster.Options{Shards: n.config.Shards, Replicas: n.config.Cluster.Replicas, ReplaceAfter: n.config.Cluster.ReplaceAfter}
}

// decide writes the next assignment, if this is the process that does and there
// is one. What stands in the bucket and is not of this process is replaced: while it
// decides nobody else writes assignments.
func (n *generation) decide(ctx context.Context) error {
	if !n.router.Stats.Active.Load() {
		n.decided = cluster.Assignment{}
		return nil
	}
	view := n.members.View()
	now := view.Assignment
	switch {
	case n.decided.Shards() == 0:
		n.decided = now // what it knew last
	case now.Epoch >= n.decided.Epoch && !now.Same(&n.decided):
		n.log.Error("tidemark: the assignment in the bucket is not this node's, which decides; it is replaced", "epoch", now.Epoch, "remedy", denyBucket)
		view = view.Instead(n.decided)
	}
	next, due := n.answered.only(ctx, n.members, n.name, view).Next(n.deciding())
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	err := n.members.Assign(ctx, view, next)
	if errors.Is(err, jetlog.ErrDecided) { // the next view tells
		return nil
	}
	n.decided = next // also where it is not known whether it is stored
	if err != nil {
		return err
	}
	n.log.Info("tidemark: shards are assigned", "epoch", next.Epoch, "nodes", len(next.Nodes()), "replicas", next.Replicas)
	return nil
}

// answered are the members that have answered to their names. Shards are given to these
// alone: a key that no process keeps must not take shards from nodes that are there.
type answered struct {
	sessions map[string]string    // of members that have answered, by node
	silent   map[string]time.Time // since when others have not
}

// namesAsked is how many members are asked for their names at once.
const namesAsked = 32

// only is the view without members that are up and do not answer to their names. One that
// shards are assigned to must have been silent for an expiry.
func (a *answered) only(ctx context.Context, members *jetlog.Members, me string, v *cluster.View) *cluster.View {
	a.ask(ctx, members, me, v)
	assigned := v.Assignment.Nodes()
	only := *v
	only.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m cluster.State) bool {
		since, silent := a.silent[m.Node]
		_, known := slices.BinarySearch(assigned, m.Node)
		return silent && (!known || time.Since(since) > memberExpiry)
	})
	return &only
}

// ask asks those that have not answered in the session that their keys say.
func (a *answered) ask(ctx context.Context, members *jetlog.Members, me string, v *cluster.View) {
	sessions, silent := map[string]string{}, map[string]time.Time{}
	var mu sync.Mutex
	var asks errgroup.Group
	asks.SetLimit(namesAsked)
	for _, m := range v.Members {
		switch {
		case m.Node == me || m.Status == cluster.Away || !m.Roles.Has(cluster.Hold):
		case a.sessions[m.Node] == m.Session:
			mu.Lock()
			sessions[m.Node] = m.Session
			mu.Unlock()
		default:
			asks.Go(func() error {
				answers := members.Answers(ctx, m.Node, m.Session)
				mu.Lock()
				defer mu.Unlock()
				if since, before := a.silent[m.Node]; answers {
					sessions[m.Node] = m.Session
				} else if silent[m.Node] = time.Now(); before {
					silent[m.Node] = since
				}
				return nil
			})
		}
	}
	_ = asks.Wait()
	a.sessions, a.silent = sessions, silent
}

// denyBucket is the remedy against keys that no node has written.
const denyBucket = "deny others $KV." + jetlog.Bucket + ".> (docs/security.md)"

// unfollowed says that the assignment in the bucket is none that this node follows.
func (n *generation) unfollowed() string {
	if v := n.view(); v.Foreign != nil {
		return fmt.Sprintf("assignment: what stands in the bucket is not followed; the node that routes replaces it within seconds: %v: %s\n", v.Foreign, denyBucket)
	}
	return ""
}

// tidyEvery paces what is done about keys of members that nobody needs.
const tidyEvery = time.Minute

// tidy is for the process that routes.
func (n *generation) tidy(ctx context.Context) error {
	if time.Since(n.tidied) < tidyEvery {
		return nil
	}
	n.tidied = time.Now()
	return n.members.Tidy(ctx)
}

// heldAtStart are the shards that are held from the start: those stored that DELTAS
// brings on, whoever they are assigned to, but for those damaged that another node has.
// Those that are assigned to others are given up as any. What else is assigned
// comes once the node runs: from another node, or derived beside those held. Where
// the commons must be derived from EVENTS, all that is stored or must be derived is
// held and derived with them; and what is assigned is held where DELTAS has all windows
// and they are few, or nothing is stored. Where nothing is assigned and nobody else
// holds anything, all is held.
func (n *generation) heldAtStart() []pipeline.Shard {
	held := []pipeline.Shard{}
	if !n.config.Has(config.RoleHold) {
		return held
	}
	view, me := n.members.View(), n.name
	assigned, others := view.Assignment.HeldSet(me), false
	for _, m := range view.Members {
		others = others || m.Node != me && m.Roles.Has(cluster.Hold) && m.Status != cluster.Away
	}
	alone := view.Assignment.Shards() == 0 && !others && n.config.Weight > 0
	old, commons, whole := n.old()
	reads := commons || whole || !n.store.Stack(pipeline.Shard(n.config.Shards)).Stored() // EVENTS, in any case
	for i := range n.config.Shards {
		s := pipeline.Shard(i)
		others := len(n.elsewhere(view, s)) > 0
		switch stored := n.store.Stack(s).Stored(); {
		case stored && others && n.damaged(s):
			n.holdings.retake(s)
			n.lines.say(slog.LevelWarn, "tidemark: shards whose runs are damaged are taken again from another node", s, nil)
		case stored && (!old.Has(s) || reads && !others), alone,
			reads && assigned.Has(s) && !others && !view.MayHave(s, me, n.config.Cluster.ReplaceAfter):
			held = append(held, s)
		}
	}
	return held
}

// elsewhere are the other nodes that answer for a shard.
func (n *generation) elsewhere(view *cluster.View, s pipeline.Shard) (nodes []string) {
	for _, node := range view.Answering(s) {
		if node != n.name {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
