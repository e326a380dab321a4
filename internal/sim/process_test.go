package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// process is a node: the real router, under the lease, the real follower, the
// guard of both, and the real state, which has its checkpoints on a disk. They
// are put together as in internal/node.
type process struct {
	w      *world
	number int
	lives  int

	disk     Disk
	given    []given             // to each shard, and to what every node holds, last
	holds    []pipeline.Shard    // what it was given windows for
	wasHeld  cluster.ShardSet    // and answered for when it went down
	kept     []pipeline.Position // lowest and highest acknowledged checkpoint when it went down
	reported uint64              // the window that it needs no more
	deltas   time.Time           // the log that the states on its disk refer to

	// Of this life; nil while the process is down.
	client *Client
	ctx    context.Context
	kill   context.CancelFunc
	unplug context.CancelFunc // its disk
	mount  *Mount
	store  *cold.Store
	node   *sinks.Node // nil until the disk is open
	guard  *pipeline.Guard
	closed chan error // what Close returned; nil unless it is stopping
	tailer *Tailer    // nil unless it follows
	waits  []*wait
	held   *held // nil: nobody reads for long

	*membership // among nodes; nil: it holds all shards, and nobody else is asked

	options     sinks.Options
	audits      int      // so far
	forge       *plant   // what it is to count; nil: nothing
	plants      []*plant // what it has counted that no event says
	copied      *Disk    // a copy of it; nil: there is none
	copiedGiven []given  // as it was when the copy was made

	spoil   int          // the shard whose next section comes spoiled; -1: none
	spoiled map[int]bool // those that have stopped, or are about to

	memory int                 // bytes; 0: no bound
	ends   []pipeline.Position // of windows handed over and not applied everywhere
}

// wait is somebody who wants answers as of a position.
type wait struct {
	position pipeline.Position
	over     chan struct{} // closed
}

const (
	diskTurn = iota // turns of calls: goroutines are told apart
	openTurn
	routeTurn
	followTurn
	memberTurn
	turns
)

func (p *process) alive() bool { return p.kill != nil }

// up says whether it has opened its disk, and is not stopping.
func (p *process) up() bool { return p.node != nil && p.closed == nil }

// start is a process that finds its disk as it was left.
func (p *process) start(o sinks.Options) {
	p.lives++
	plugged, unplug := context.WithCancel(Turn(context.Background(), p.lives<<32+diskTurn))
	p.ctx, p.kill = context.WithCancel(plugged)
	p.unplug = unplug
	p.client = p.w.server.NewClient(p.number, &p.w.schedule)
	p.memory, p.ends, p.options = o.MemoryBytes, nil, o
	p.spoil, p.spoiled = -1, map[int]bool{}
	if p.w.amongNodes() {
		p.membership = newMembership()
	}
	go func() {
		if p.repeat(openTurn, func(ctx context.Context) error { return p.open(ctx, plugged, o) }, true) {
			go p.repeat(routeTurn, p.route, false)
			go p.repeat(followTurn, p.follow, false)
			if p.w.amongNodes() {
				go p.repeat(memberTurn, p.member, false)
				go p.repeat(endTurn, p.askEnd, false)
			}
		}
	}()
}

// mergeEvery is odd: nothing else is due at the same moments.
const mergeEvery = 37_001 * time.Microsecond

