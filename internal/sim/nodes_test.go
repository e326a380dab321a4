package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// amongNodes says that processes hold some of the shards each.
func (w *world) amongNodes() bool { return w.replicas > 0 }

// nodes is the setup of worlds in which shards are spread over several holders
// and move. Streams lose nothing there: what a power cut does to them is told
// by the other worlds.
func nodes(s *setup) {
	s.replicas = 1 + (s.lanes+s.processes)%2
	s.processes, s.shards = 2+(s.processes+s.shards)%3, 2+s.shards
	s.machine, s.intrusions, s.spoils = safe, 0, 0
	for len(s.events) < s.processes {
		s.events = append(s.events, []int{1, 7, 20}[len(s.events)%3])
	}
}

// nodeFault is what is broken among nodes.
type nodeFault struct {
	source func(from *process, s cold.Source) cold.Source // what a shard is copied from; may be nil
	keeps  bool                                           // shards are never given up
	blind  bool                                           // the bucket's compare-and-set is left out
	twice  bool                                           // a reply that comes twice counts twice
	zero   bool                                           // what nobody answers is answered as 0
	late   bool                                           // a proof of where EVENTS ends begins with the answer, not with the question
	again  bool                                           // a move begins again although its shard is taken up
}

func (w *world) nodeFault() nodeFault {
	if w.fault == nil {
		return nodeFault{}
	}
	return w.fault.nodes
}

// The times of membership, and how much moves at once.
const (
	beat         = time.Second
	expiry       = 5 * time.Second
	replaceAfter = 15 * time.Second
	movesMax     = 2
)

func (w *world) deciding() cluster.Options {
	return cluster.Options{Shards: w.shards, Replicas: w.replicas, ReplaceAfter: replaceAfter}
}

func (p *process) name() string { return "n" + strconv.Itoa(p.number) }

// processNamed is the process of a node.
func (w *world) processNamed(node string) *process {
	n, err := strconv.Atoi(strings.TrimPrefix(node, "n"))
	if err != nil {
		panic(err)
	}
	return w.processes[n]
}

// membership is what one life of a process knows of the others, and what is on
// its way to it and away from it. Each of its goroutines touches it only in the
// sequel of a call of its own.
type membership struct {
	roster *cluster.Roster
	view   *cluster.View
	seen   uint64 // the bucket's revision
	mine   uint64 // that of its own key
	routes int    // routers that run
	fresh  *pipeline.Freshness

	moves map[pipeline.Shard]context.CancelFunc // on their way here

	mu        sync.Mutex         // what goes on at a world's end has no turns
	take      []pipeline.Shard   // due to be held
	drop      []pipeline.Shard   // due to be given up
	interrupt context.CancelFunc // of the follower; nil: it does not follow
}

func newMembership() *membership {
	m := &membership{
		roster: cluster.NewRoster(beat, expiry), moves: map[pipeline.Shard]context.CancelFunc{},
		fresh: pipeline.NewFreshness(freshness, func() time.Duration { return time.Since(epoch) }),
	}
	m.roster.Begin(time.Now(), epoch)
	return m
}

// loading says whether any shard is on its way here.
func (m *membership) loading() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.moves)+len(m.take) > 0
}

// taking says whether a shard is due to be held.
func (m *membership) taking(s pipeline.Shard) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.take, s)
}

// changes says whether anything is due.
func (m *membership) changes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.take)+len(m.drop) > 0
}

// follows notes how the follower is interrupted from now on; nil: it does not follow.
func (m *membership) follows(interrupt context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.interrupt != nil {
		m.interrupt()
	}
	m.interrupt = interrupt
}

// look takes in what the bucket has.
func (p *process) look(ctx context.Context) error {
	m := p.membership
	entries, revision, err := p.client.Watch(ctx, m.seen)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.roster.Take(time.Now(), e); err != nil && !p.w.nodeFault().blind {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
		}
		if e.Key == cluster.MemberPrefix+p.name() {
			m.mine = e.Revision
		}
	}
	m.roster.Listed()
	m.seen, m.view = revision, m.roster.View(time.Now())
	return nil
}

