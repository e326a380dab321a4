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
)

// process is a node: the real router, under the lease, and a follower that
// applies DELTAS to a state for each shard. What a node has to do around them
// is told here in short, with the names that it has in cmd/tidemark/node.
type process struct {
	w      *world
	number int
	lives  int

	disk []*state // checkpoints: what a restart finds

	// Of this life; nil or zero while the process is down.
	ctx      context.Context
	kill     context.CancelFunc
	guard    chan struct{} // held by who mends the log
	shards   []*state      // and what every node holds, last
	sequence uint64        // the window of DELTAS after which it goes on
}

const (
	routeTurn = iota // turns of calls: two goroutines are told apart
	followTurn
	turns
)

func (p *process) alive() bool { return p.kill != nil }

// start is a process that finds its disk as it was left.
func (p *process) start() {
	p.ctx, p.kill = context.WithCancel(context.Background())
	p.guard = make(chan struct{}, 1)
	p.shards, p.sequence = nil, ^uint64(0)
	for _, s := range p.disk {
		p.shards = append(p.shards, s.clone())
		p.sequence = min(p.sequence, s.sequence)
	}
	// "A stored sequence is not blindly trusted" (I10).
	p.sequence = min(p.sequence, p.w.server.State(jetlog.DeltasStream).Last)
	p.lives++
	base := p.lives << 32
	go p.repeat(func(turn int) error { return p.route(p.client(base + turns*turn + routeTurn)) })
	go p.repeat(func(turn int) error { return p.follow(p.client(base + turns*turn + followTurn)) })
}

// crash ends it: nothing that it does from now on has any effect.
func (p *process) crash() {
	p.kill()
	synctest.Wait()
	p.kill, p.shards = nil, nil
}

func (p *process) client(turn int) *Client {
	return p.w.server.NewClient(p.number, &p.w.schedule).Turn(turn)
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

func (p *process) repeat(do func(turn int) error) {
	ctx := p.ctx
	defer p.w.caught()
	for turn := 0; ctx.Err() == nil; turn++ {
		if err := do(turn); err != nil && ctx.Err() == nil {
			p.w.heard(p, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
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
			cuts := p.positions()
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

// positions are where the shards stand, ascending, each once.
func (p *process) positions() (all []pipeline.Position) {
	for _, s := range p.shards {
		all = append(all, s.position)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// cuts are where windows must end that are derived again because DELTAS lost
// them: where shards stand, and where they will after a crash.
func (p *process) cuts() []pipeline.Position {
	all := p.positions()
	for _, s := range p.disk {
		all = append(all, s.position)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// furthest is how far the furthest shard has come, and the log time there.
func (p *process) furthest() (position pipeline.Position, time int64) {
	for _, s := range p.shards {
		if s.position > position {
			position, time = s.position, s.time
		}
	}
	return position, time
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
	tailer, err := c.Tailer(ctx, p.sequence, jetlog.RunOptions{MessagesMax: runMax})
	if err != nil {
		return err
	}
	defer tailer.Close()
	for {
		entries, err := tailer.Next(ctx)
		if errors.Is(err, jetlog.ErrTail) {
			p.sequence = 0 // sequences mean other windows now: join finds the place by positions
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := p.hand(ctx, e); err != nil {
				return err
			}
		}
	}
}

// hand applies one window to every shard.
func (p *process) hand(ctx context.Context, e pipeline.Entry) error {
	if ctx.Err() != nil {
		return ctx.Err() // a process that is down applies nothing
	}
	w, err := pipeline.DecodeWindow(e.Window)
	if err != nil {
		return err
	}
	messages := p.w.messagesOf(e.Window)
	for _, s := range p.shards {
		if err := s.apply(e.Sequence, w, messages); err != nil {
			p.w.broken(fmt.Errorf("process %d: %w", p.number, err))
			return err
		}
	}
	p.sequence = e.Sequence
	return nil
}

// join brings the shards to where DELTAS can take over.
func (p *process) join(ctx context.Context, c *Client) error {
	if err := p.guardTail(ctx, c); err != nil {
		return err
	}
	positions := p.positions()
	lowest, highest := positions[0], positions[len(positions)-1]
	deltas, err := c.State(ctx, jetlog.DeltasStream)
	if err != nil {
		return err
	}
	if deltas.Messages == 0 {
		if err := p.catchUp(ctx, c, highest, positions); err != nil {
			return err
		}
		p.sequence = 0
		return nil
	}
	if at := p.sequence; at >= deltas.First && at <= deltas.Last {
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
	p.sequence = deltas.First - 1
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
			if err := p.hand(ctx, pipeline.Entry{Window: derived[i].Window}); err != nil {
				return err
			}
			from = derived[i].To
		}
	}
	return nil
}

// guardTail makes sure that no sequence of EVENTS means two events (I10).
func (p *process) guardTail(ctx context.Context, c *Client) error {
	select {
	case p.guard <- struct{}{}:
		defer func() { <-p.guard }()
	case <-ctx.Done():
		return ctx.Err()
	}
	counted, at := p.furthest()
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
