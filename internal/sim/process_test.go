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
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// process is a node: the real router, under the lease, and the real state,
// which follows DELTAS and has its checkpoints on a disk. What a node has to do
// around them is told here in short, with the names that it has in
// cmd/tidemark/node.
type process struct {
	w      *world
	number int
	lives  int

	disk     Disk
	given    []given             // to each shard, and to what every node holds, last
	kept     []pipeline.Position // lowest and highest acknowledged checkpoint when it went down
	reported uint64              // the window that it needs no more

	// Of this life; nil while the process is down.
	ctx    context.Context
	kill   context.CancelFunc
	unplug context.CancelFunc // its disk
	guard  chan struct{}      // held by who mends the log
	mount  *Mount
	node   *sinks.Node // nil until the disk is open
	closed chan error  // what Close returned; nil unless it is stopping
	tailer *Tailer     // nil unless it follows
	waits  []*wait

	memory int                 // bytes; 0: no bound
	ends   []pipeline.Position // of windows handed over and not applied everywhere
}

// wait is somebody who wants answers as of a position.
type wait struct {
	position pipeline.Position
	over     chan struct{} // closed
}

const (
	openTurn = iota // turns of calls: goroutines are told apart
	routeTurn
	followTurn
	turns
)

func (p *process) alive() bool { return p.kill != nil }

// up says whether it has opened its disk, and is not stopping.
func (p *process) up() bool { return p.node != nil && p.closed == nil }

// start is a process that finds its disk as it was left.
func (p *process) start(o sinks.Options) {
	plugged, unplug := context.WithCancel(context.Background())
	p.ctx, p.kill = context.WithCancel(plugged)
	p.unplug = unplug
	p.guard = make(chan struct{}, 1)
	p.memory, p.ends = o.MemoryBytes, nil
	p.lives++
	base := p.lives << 32
	go func() {
		if p.repeat(func(turn int) error { return p.open(plugged, p.client(base+turns*turn+openTurn), o) }, true) {
			go p.repeat(func(turn int) error { return p.route(p.client(base + turns*turn + routeTurn)) }, false)
			go p.repeat(func(turn int) error { return p.follow(p.client(base + turns*turn + followTurn)) }, false)
		}
	}()
}

// open opens the state. "After a crash a shard is as of some window's end,
// exactly" (I4), and not of an earlier one than it had been told is kept.
func (p *process) open(plugged context.Context, c *Client, o sinks.Options) error {
	mount := c.Mount(plugged, &p.disk)
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
		state, err := store.State(pipeline.Shard(i))
		if err == nil {
			err = p.given[i].backTo(state.Applied)
		}
		if err != nil {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
		}
		stands = append(stands, state.Applied)
	}
	if len(p.kept) > 0 && (slices.Min(stands) < p.kept[0] || slices.Max(stands) < p.kept[1]) {
		p.w.broken(fmt.Errorf("process %d: shards stand at %v after a start, and were checkpointed up to %v (I4)", p.number, stands, p.kept))
	}
	// "A stored sequence is not blindly trusted" (I10).
	o.SequenceMax = p.w.server.State(jetlog.DeltasStream).Last
	node, err := sinks.NewNode(store, o)
	if err != nil {
		return err
	}
	p.mount, p.node = mount, node
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

// stopped takes in that it has: Close "applies what was handed over,
// checkpoints and stops the owners".
func (p *process) stopped() bool {
	select {
	case err := <-p.closed:
		if err == nil {
			p.noteKept(p.node.Handed())
		}
		p.unplug()
		p.down()
		return true
	default:
		return false
	}
}

// noteKept notes what must be on disk: what is checkpointed, and all up to a
// position.
func (p *process) noteKept(all pipeline.Position) {
	kept := p.node.Kept()
	p.kept = []pipeline.Position{max(all, kept[0]), max(all, kept[len(kept)-1])}
}

func (p *process) down() {
	p.kill, p.unplug, p.mount, p.node, p.closed, p.waits = nil, nil, nil, nil, nil, nil
}

// inHand says whether it has read windows that it has not handed over.
func (p *process) inHand() bool {
	return p.up() && p.tailer != nil && p.tailer.taken() > p.node.Sequence()
}