// self is what the process says of itself.
func (p *process) self() cluster.Member {
	me := cluster.Member{
		Node: p.name(), Session: strconv.Itoa(p.lives), Roles: cluster.Route | cluster.Hold | cluster.Answer,
		Weight: 1, Formats: cluster.OwnFormats(), Shards: p.w.shards, Fingerprint: 1,
		Epoch: p.view.Assignment.Epoch, Applied: p.node.Applied(), Routes: p.routes > 0,
		Loading: map[pipeline.Shard]float64{},
	}
	for s := range p.moves {
		me.Loading[s] = 0.5
	}
	for _, s := range p.node.Standings() {
		if delete(me.Loading, s.Shard); s.Answers {
			me.Ready.Add(s.Shard)
		}
	}
	return me
}

// member is one beat: the process sees what others say, says how it is itself,
// decides if it routes, and brings what it holds to what it is assigned.
func (p *process) member(ctx context.Context) error {
	if err := p.look(ctx); err != nil {
		return err
	}
	if !p.up() {
		return nil
	}
	me := p.self()
	value, err := me.Encode()
	if err == nil {
		err = p.put(ctx, cluster.MemberPrefix+p.name(), value, p.mine)
	}
	if err != nil {
		return err
	}
	if next, due := p.view.Next(p.w.deciding()); due && p.routes > 0 {
		if value, err = next.Encode(); err == nil {
			err = p.put(ctx, cluster.AssignmentKey, value, p.view.Revision)
		}
	}
	if p.up() {
		p.arrange(ctx)
	}
	return err
}

func (p *process) put(ctx context.Context, key string, value []byte, revision uint64) error {
	if !p.w.nodeFault().blind || key != cluster.AssignmentKey {
		return p.client.Put(ctx, key, value, revision)
	}
	err := p.client.Work(ctx, revision)
	if err == nil {
		p.w.server.Tell(key, value)
	}
	return err
}

// heldAtStart are the shards held from the start, by the rule of
// internal/node.
func (p *process) heldAtStart(store *cold.Store) []pipeline.Shard {
	assigned, others := p.view.Assignment.HeldSet(p.name()), false
	for _, m := range p.view.Members {
		others = others || m.Node != p.name() && m.Status != cluster.Away
	}
	held := []pipeline.Shard{}
	for i := range p.w.shards {
		s := pipeline.Shard(i)
		alone := p.view.Assignment.Shards() == 0 && !others
		if store.Stack(s).Stored() || alone || assigned.Has(s) && len(p.elsewhere(s)) == 0 {
			held = append(held, s)
		}
	}
	return held
}

// elsewhere are the other nodes that answer for a shard.
func (p *process) elsewhere(s pipeline.Shard) []string {
	return slices.DeleteFunc(p.view.Answering(s), func(node string) bool { return node == p.name() })
}

// arrange begins and ends moves, by the rules of internal/node.
func (p *process) arrange(ctx context.Context) {
	m, view := p.membership, *p.view
	if view.Assignment.Shards() != p.w.shards {
		return
	}
	assigned := view.Assignment.HeldSet(p.name())
	for _, s := range sortedShards(m.moves) {
		if slices.Contains(p.holds, s) || !assigned.Has(s) && !m.taking(s) {
			m.moves[s]()
			delete(m.moves, s)
		}
	}
	for s := range assigned.All() {
		_, begun := m.moves[s]
		if begun || m.taking(s) && !p.w.nodeFault().again || slices.Contains(p.holds, s) || len(m.moves) >= movesMax {
			continue
		}
		moving, cancel := context.WithCancel(Turn(ctx, p.lives<<32|1<<31|int(s)))
		m.moves[s] = cancel
		from := p.elsewhere(s)
		go func() {
			defer p.w.caught()
			err := p.bring(moving, s, from)
			if moving.Err() != nil {
				return
			}
			if delete(m.moves, s); err != nil {
				p.w.heard(p, err)
				return
			}
			m.due(&m.take, s)
		}()
	}
	said, _ := view.Member(p.name())
	var has cluster.ShardSet
	if said.Member != nil {
		has = said.Ready
	}
	if letGo := view.LetGo(p.name(), has); !p.w.nodeFault().keeps {
		for s := range letGo.All() {
			m.due(&m.drop, s)
		}
	}
}