// open opens the state. After a crash a shard is as of some window's end, exactly (I4),
// and not of an earlier one than it had been told is kept.
func (p *process) open(ctx, plugged context.Context, o sinks.Options) error {
	if p.w.amongNodes() {
		if err := p.look(ctx); err != nil {
			return err
		}
	}
	mount := p.client.Mount(plugged, &p.disk)
	engine := cold.Engine(mount)
	if p.w.fault != nil && p.w.fault.engine != nil {
		engine = p.w.fault.engine(engine)
	}
	schema, err := configuration().Schema()
	if err != nil {
		return err
	}
	store, err := cold.OpenOn(engine, schema, p.w.shards, strconv.Itoa(p.number))
	if err != nil {
		return err
	}
	var stands []pipeline.Position
	for i := range p.given {
		state, err := store.Stack(pipeline.Shard(i)).State()
		if p.w.amongNodes() && i < p.w.shards && !p.wasHeld.Has(pipeline.Shard(i)) {
			p.given[i].from(state.Applied) // it came from another process, or is none of its any more
			continue
		}
		if err == nil {
			err = p.given[i].backTo(state.Applied)
		}
		if err != nil {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
		}
		stands = append(stands, state.Applied)
		p.plants = slices.DeleteFunc(p.plants, func(d *plant) bool {
			return int(pipeline.ShardOf(d.id, p.w.shards)) == i && d.to > state.Applied // it comes again, as it was
		})
	}
	if len(p.kept) > 0 && (slices.Min(stands) < p.kept[0] || slices.Max(stands) < p.kept[1]) {
		p.w.broken(fmt.Errorf("process %d: shards stand at %v after a start, and were checkpointed up to %v (I4)", p.number, stands, p.kept))
	}
	// "A stored sequence is not blindly trusted" (I10).
	if state := p.w.server.State(jetlog.DeltasStream); state.Created.Equal(p.deltas) {
		o.SequenceMax = state.Last
	}
	if p.w.amongNodes() {
		o.Held = p.heldAtStart(store)
	}
	node, err := sinks.NewNode(store, o)
	if err != nil {
		return err
	}
	go func() { // merges beside everything else, at moments of the clock
		for plugged.Err() == nil {
			time.Sleep(mergeEvery)
			_, err := store.MergeOnce(nil)
			if errors.Is(err, cold.ErrCorrupt) {
				p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
			}
			if errors.Is(err, cold.ErrClosed) {
				return
			}
		}
	}()
	p.mount, p.store, p.node = mount, store, node
	p.holds = nil
	for _, s := range node.Standings() {
		p.holds = append(p.holds, s.Shard)
	}
	p.guard = pipeline.NewGuard(shards{node, p}, p.client.Events(p.runs()), p.client.Deltas(), slog.New(slog.DiscardHandler))
	if p.w.fault != nil && p.w.fault.guard != nil {
		p.w.fault.guard(p.guard)
	}
	return nil
}

// crash ends it: nothing that it does from now on has any effect.
func (p *process) crash() {
	if p.up() {
		p.noteKept(0)
	}
	p.unplug() // and with it all else
	synctest.Wait()
	if p.node != nil {
		go p.node.Close() // its disk is gone: what is left of it comes to its end some time
	}
	p.down()
}

// stop ends it in order: no more routing, no more windows, a last checkpoint.
func (p *process) stop() {
	p.noteKept(0)
	p.kill()
	synctest.Wait()
	node, closed := p.node, make(chan error, 1)
	p.closed = closed
	go func() { closed <- errors.Join(node.Close(), node.Err()) }()
}

// stopped takes in that it has: Close applies what was handed over, as far as
// it can be applied in a few seconds, checkpoints and stops the owners.
func (p *process) stopped() bool {
	select {
	case err := <-p.closed:
		if err == nil {
			p.noteKept(p.node.Applied())
		}
		p.unplug()
		synctest.Wait() // a merge that waited at the gate goes: nobody may let it on any more
		p.down()
		return true
	default:
		return false
	}
}

// noteKept notes what must be on disk: what is checkpointed, and all up to a
// position.
func (p *process) noteKept(all pipeline.Position) {
	p.wasHeld = cluster.ShardSet{}
	for _, s := range p.node.Standings() {
		if s.Answers || !p.w.amongNodes() {
			p.wasHeld.Add(s.Shard) // what was just taken up is not where the others are
		}
	}
	kept := p.node.Kept()
	p.kept = []pipeline.Position{max(all, kept[0]), max(all, kept[len(kept)-1])}
	if p.w.amongNodes() {
		p.kept[1] = p.kept[0] // the furthest may be one that does not answer yet
	}
}

func (p *process) down() {
	p.kill, p.unplug, p.mount, p.store, p.node, p.closed, p.waits, p.held = nil, nil, nil, nil, nil, nil, nil, nil
}

// inHand says whether it has read windows that it has not handed over.
func (p *process) inHand() bool {
	return p.up() && p.tailer != nil && p.tailer.taken() > p.node.Sequence()
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

// repeat does something over and over while the process lives, or until it was
// done once.
func (p *process) repeat(kind int, do func(context.Context) error, once bool) (done bool) {
	ctx := p.ctx
	defer p.w.caught()
	for turn := p.lives<<32 + kind; ctx.Err() == nil; turn += turns {
		err := do(Turn(ctx, turn))
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, pipeline.ErrLostTail):
			p.w.again.Store(true)
		case err != nil:
			p.w.heard(p, err)
		case once:
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	return false
}

// route is the router while this process holds the lease.
func (p *process) route(ctx context.Context) error {
	held, release, err := p.client.Lease(strconv.Itoa(p.number)).Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() == nil { // a crash gives nothing back
			release()
		}
	}()
	if p.w.fault != nil && p.w.fault.route != nil {
		return p.w.fault.route(ctx, held, p)
	}
	if p.w.amongNodes() {
		p.routes++
		defer func() { p.routes-- }()
	}
	err = p.router(ctx).Run(held)
	if errors.Is(err, pipeline.ErrGap) { // EVENTS is whole, and windows chain
		p.w.broken(fmt.Errorf("process %d: the router: %w", p.number, err))
	}
	return err
}

