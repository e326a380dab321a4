package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// question is what a call asks of many shards: of items, each of which lies in
// one. It is not used concurrently.
type question interface {
	// shard is where an item lies.
	shard(item int32, v *View) pipeline.Shard
	// ask is the question about items, from the first on as many as so many bytes hold,
	// and how many those are: 1 at least.
	ask(items []int32, bytes int) (kind wire.Kind, body []byte, n int)
	// answer takes in the answer of another node, if it is not late. again are those of
	// items that it does not answer.
	answer(items []int32, pieces [][]byte, d *due) (again []int32, err error)
	// here asks this process the same.
	here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error)
}

// ownNode stands for this process among nodes.
const ownNode = ""

// call is a question under way.
type call struct {
	reader   *Reader
	ctx      context.Context
	q        question
	min      pipeline.Position
	least    pipeline.Position // what reaches less far is stale; 0: whatever comes may be
	waits    time.Time         // until then the position is waited for
	deadline time.Time         // what is not answered by then is lost

	open   []*part // asked and not settled
	parked []int32 // items that their supposed node does not have: asked again
	parks  int     // how often that was
	again  time.Time
	lost   []int32 // items that nobody answers
	behind bool    // some of them because the position was not reached
	timer  *time.Timer

	targets []target // memory to work in
	few     [8]*part // that open begins with

	mu    sync.Mutex
	ready []*part // done and not settled
	wake  chan struct{}
}

