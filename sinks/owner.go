package sinks

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// unit is what a window has a section for: a shard, or what every node holds,
// with its disk. One goroutine, its owner, calls all methods but those that say
// otherwise.
type unit interface {
	applier
	keeper
	evicter
}

// applier is what windows are applied to.
type applier interface {
	Name() string
	Section() pipeline.Shard // which of a window's sections is its
	// Prepare reads what a window needs and memory does not hold; any goroutine may call
	// it ahead, and passes the Moment on to the owner. Ready says whether that still is.
	Prepare(w *pipeline.Window, columns []pipeline.Column) (shard.Moment, error)
	Ready(was shard.Moment) bool
	Apply(sequence uint64, w *pipeline.Window, columns []pipeline.Column) error
	State() shard.State // from any goroutine
	Err() error         // from any goroutine
	Fail(error) error   // from any goroutine
}

// keeper is what checkpoints are made of.
type keeper interface {
	Dirty() int             // rows and entries that changed
	Moved() bool            // whether there is anything to checkpoint
	Full() bool             // whether runs must be merged before another one
	HandOver()              // takes what changed; Write and Settle must follow
	Write(*cold.Checkpoint) // adds it to a checkpoint; in the commit's goroutine
	Settle(committed bool)  // publishes it, or has it dirty again
	SetHorizon(pipeline.Position)

	Durable() uint64         // the last window committed
	Kept() pipeline.Position // and its end
}

// evicter is what gives memory up.
type evicter interface {
	Watch()             // memory is nearly full: notes what is used
	Fit()               // gives back some free memory
	Shed(share float64) // gives up a part of what is in memory and on disk too
}

// handed is one window on its way to the owners.
type handed struct {
	sequence uint64
	window   *pipeline.Window
	columns  []pipeline.Column
	noted    []pipeline.TimeMark // those of the window's that are new; for the commons
	prepared []shard.Moment      // by unit, as of ahead
}

// owner is the goroutine that writes some of the shards: every window to each
// of them in turn, and their checkpoints.
//
//	windows ─► ahead: reads what is on disk only ─► prepared ─► run: applies
//
// Its checkpoints are described in rounds.go.
type owner struct {
	node    *Node
	units   []unit        // changed only while no window is on its way
	behind  []*tier.Shard // of the units, those that do not answer yet
	commons *tier.Commons // one of the units, of one owner; nil for the others
	tasks   chan func()   // run between two windows
	windows chan handed
	// prepared are windows for which everything was in memory a moment ago.
	prepared chan handed

	round    // of checkpoints
	relieved time.Time
	watching bool // units note what is used

	passedAt           time.Time // when the log last had that notices are passed over
	unopened, replaced uint64    // as of then

	sent atomic.Uint64    // windows put into the queue
	done progress[uint64] // and applied by all units

	position atomic.Uint64 // applied by all its shards that go on and answer
	healthy  atomic.Bool
	durable  atomic.Uint64 // lowest window checkpointed by all its shards
	// durableGoing is that of those that go on.
	durableGoing atomic.Uint64
	// kept is the lowest position checkpointed by all its units: what a crash
	// goes back to.
	kept atomic.Uint64
	// keptEach are those of each unit, stopped or not.
	keptEach atomic.Pointer[[]pipeline.Position]
}

func newOwner(n *Node, number int) *owner {
	o := &owner{node: n, tasks: make(chan func()), windows: make(chan handed, queueMax), prepared: make(chan handed, preparedMax)}
	shards := n.held.Load().shards
	for i := number; i < len(shards); i += n.o.Owners {
		o.units = append(o.units, shards[i])
	}
	if number == 0 && !n.o.Beside {
		o.commons = n.commons
		o.units = append(o.units, n.commons)
	}
	o.round = newRound(o.units, n.o)
	o.observe()
	o.noteDurable()
	return o
}

// noteDurable publishes the lowest window that one of the owner's units has
// checkpointed.
func (o *owner) noteDurable() {
	all, going, kept := uint64(math.MaxUint64), uint64(math.MaxUint64), pipeline.Position(math.MaxUint64)
	var each []pipeline.Position
	for _, u := range o.units {
		all, kept = min(all, u.Durable()), min(kept, u.Kept())
		if u.Err() == nil {
			going = min(going, u.Durable())
		}
		each = append(each, u.Kept())
	}
	o.keptEach.Store(&each)
	o.durable.Store(all)
	o.durableGoing.Store(going)
	o.kept.Store(uint64(kept))
}

func (o *owner) applied() (pipeline.Position, bool) {
	return pipeline.Position(o.position.Load()), o.healthy.Load()
}

// observe publishes how far the owner's shards that answer have come.
func (o *owner) observe() {
	position, healthy := pipeline.Position(0), false
	for _, u := range o.units {
		if u.Err() != nil || o.isBehind(u) {
			continue
		}
		if p := u.State().Applied; !healthy || p < position {
			position, healthy = p, true
		}
	}
	o.position.Store(uint64(position))
	o.healthy.Store(healthy)
}

// backlogTicks is how many intervals a checkpoint waits while windows do: rows that
// change again before it are written once.
const backlogTicks = 15

// preparedMax bounds the windows that are read ahead for: what they need may be
// evicted again before they are applied.
const preparedMax = 4

// ahead reads, while other windows are applied, what the next ones need from
// the disk.
func (o *owner) ahead() {
	defer close(o.prepared)
	for h := range o.windows {
		h.prepared = make([]shard.Moment, len(o.units))
		for i, u := range o.units {
			if o.node.stopping.Load() {
				break
			}
			h.prepared[i], _ = u.Prepare(h.window, h.columns) // of an error the owner hears, too
		}
		o.prepared <- h
	}
}