func (p *process) router(ctx context.Context) *pipeline.Router {
	r := &pipeline.Router{
		Open: func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
			return p.guard.Open(ctx, held, from)
		},
		Log:     p.client.Deltas(),
		Letters: p.client.Letters(),
		Lane:    func() pipeline.Deriver { return p.lane(ctx) },
		Lanes:   p.w.lanes,
		Logger:  slog.New(slog.DiscardHandler),
		Cuts:    p.guard.Cuts,
	}
	if p.w.fault != nil && p.w.fault.router != nil {
		p.w.fault.router(ctx, p, r)
	}
	return r
}

// runs bound what is read at once.
func (p *process) runs() jetlog.RunOptions { return jetlog.RunOptions{MessagesMax: runMax} }

// runMax is the most messages of a run.
const runMax = 12

// follow applies DELTAS.
func (p *process) follow(ctx context.Context) error {
	guard := *p.guard
	if p.w.fault != nil && p.w.fault.follower != nil {
		p.w.fault.follower(&guard)
	}
	f := &pipeline.Follower{
		Guard: &guard,
		Tailer: func(ctx context.Context, after uint64) (_ pipeline.Tailer, err error) {
			p.tailer, err = p.client.Tailer(ctx, after, p.runs())
			if err == nil && !p.tailer.created.Equal(p.deltas) {
				err = errAnother
			}
			return p.tailer, err
		},
		Lane: func() pipeline.Deriver { return p.lane(ctx) },
	}
	defer func() { p.tailer = nil }()
	if p.w.amongNodes() {
		return p.followHeld(ctx, f)
	}
	if err := p.join(ctx, f); err != nil {
		return err
	}
	return f.Follow(ctx)
}

func (p *process) join(ctx context.Context, f *pipeline.Follower) error {
	before := p.w.server.State(jetlog.DeltasStream).Created
	if err := f.Join(ctx); err != nil {
		return err
	}
	if p.deltas = p.w.server.State(jetlog.DeltasStream).Created; !p.deltas.Equal(before) {
		return errAnother
	}
	return nil
}

var errAnother = errors.New("sim: DELTAS was recreated since where to follow it was looked for")

// shards are a process's, and tell the world what they are given.
type shards struct {
	*sinks.Node
	p *process
}

// Hand implements pipeline.Shards.
func (s shards) Hand(ctx context.Context, e pipeline.Entry) error {
	p := s.p
	h, err := pipeline.DecodeHeader(e.Window)
	if err != nil {
		return err
	}
	if err := p.w.pace(ctx, p, h); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // a process that is down applies nothing
	}
	messages := p.w.messagesOf(e.Window)
	if at := p.spoil; at >= 0 && !p.spoiled[at] && p.given[at].position == h.From {
		p.spoil, p.spoiled[at] = -1, true
		if e.Window, err = spoiled(e.Window, at); err != nil {
			return err
		}
	}
	if e.Window, err = p.forged(h, e.Window); err != nil {
		return err
	}
	for i := range p.given {
		if p.spoiled[i] || i < p.w.shards && !slices.Contains(p.holds, pipeline.Shard(i)) {
			continue
		}
		if err := p.given[i].take(e.Sequence, h, messages); err != nil {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
			return err
		}
	}
	return s.Node.Hand(ctx, e)
}

// spoiled is a window in which one shard's section makes no sense any more
// after all its changes: the shard stops in the middle of it.
func spoiled(window []byte, section int) ([]byte, error) {
	w, err := pipeline.DecodeWindow(window)
	if err != nil {
		return nil, err
	}
	w.Sections[section] = append(slices.Clone(w.Sections[section]), 0xff)
	return pipeline.AppendWindow(nil, w), nil
}

func (p *process) lane(ctx context.Context) pipeline.Deriver {
	return p.witness(ctx, p.w.newLane(p.number))
}

// witness derives when it is let, and tells the world from what.
func (p *process) witness(ctx context.Context, inner pipeline.Deriver) pipeline.Deriver {
	return &lane{ctx, p, inner}
}

type lane struct {
	ctx   context.Context
	p     *process
	inner pipeline.Deriver
}

func (l *lane) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	defer l.p.w.caught()
	if err := l.p.client.Work(l.ctx, uint64(from)); err != nil {
		return nil, err
	}
	derived, err := l.inner.Derive(from, to, messages)
	if err == nil {
		l.p.w.derived(derived, messages)
	}
	return derived, err
}