func (p *process) client(turn int) *Client {
	return p.w.server.NewClient(p.number, &p.w.schedule).Turn(turn)
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

// repeat does something over and over while the process lives, or until it was
// done once.
func (p *process) repeat(do func(turn int) error, once bool) (done bool) {
	ctx := p.ctx
	defer p.w.caught()
	for turn := 0; ctx.Err() == nil; turn++ {
		err := do(turn)
		switch {
		case ctx.Err() != nil:
			return false
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
func (p *process) route(c *Client) error {
	ctx := p.ctx
	held, release, err := c.Lease(strconv.Itoa(p.number)).Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() == nil { // a crash gives nothing back
			release()
		}
	}()
	if p.w.fault != nil && p.w.fault.route != nil {
		return p.w.fault.route(ctx, held, p, c)
	}
	err = p.router(ctx, c).Run(held)
	if errors.Is(err, pipeline.ErrGap) { // EVENTS is whole, and windows chain
		p.w.broken(fmt.Errorf("process %d: the router: %w", p.number, err))
	}
	return err
}

func (p *process) router(ctx context.Context, c *Client) *pipeline.Router {
	r := &pipeline.Router{
		Open: func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
			return p.guarded(ctx, c, func() (*Source, error) {
				return c.Source(held, from, jetlog.RunOptions{MessagesMax: runMax})
			})
		},
		Log:     c.Deltas(),
		Letters: c.Letters(),
		Lane:    func() pipeline.Deriver { return p.lane(c) },
		Lanes:   p.w.lanes,
		Logger:  slog.New(slog.DiscardHandler),
		Origin: func() pipeline.Position {
			cuts := p.cuts()
			return cuts[len(cuts)-1]
		},
		Cuts: p.cuts,
	}
	if p.w.fault != nil && p.w.fault.router != nil {
		p.w.fault.router(p, c, r)
	}
	return r
}

// guarded opens EVENTS between two looks at its tail. The first makes good what
// would keep it from being opened. The second is the one that counts: what has
// happened before the source noted where it begins, that look finds; what
// happens later, the source does. And both come after the router has read the
// end of DELTAS: whoever appends behind that fences it.
func (p *process) guarded(ctx context.Context, c *Client, open func() (*Source, error)) (pipeline.Source, error) {
	if err := p.guardTail(ctx, c); err != nil {
		return nil, err
	}
	source, err := open()
	if err != nil {
		return nil, err
	}
	if err := p.guardTail(ctx, c); err != nil {
		_ = source.Close()
		return nil, err
	}
	return source, nil
}

// runMax is the most messages of a run.
const runMax = 12

// cuts are where windows must end that are derived again because DELTAS lost
// them: where shards stand, and where they will after a crash.
func (p *process) cuts() []pipeline.Position {
	cuts := append(p.node.Positions(), p.node.Handed())
	cuts = append(cuts, p.node.Kept()...)
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

func (p *process) lane(c *Client) pipeline.Deriver { return p.witness(c, p.w.newLane(p.number)) }

// witness derives when it is let, and tells the world from what.
func (p *process) witness(c *Client, inner pipeline.Deriver) pipeline.Deriver {
	return &lane{ctx: p.ctx, c: c, w: p.w, inner: inner}
}

type lane struct {
	ctx   context.Context
	c     *Client
	w     *world
	inner pipeline.Deriver
}

func (l *lane) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	defer l.w.caught()
	if err := l.c.Work(l.ctx, uint64(from)); err != nil {
		return nil, err
	}
	derived, err := l.inner.Derive(from, to, messages)
	if err == nil {
		l.w.derived(derived, messages)
	}
	return derived, err
}

// follow applies DELTAS.
func (p *process) follow(c *Client) error {
	ctx := p.ctx
	if err := p.join(ctx, c); err != nil {
		return err
	}
	tailer, err := c.Tailer(ctx, p.node.Sequence(), jetlog.RunOptions{MessagesMax: runMax})
	if err != nil {
		return err
	}
	defer tailer.Close()
	p.tailer = tailer
	defer func() { p.tailer = nil }()
	for {
		entries, err := tailer.Next(ctx)
		if errors.Is(err, jetlog.ErrTail) {
			p.node.Resume(0) // sequences mean other windows now: join finds the place by positions
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := p.hand(ctx, c, e); err != nil {
				return err
			}
		}
	}
}

// hand gives one window to the node.
func (p *process) hand(ctx context.Context, c *Client, e pipeline.Entry) error {
	h, err := pipeline.DecodeHeader(e.Window)
	if err != nil {
		return err
	}
	if err := p.w.pace(ctx, c, p, h); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // a process that is down applies nothing
	}
	messages := p.w.messagesOf(e.Window)
	for i := range p.given {
		if err := p.given[i].take(e.Sequence, h, messages); err != nil {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
			return err
		}
	}
	return p.node.Hand(ctx, e)
}

// join brings the shards to where DELTAS can take over.
func (p *process) join(ctx context.Context, c *Client) error {
	if err := p.node.Settle(ctx); err != nil {
		return err
	}
	if err := p.guardTail(ctx, c); err != nil {
		return err
	}
	positions := p.node.Positions()
	lowest, highest := positions[0], positions[len(positions)-1]
	deltas, err := c.State(ctx, jetlog.DeltasStream)
	if err != nil {
		return err
	}
	if deltas.Messages == 0 {
		if err := p.catchUp(ctx, c, highest, positions); err != nil {
			return err
		}
		p.node.Resume(0)
		return nil
	}
	if at := p.node.Sequence(); at >= deltas.First && at <= deltas.Last {
		if h, err := c.At(ctx, at); err == nil && h.To <= lowest {
			return nil
		}
	}
	first, err := c.Deltas().First(ctx)
	if err != nil {
		return err
	}
	if lowest < first.From {
		if err := p.catchUp(ctx, c, first.From, positions); err != nil {
			return err
		}
	}
	p.node.Resume(deltas.First - 1)
	return nil
}

// catchUp derives from EVENTS what DELTAS does not hold any more.
func (p *process) catchUp(ctx context.Context, c *Client, target pipeline.Position, positions []pipeline.Position) error {
	from := positions[0]
	if from >= target {
		return nil
	}
	source, err := c.Source(ctx, from, jetlog.RunOptions{MessagesMax: runMax})
	if err != nil {
		return err
	}
	defer source.Close()
	below, _ := slices.BinarySearch(positions, target)
	lane, cuts := p.lane(c), append(slices.Clone(positions[:below]), target)
	for from < target {
		messages, err := source.Next(ctx)
		if err != nil {
			return err
		}
		derived, err := pipeline.DeriveRun(lane, from, messages, cuts)
		if err != nil {
			return err
		}
		for i := range derived {
			if from >= target {
				break
			}
			if err := p.hand(ctx, c, pipeline.Entry{Window: derived[i].Window}); err != nil {
				return err
			}
			from = derived[i].To
		}
	}
	return p.node.Settle(ctx)
}

// guardTail makes sure that no sequence of EVENTS means two events (I10).
func (p *process) guardTail(ctx context.Context, c *Client) error {
	select {
	case p.guard <- struct{}{}:
		defer func() { <-p.guard }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.node.Settle(ctx); err != nil {
		return err
	}
	counted, at := p.node.Furthest()
	tail, _, err := c.Deltas().Tail(ctx)
	if err != nil {
		return err
	}
	if tail.To > counted {
		counted = tail.To
		if at = max(at, tail.Time); tail.Time == 0 {
			at = 0
		}
	}
	if err := fastForward(ctx, c, counted.Sequence()); err != nil {
		return err
	}
	if at == 0 || counted.Sequence() == 0 {
		return nil
	}
	return reclaim(ctx, c, counted.Sequence(), at)
}

// fastForward is jetlog.FastForward.
func fastForward(ctx context.Context, c *Client, past uint64) error {
	for {
		state, err := c.State(ctx, jetlog.EventsStream)
		if err != nil || state.Last >= past {
			return err
		}
		if err := c.Publish(ctx, Stored{Subject: jetlog.FillerSubject, Header: map[string][]string{jetlog.HeaderFiller: {"1"}}}); err != nil {
			return err
		}
	}
}

// reclaim is jetlog.Reclaim.
func reclaim(ctx context.Context, c *Client, counted uint64, at int64) error {
	first := counted + 1
	for seq := counted; seq > 0; seq-- {
		m, err := c.Message(ctx, seq)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		if m.Time.UnixMilli() <= at {
			break
		}
		first = seq
	}
	for seq := first; seq <= counted; seq++ {
		m, err := c.Message(ctx, seq)
		if err != nil {
			return err
		}
		if m == nil || len(m.Header[jetlog.HeaderFiller]) > 0 {
			continue
		}
		copied := Stored{Subject: m.Subject, Data: m.Data, Tag: m.Tag, Header: map[string][]string{
			msgID: {fmt.Sprintf("reclaimed-%d-%d", m.Sequence, m.Time.UnixNano())},
		}}
		if err := c.Publish(ctx, copied); err != nil {
			return err
		}
		if err := c.Delete(ctx, seq); err != nil {
			return err
		}
	}
	return nil
}