func (o *owner) run() {
	ticks := 0
	ticker := time.NewTicker(o.node.o.CheckpointEvery)
	defer ticker.Stop()
	defer o.pace.Stop()
	for {
		// What makes room first, when several wait: a window can. (And what is
		// ready decides, not chance: the simulation replays a seed.)
		select {
		case c := <-o.committed:
			o.settle(c)
			continue
		default:
		}
		select {
		case <-ticker.C:
			ticks = o.tick(ticks)
			continue
		default:
		}
		select {
		case <-o.pace.C:
			o.proceed(true)
			continue
		default:
		}
		select {
		case h, ok := <-o.prepared:
			if !ok {
				o.finish()
				return
			}
			o.apply(h)
		case task := <-o.tasks:
			task()
		case c := <-o.committed:
			o.settle(c)
		case <-ticker.C:
			ticks = o.tick(ticks)
		case <-o.pace.C:
			o.proceed(true)
		}
	}
}

// tick begins a round, unless windows wait: then after so many ticks, or when a
// shard is half full of changes. Shards fill alike: to wait until one is full is
// to wait for the commits of all.
func (o *owner) tick(ticks int) int {
	ticks++
	halfFull := func(u unit) bool { return u.Err() == nil && u.Dirty() >= o.node.o.DirtyRowsMax/2 }
	if !o.busy() && (len(o.windows)+len(o.prepared) == 0 || ticks >= backlogTicks || slices.ContainsFunc(o.units, halfFull)) {
		o.checkpoint()
		ticks = 0
	}
	for _, u := range o.units {
		o.node.o.Turn(u.Fit)
	}
	o.relieve()
	o.tellPassedOver()
	return ticks
}

// passedOverEvery paces what the log has of notices that are passed over.
const passedOverEvery = time.Minute

// tellPassedOver logs that notices were passed over or taken out since it last
// did.
func (o *owner) tellPassedOver() {
	if o.commons == nil || time.Since(o.passedAt) < passedOverEvery {
		return
	}
	unopened, replaced := o.commons.PassedOver()
	if unopened == o.unopened && replaced == o.replaced {
		return
	}
	o.node.o.Logger.Warn("sinks: notices go beyond limits.channels or limits.notices",
		"passed_over", unopened-o.unopened, "oldest_removed", replaced-o.replaced)
	o.passedAt, o.unopened, o.replaced = time.Now(), unopened, replaced
}

func (o *owner) apply(h handed) {
	if o.node.enough.Load() {
		return
	}
	for i, u := range o.units {
		if u.Err() == nil && !u.Ready(h.prepared[i]) {
			o.prepare(u, h)
		}
	}
	for _, u := range o.units {
		if o.node.enough.Load() { // units may stand at different windows
			return
		}
		o.node.o.Turn(func() { o.applyTo(u, h) })
	}
	o.observe()
	for t, was := h.window.Time, o.node.newest.Load(); t > was && !o.node.newest.CompareAndSwap(was, t); {
		was = o.node.newest.Load()
	}
	o.node.advance()
	o.admit()
	o.done.set(o.done.get() + 1)
	o.bound()
	o.relieve()
}

// applyTo applies a window to a unit; one that stops says so in the log, once.
func (o *owner) applyTo(u unit, h handed) {
	was := u.Err()
	if o.commons != nil && u == unit(o.commons) {
		o.commons.Noted(h.noted, o.node.kept())
	}
	if err := u.Apply(h.sequence, h.window, h.columns); err != nil && was == nil {
		o.node.o.Logger.Error("sinks: stopped; the others go on", "what", u.Name(), "error", err)
		o.noteDurable()
	}
}

// prepare returns when everything that a window needs of a unit is in memory,
// or the unit has stopped. Nearly always the work was done ahead.
func (o *owner) prepare(u unit, h handed) {
	w := h.window
	for {
		_, err := u.Prepare(w, h.columns)
		switch {
		case err == nil || u.Err() != nil:
			return
		case o.node.stopping.Load():
			u.Fail(fmt.Errorf("%s: stopping, and what window (%d, %d] needs cannot be read: %w", u.Name(), w.From, w.To, err))
			return
		}
		o.node.o.Logger.Error("sinks: cannot read what a window needs; trying again", "what", u.Name(), "error", err)
		time.Sleep(checkpointRetry)
	}
}

// relieveEvery paces what is done about too much memory: a checkpoint must
// have the time to make dirty rows clean.
const relieveEvery = 20 * time.Millisecond

// relieve keeps memory within its budget (I8). What is clean is evicted; if
// most is dirty, a checkpoint comes first, and its end calls shed.
func (o *owner) relieve() {
	if !o.node.over() || time.Since(o.relieved) < relieveEvery {
		return
	}
	o.relieved = time.Now()
	if !o.busy() && (o.err == nil || time.Since(o.failedAt) >= checkpointRetry) {
		o.begin()
	}
	if o.busy() {
		o.hasten()
		return
	}
	o.shed() // nothing was dirty, or can be written now
}

// shed evicts what is over the budget, and some more, so as not to come back
// at once.
func (o *owner) shed() {
	if !o.watching && o.node.near() {
		o.watching = true
		for _, u := range o.units {
			u.Watch()
		}
	}
	for _, u := range o.units {
		o.node.o.Turn(u.Fit)
	}
	if share := o.node.excess(); share > 0 {
		for _, u := range o.units {
			o.node.o.Turn(func() { u.Shed(share) })
		}
	}
}

// bound returns when no shard holds more dirty rows than it may: rather than
// take more, the owner waits.
func (o *owner) bound() {
	o.checkpointWhile(func(u unit) bool { return u.Dirty() >= o.node.o.DirtyRowsMax })
}