func sortedShards(moves map[pipeline.Shard]context.CancelFunc) (all []pipeline.Shard) {
	for s := range moves {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// due says that a shard is to be held, or given up: between two runs of the
// follower.
func (m *membership) due(list *[]pipeline.Shard, s pipeline.Shard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
	if m.interrupt != nil {
		m.interrupt()
	}
}

// bring copies a shard from one of the nodes that have it. Where nobody does it
// is held with what is stored here.
func (p *process) bring(ctx context.Context, s pipeline.Shard, nodes []string) (err error) {
	if err := p.client.Work(ctx, uint64(s)); err != nil { // after the beat that began it
		return err
	}
	for _, node := range nodes {
		if err = p.copy(ctx, s, p.w.processNamed(node)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// moved counts the shards that were copied, and compared the answers of several
// nodes that were held against the model, in all worlds.
var moved, compared, recently atomic.Uint64

var errGone = errors.New("sim: the other process is gone")

func (p *process) copy(ctx context.Context, s pipeline.Shard, from *process) error {
	r := &remote{p: p, of: from, shard: s}
	if err := r.open(ctx); err != nil {
		return err
	}
	defer r.export.Close()
	to, err := p.store.Import(s)
	if err != nil {
		return err
	}
	defer to.Close()
	source := cold.Source(r)
	if broken := p.w.nodeFault().source; broken != nil {
		source = broken(from, source)
	}
	if err = to.Copy(ctx, source); err == nil {
		err = to.Commit()
	}
	if err == nil {
		moved.Add(1)
	}
	return err
}

// remote is a shard's runs on the disk of another process: what sinks/move
// brings over NATS. A request may be lost, what comes may be damaged, and the
// other process may go.
type remote struct {
	p, of  *process
	life   int
	shard  pipeline.Shard
	export *cold.Export
}

var _ cold.Source = (*remote)(nil)

func (r *remote) pass(ctx context.Context, key uint64) (Fate, error) {
	fate, err := r.p.client.pass(ctx, Call{Kind: Fetch, Key: key})
	switch {
	case err != nil:
		return fate, err
	case fate.Err != nil:
		return fate, fate.Err
	case !r.of.up() || r.export != nil && r.of.lives != r.life:
		return fate, errGone
	}
	return fate, nil
}

func (r *remote) open(ctx context.Context) error {
	if _, err := r.pass(ctx, 0); err != nil {
		return err
	}
	var err error
	r.export, err = r.of.store.Export(r.shard)
	r.life = r.of.lives
	return err
}

// Manifest implements cold.Source.
func (r *remote) Manifest() *cold.Manifest { return r.export.Manifest() }

// pieceMax is how much of a run is fetched at once: most are shorter.
const pieceMax = 1 << 10

// Read implements cold.Source.
func (r *remote) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	fate, err := r.pass(ctx, uint64(at))
	if err != nil {
		return 0, err
	}
	n, err := r.export.Read(ctx, run, b[:min(len(b), pieceMax)], at)
	if fate.Size == 1 && n > 0 {
		b[n/2] ^= 0x40
	}
	return n, err
}

// Sum implements cold.Source.
func (r *remote) Sum(ctx context.Context, run int) (cold.Sum, error) {
	if _, err := r.pass(ctx, 1<<40); err != nil {
		return cold.Sum{}, err
	}
	return r.export.Sum(ctx, run)
}

// followHeld applies DELTAS, and changes what is held between two runs.
func (p *process) followHeld(ctx context.Context, f *pipeline.Follower) error {
	m := p.membership
	for {
		if err := p.client.Work(ctx, 0); err != nil {
			return err
		}
		m.follows(nil)
		if err := p.change(ctx); err != nil {
			return err
		}
		if err := p.join(ctx, f); err != nil {
			return err
		}
		if m.changes() {
			continue
		}
		following, cancel := context.WithCancel(ctx)
		m.follows(cancel)
		if err := f.Follow(following); following.Err() == nil || ctx.Err() != nil {
			cancel()
			return err
		}
	}
}

// change holds and gives up what is due. What is given up stays stored: no story is as long as
// the time after which it is deleted.
func (p *process) change(ctx context.Context) error {
	m := p.membership
	is := func(s pipeline.Shard) bool { return slices.Contains(p.holds, s) }
	m.mu.Lock()
	take := slices.DeleteFunc(slices.Clone(m.take), is)
	var held cluster.ShardSet
	for _, s := range p.holds {
		held.Add(s)
	}
	letGo := p.view.LetGo(p.name(), held)
	drop := slices.DeleteFunc(slices.Clone(m.drop), func(s pipeline.Shard) bool { return !letGo.Has(s) })
	m.drop = slices.Clone(drop)
	m.mu.Unlock()
	err := p.node.Hold(ctx, take...)
	for _, s := range p.node.Standings() {
		if !is(s.Shard) {
			p.holds = append(p.holds, s.Shard)
			p.given[s.Shard].from(s.Applied)
		}
	}
	if err == nil {
		err = p.node.Release(ctx, drop...)
	}
	p.holds = nil
	for _, s := range p.node.Standings() {
		p.holds = append(p.holds, s.Shard)
	}
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.take = slices.DeleteFunc(m.take, is)
		m.drop = slices.DeleteFunc(m.drop, func(s pipeline.Shard) bool { return !is(s) })
	}
	return err
}

// drain has a node hold nothing, or again what it should: an operator's doing.
func (w *world) drain() error {
	node := w.processes[w.rand.IntN(len(w.processes))].name()
	value := []byte("{}")
	if w.rand.IntN(2) == 0 {
		value = nil
	}
	w.note("drain %s: %v", node, value != nil)
	w.server.Tell(cluster.DrainPrefix+node, value)
	return nil
}

func (w *world) undrain() {
	for _, p := range w.processes {
		if w.amongNodes() {
			w.server.Tell(cluster.DrainPrefix+p.name(), nil)
		}
	}
}

// calmMax is how many steps it may take from the last fault to the end. Shards
// move meanwhile, after those who are away have been missed.
func (w *world) calmMax() int {
	if w.amongNodes() {
		return 2 * calmMax
	}
	return calmMax
}

// epochs says whether every assignment was stored with a greater epoch than all
// before it: two who believe that they decide cannot both write.
func (w *world) epochs() error {
	if a, inOrder := w.server.Assignment(); !inOrder {
		return fmt.Errorf("an assignment was stored whose epoch is not newer than those before it; now it is %d", a.Epoch)
	}
	return nil
}

// misplaced says what is not held by whom it is assigned to, or is by others,
// or has not as many holders as it should.
func (w *world) misplaced() error {
	if !w.amongNodes() {
		return nil
	}
	a, _ := w.server.Assignment()
	for s := range w.shards {
		shard := pipeline.Shard(s)
		if n := len(a.Holders(shard)); n != min(w.replicas, len(w.processes)) {
			return fmt.Errorf("shard %d is assigned to %d nodes", s, n)
		}
		for _, p := range w.processes {
			if !p.up() {
				continue
			}
			switch should := slices.Contains(a.Holders(shard), p.name()); {
			case should && !p.node.Holds(shard):
				return fmt.Errorf("process %d does not answer for shard %d, which is assigned to it in epoch %d", p.number, s, a.Epoch)
			case !should && slices.Contains(p.holds, shard):
				return fmt.Errorf("process %d holds shard %d, which is assigned to others in epoch %d", p.number, s, a.Epoch)
			}
		}
	}
	return nil
}