// scatter asks a question about the items 0 to n-1. lost are those that nobody
// answers.
func (f *far) scatter(ctx context.Context, q question, n int) (lost []int32, err error) {
	if f.dir.View().nobody(f.dir.Own()) {
		return nil, query.ErrNobody
	}
	c := &call{reader: f.Reader, ctx: ctx, q: q, min: f.min, waits: f.waits, wake: make(chan struct{}, 1)}
	c.open = c.few[:0]
	if f.fresh != nil {
		c.least, _ = f.fresh.Least()
	}
	var limited bool
	if c.deadline, limited = ctx.Deadline(); !limited {
		c.deadline = time.Now().Add(waitMax)
	}
	items := make([]int32, n)
	for i := range items {
		items[i] = int32(i)
	}
	c.place(items, nil, nil)
	for len(c.open)+len(c.parked) > 0 {
		c.await()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	if c.behind {
		return nil, query.ErrBehind
	}
	f.metrics.missing.Add(float64(len(c.lost)))
	return c.lost, nil
}

// done is called by links: a part is answered, or will not be.
func (c *call) done(p *part) {
	c.mu.Lock()
	c.ready = append(c.ready, p)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// await waits until parts are done or late, and settles them.
func (c *call) await() {
	first := c.deadline
	if len(c.parked) > 0 {
		first = c.again
	}
	for _, p := range c.open {
		for _, at := range [...]time.Time{p.until, p.look} {
			if at.Before(first) {
				first = at
			}
		}
	}
	if c.timer == nil {
		c.timer = time.NewTimer(time.Until(first))
	} else {
		c.timer.Reset(time.Until(first))
	}
	select {
	case <-c.wake:
	case <-c.timer.C:
		c.giveUp(time.Now())
	case <-c.ctx.Done():
		c.giveUp(c.deadline.Add(time.Hour))
	}
	c.mu.Lock()
	ready := c.ready
	c.ready = nil
	c.mu.Unlock()
	for _, p := range ready {
		c.open = slices.DeleteFunc(c.open, func(o *part) bool { return o == p })
		c.settle(p)
	}
	if items := c.parked; len(items) > 0 && (!time.Now().Before(c.again) || c.ctx.Err() != nil) {
		c.parked = nil
		c.place(items, nil, nil)
	}
}

// park has items be asked again in a moment: their supposed node has given them up, or
// has just begun and not come so far, and the nodes that have them now are not known
// yet. It returns those for which that is in vain: it was done often enough, or for
// others of their shard since the view has changed last, as with a shard that has
// stopped.
func (c *call) park(items []int32) (vain []int32) {
	v := c.reader.dir.View()
	enough := false
	if len(c.parked) == 0 {
		pause := parkPause << c.parks
		enough = c.parks == parksMax || time.Until(c.deadline) < 2*pause
		if !enough {
			c.parks++
			c.again = time.Now().Add(pause)
		}
	}
	for _, item := range items {
		shard := c.q.shard(item, v)
		switch {
		case enough:
			c.reader.vain.Store(shard, v.Epoch)
			vain = append(vain, item)
		case c.reader.inVain(shard, v.Epoch):
			vain = append(vain, item)
		default:
			c.parked = append(c.parked, item)
		}
	}
	return vain
}

// inVain says whether items of a shard were parked in vain as the view is.
func (r *Reader) inVain(shard pipeline.Shard, epoch uint64) bool {
	at, was := r.vain.Load(shard)
	return was && at.(uint64) == epoch
}

const (
	// parkPause is how long it waits the first time, then twice as long each time;
	// parksMax is how often.
	parkPause = 10 * time.Millisecond
	parksMax  = 6
)

// giveUp abandons the parts that should be answered by now, and those of a node
// that is silent, where another has the same.
func (c *call) giveUp(now time.Time) {
	var late []*part
	for _, p := range c.open {
		silent, gone := false, false
		if !p.look.After(now) {
			p.look = now.Add(p.every)
			silent = p.link.look(now, p.every, p.more) && p.more
			now := c.reader.dir.View().Sessions[p.link.node]
			gone = p.session != "" && now != "" && p.session != now
		}
		if (silent || gone || !p.until.After(now)) && p.link.abandon(p) {
			p.out, p.silent, p.gone = outLate, silent, gone
			late = append(late, p)
		}
	}
	c.mu.Lock()
	c.ready = append(c.ready, late...)
	c.mu.Unlock()
}

// settle takes in a part that is done, and asks again for what it does not
// answer.
func (c *call) settle(p *part) {
	var again []int32
	if p.out == outAnswered {
		var err error
		d := &due{call: c, link: p.link, session: p.session, shards: p.shards, tried: p.tried, final: p.final}
		again, err = c.q.answer(p.items, p.pieces, d)
		if p.stale, p.late = d.stale, d.refused; err != nil {
			c.reader.metrics.damaged.Inc()
			p.out, again = outGarbled, p.items
			p.link.shun()
		}
	} else {
		again = p.items
	}
	c.reader.metrics.parts[p.out].Inc()
	if p.out == outBehind {
		p.link.shun()
	}
	p.pieces, p.body = nil, nil
	if now := p.link.version(); p.out == outRefused && p.version > now {
		// An earlier version of the node is running again, and says so: it is asked in
		// that.
		c.send(&target{node: p.link.node, link: p.link, items: again, shards: p.shards, more: p.more}, p.tried, time.Until(c.deadline), now, p.final, p.spare)
		return
	}
	tried := p.tried
	if !p.gone { // else another process has its name
		tried = append(slices.Clip(tried), p.link.node)
	}
	if len(again) > 0 {
		c.place(again, tried, p)
	}
}

// target is a node that some items go to.
type target struct {
	node   string
	link   *link // nil: this process
	items  []int32
	shards []pipeline.Shard // that the items are of
	more   bool             // other nodes hold these shards, too
}

// place asks for items: not those nodes that were tried. before is the part that did
// not answer them; nil: they are asked for the first time.
func (c *call) place(items []int32, tried []string, before *part) {
	out := outAnswered
	if before != nil {
		out = before.out
	}
	final := before != nil && before.final
	var spare *link
	if before != nil {
		if spare = before.spare; before.silent || before.late {
			spare = before.link
		}
	}
	var own query.Holder
	for len(items) > 0 {
		left := time.Until(c.deadline)
		if c.ctx.Err() != nil || left <= 0 {
			c.lose(items, out)
			return
		}
		targets, nobody := c.choose(items, tried)
		if len(nobody) > 0 {
			c.without(nobody, tried, before, out, final, spare)
		}
		items = nil
		for i := range targets {
			if t := &targets[i]; t.link != nil {
				c.send(t, tried, left, t.link.version(), false, spare)
			}
		}
		for i := range targets {
			if t := &targets[i]; t.link == nil {
				own = c.reader.dir.Own()
				items, out = c.here(own, t, tried, false)
				tried, before = append(slices.Clip(tried), ownNode), nil
			}
		}
	}
}

// without deals with items that nobody else has: the node that answered some of
// its part, or whose answer came damaged, is asked once more for them alone, and so
// is one that was silent, or whose answer was old, when there still were others. So is
// this process.
func (c *call) without(items []int32, tried []string, before *part, out outcome, final bool, spare *link) {
	partly := out == outAnswered || out == outGarbled
	if !final && out == outAnswered && before != nil && !before.stale {
		if items = c.park(items); len(items) == 0 {
			return
		}
	}
	switch {
	case final:
		c.lose(items, out)
	case !partly && spare != nil:
		c.send(c.once(spare, items), tried, time.Until(c.deadline), spare.version(), true, nil)
	case partly && before != nil:
		c.send(c.once(before.link, items), tried, time.Until(c.deadline), before.link.version(), true, nil)
	case slices.Contains(tried, ownNode):
		again, out := c.here(c.reader.dir.Own(), c.once(nil, items), nil, true)
		c.lose(again, out)
	default:
		c.lose(items, out)
	}
}

// once asks a node, or this process (nil), once more for some items alone.
func (c *call) once(l *link, items []int32) *target {
	t, v := &target{link: l, items: items}, c.reader.dir.View()
	if l != nil {
		t.node = l.node
	}
	for _, item := range items {
		if s := c.q.shard(item, v); !slices.Contains(t.shards, s) {
			t.shards = append(t.shards, s)
		}
	}
	return t
}

func (c *call) lose(items []int32, out outcome) {
	c.lost = append(c.lost, items...)
	c.behind = c.behind || out == outBehind && len(items) > 0
}

// choose says which node each item is asked of. targets are valid until the next call.
func (c *call) choose(items []int32, tried []string) (targets []target, nobody []int32) {
	v, own := c.reader.dir.View(), c.reader.dir.Own()
	if slices.Contains(tried, ownNode) {
		own = nil
	}
	of := shardTables.Get().(*[]int16)
	defer shardTables.Put(of)
	if cap(*of) < len(v.Holders) {
		*of = make([]int16, len(v.Holders))
	}
	table := (*of)[:len(v.Holders)]
	clear(table)
	now := time.Now()
	targets = c.targets[:0]
	for _, item := range items {
		shard := c.q.shard(item, v)
		at := table[shard]
		if at == 0 {
			targets, at = c.chooseShard(targets, shard, v, own, tried, now, len(items))
			if table[shard] = at; at > 0 {
				targets[at-1].shards = append(targets[at-1].shards, shard)
			}
		}
		if at < 0 {
			nobody = append(nobody, item)
			continue
		}
		t := &targets[at-1]
		t.items = append(t.items, item)
	}
	c.targets = targets
	return targets, nobody
}

var shardTables = sync.Pool{New: func() any { return new([]int16) }}

// chooseShard says which of targets a shard goes to, from 1, and adds one where it
// is another; -1: nobody has it.
func (c *call) chooseShard(targets []target, shard pipeline.Shard, v *View, own query.Holder, tried []string, now time.Time, room int) ([]target, int16) {
	add := func(t target) ([]target, int16) {
		for i := range targets {
			// What nobody else has is a part of its own: it is not given up for another.
			if targets[i].node == t.node && targets[i].more == t.more {
				return targets, int16(i + 1)
			}
		}
		t.items = make([]int32, 0, min(room, max(16, room/(len(targets)+1))))
		return append(targets, t), int16(len(targets) + 1)
	}
	here := own != nil && own.Holds(shard)
	if here && !v.ownLast(shard) {
		return add(target{node: ownNode})
	}
	if nodes := v.Holders[shard]; !here && len(nodes) == 1 && len(tried) == 0 && (v.Behind == nil || len(v.Behind[shard]) == 0) {
		for i := range targets { // as a rule without replicas: nothing is to be chosen
			if t := &targets[i]; t.node == nodes[0] && !t.more {
				return targets, int16(i + 1)
			}
		}
	}
	links, more := c.untried(v.Holders[shard], v, tried), here
	if here && len(links) == 0 {
		return add(target{node: ownNode})
	}
	if v.Behind != nil {
		switch behind := c.untried(v.Behind[shard], v, tried); len(links) {
		case 0:
			links = behind
		case 1:
			more = more || len(behind) > 0
		}
	}
	more = more || len(links) > 1
	if best := links[:0:0]; len(links) > 1 {
		for _, l := range links {
			if !l.avoided(now) && l.applied.Load() >= uint64(min(c.min, pipeline.Position(c.reader.reached.Load()))) {
				best = append(best, l)
			}
		}
		if len(best) > 0 {
			links = best
		}
	}
	switch len(links) {
	case 0:
		return targets, -1
	case 1:
		return add(target{node: links[0].node, link: links[0], more: more})
	}
	l := c.reader.preferred(shard, links)
	return add(target{node: l.node, link: l, more: more})
}

// untried are the ways to those of some nodes that were not tried.
func (c *call) untried(nodes []string, v *View, tried []string) (links []*link) {
	for _, node := range nodes {
		if slices.Contains(tried, node) {
			continue
		}
		if l := c.reader.linkTo(node, v); l != nil {
			links = append(links, l)
		}
	}
	return links
}

// send asks another node. Where others have the same shards it is given half of the
// time that is left, and less when it is silent.
func (c *call) send(t *target, tried []string, left time.Duration, version byte, final bool, spare *link) {
	within := left * 7 / 8
	if t.more {
		within = left / 2
	}
	if len(tried) > 0 {
		c.reader.metrics.retries.Inc()
	}
	now, every, session := time.Now(), looks(left), c.reader.dir.View().Sessions[t.node]
	for items := t.items; len(items) > 0; {
		kind, body, n := c.q.ask(items, c.reader.partBytes)
		p := &part{
			call: c, kind: kind, version: version, items: items[:n], shards: t.shards, body: body, tried: tried, final: final, more: t.more, spare: spare, session: session,
			until: now.Add(within), every: every, look: now.Add(every),
		}
		c.open = append(c.open, p)
		t.link.ask(p)
		items = items[n:]
	}
}

// looks is how often to look after a part that has so much time.
func looks(left time.Duration) time.Duration { return min(max(left/looksEach, lookMin), lookMax) }

// here asks this process. again are the items that it does not answer.
func (c *call) here(own query.Holder, t *target, tried []string, final bool) (again []int32, out outcome) {
	items := t.items
	if own == nil {
		return items, outUnsent
	}
	d := &due{call: c, shards: t.shards, tried: tried, final: final}
	if !final {
		c.awaitGiven(own, t.shards)
	}
	if c.min > own.Applied() {
		ctx, cancel := context.WithDeadline(c.ctx, c.waits)
		err := own.WaitApplied(ctx, c.min)
		if cancel(); err != nil {
			return items, outBehind
		}
	}
	again, err := c.q.here(c.ctx, own, items, false, d)
	if errors.Is(err, query.ErrCold) {
		if !enter(c.ctx, c.reader.cold) {
			return items, outLate
		}
		again, err = c.q.here(c.ctx, own, items, true, d)
		leave(c.reader.cold)
	}
	if err != nil {
		return items, outcome(wire.Failed)
	}
	return again, outAnswered
}

// reach is how far an answer reaches: as far as the part furthest behind.
type reach struct {
	position pipeline.Position
	any      bool
	cost     query.Cost
}

func (r *reach) add(p pipeline.Position, cost query.Cost) {
	if !r.any || p < r.position {
		r.position, r.any = p, true
	}
	r.cost.Cold += cost.Cold
	r.cost.Disk = max(r.cost.Disk, cost.Disk)
	r.cost.Old = r.cost.Old || cost.Old
}

// or is the reach, or a position when there was no part.
func (r *reach) or(p pipeline.Position) pipeline.Position {
	if r.any {
		return r.position
	}
	return p
}

// pick are the elements at some places, in a memory of its own; nil: none.
func pick[T any, I int | int32](of []T, places []I) (picked []T) {
	if len(places) == 0 {
		return nil
	}
	picked = make([]T, len(places))
	for i, place := range places {
		picked[i] = of[place]
	}
	return picked
}

// errPart is what is wrong with a holder of this process that breaks its
// contract.
func errPart(what string, is, should int) error {
	return fmt.Errorf("spread: %s: %d of %d", what, is, should)
}
