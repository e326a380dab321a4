package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/led"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// rebuilds are which generations there are, as this node knows it, and the one that
// is open here beside that which serves. One goroutine, attend, follows the record:
//
//	record ─► accept ─► note in the data directory ─► arrange: open, switch, close, delete
//
// It alone opens and closes generations and says which one serves, from begin to
// end. It holds no lock while it does. A generation that does not open, or is lost, is
// tried again; the one that serves goes on.
type rebuilds struct {
	known   atomic.Pointer[generations.Set]     // that this node acts on; nil: none yet (set)
	beside  atomic.Pointer[counting.Generation] // nil: none is open
	trouble kit.Troubles                        // that keeps nobody from counting and answering
	writer  atomic.Pointer[bucket.Generations]  // record, for others than attend
	leader  leader
	left    atomic.Pointer[string] // what is stored here and of no use, lines for /readyz; nil: not looked yet

	// Used only by attend, once it has begun; before that by the goroutine that starts the node.
	record  *bucket.Generations              // nil: there is no bucket yet
	opening *opening                         // nil: none
	pause   time.Duration                    // before the next one is tried
	failed  time.Time                        // when the last one failed
	unnamed map[generations.Number]time.Time // since when what is stored here is of no use
	swept   uint64                           // the epoch of which nothing else is stored here,
	sweptAt time.Time                        // and when it was looked
	stop    context.CancelFunc
	done    chan struct{} // closed when attend has returned; nil: it has not begun
}

// opening is a generation that is being opened.
type opening struct {
	generation *counting.Generation
	end        context.CancelFunc
	done       chan error // has room for what came of it
}

const (
	// rebuildsEvery is how often a node looks although it has heard of no change.
	rebuildsEvery = 500 * time.Millisecond
	openRetryMin  = time.Second
	openRetryMax  = 30 * time.Second
	// rebuildPart and recordPart name, among the troubles, the generation beside the
	// one that serves, and what the bucket says of the generations.
	rebuildPart = "rebuild"
	recordPart  = "generations"
)

// set is which generations there are, as far as this node acts on it.
func (r *rebuilds) set() generations.Set {
	if s := r.known.Load(); s != nil {
		return *s
	}
	return generations.Set{}
}

// generations is which there are, as far as this process acts on it.
func (n *Node) generations() generations.Set { return n.rebuilds.set() }

func (n *Node) beginRebuilds() {
	ctx, stop := context.WithCancel(n.ctx)
	n.rebuilds.stop, n.rebuilds.done = stop, make(chan struct{})
	go n.attendRebuilds(ctx)
	if n.config.Has(config.RoleRoute) {
		n.work.Go(n.lead)
	}
}

// end stops attend. From then on the same generations are open.
func (r *rebuilds) end() {
	if r.done != nil {
		r.stop()
		<-r.done
	}
	if r.record != nil {
		r.record.Close()
	}
}

// attendRebuilds follows the record until ctx ends.
func (n *Node) attendRebuilds(ctx context.Context) {
	r := &n.rebuilds
	defer close(r.done)
	defer func() {
		if r.opening != nil {
			n.dismiss(r.opening)
		}
	}()
	tick := time.NewTicker(rebuildsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		n.watchRecord(ctx)
		var changed <-chan struct{}
		if r.record != nil {
			changed = r.record.Changed()
			n.acceptRecord(ctx)
		}
		n.arrangeGenerations(ctx)
		var opened chan error
		if r.opening != nil {
			opened = r.opening.done
		}
		var lost <-chan struct{}
		if b := r.beside.Load(); b != nil {
			lost = b.Lost()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-changed:
		case <-lost:
			n.closeBeside("it cannot go on")
			n.openFailed(errors.New("it could not go on"))
		case err := <-opened:
			n.opened(err)
		}
	}
}

// watchRecord begins to watch the record, once there is a bucket.
func (n *Node) watchRecord(ctx context.Context) {
	r := &n.rebuilds
	if r.record != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	record, err := n.openRecord(ctx)
	switch {
	case err == nil:
		r.record = record
		r.writer.Store(record)
		r.trouble.Clear(recordPart)
	case !errors.Is(err, jetlog.ErrNoBucket) && ctx.Err() == nil:
		r.trouble.Set(recordPart, err)
	}
}

// acceptRecord takes over what the record says, if that is newer than what this node knows,
// and otherwise puts that in its place.
func (n *Node) acceptRecord(ctx context.Context) {
	r := &n.rebuilds
	there, fault := r.record.Seen()
	next := generations.Newest(r.set(), there)
	if n.dir == nil && there.Epoch != 0 { // a process without counts knows nothing better
		next = there
	}
	if fault == nil && !next.Equal(r.set()) {
		if err := n.take(next); err != nil {
			r.trouble.Set(recordPart, err)
			return
		}
	}
	own := r.set()
	switch {
	case n.dir == nil && fault != nil:
		r.trouble.Set(recordPart, fault)
		return
	case n.dir == nil, fault == nil && own.Equal(there):
		r.trouble.Clear(recordPart)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	restored, err := r.record.Restore(ctx, own)
	if restored {
		n.log.Warn("tidemark: the record of the generations was gone, malformed or older, and is written again as this node knows it", "epoch", own.Epoch, "serving", own.Serving, "fault", fault)
	}
	if err != nil && ctx.Err() == nil {
		r.trouble.Set(recordPart, errors.Join(fault, err))
	}
}

// take notes a record in the data directory and acts on it from now on.
func (n *Node) take(set generations.Set) error {
	if n.dir != nil {
		if err := n.dir.NoteGenerations(set); err != nil {
			return err
		}
	}
	n.rebuilds.known.Store(&set)
	for _, g := range []*counting.Generation{n.Serving(), n.rebuilds.beside.Load()} {
		if g != nil {
			g.KeepLetters(set.Keeps(g.Number))
		}
	}
	n.log.Info("tidemark: generations", "epoch", set.Epoch, "state", set.State, "serving", set.Serving, "building", set.Building, "kept", set.Kept, "why", set.Why)
	return nil
}

// arrangeGenerations brings what is open here to what the record names.
func (n *Node) arrangeGenerations(ctx context.Context) {
	r := &n.rebuilds
	set, serving, beside := r.set(), n.Serving(), r.beside.Load()
	want := set.Beside()
	if serving.Number != set.Serving {
		want = set.Serving // the one that serves here serves on until that can
	}
	if r.opening != nil && !isIn(set, want, r.opening.generation) {
		n.dismiss(r.opening)
		r.opening = nil
	}
	if beside != nil && isIn(set, set.Serving, beside) && time.Since(r.failed) >= r.pause && n.maySwitch(serving, beside) && n.switchTo(ctx, beside) {
		serving, beside, want = n.Serving(), r.beside.Load(), set.Beside()
	}
	if beside != nil && !isIn(set, want, beside) {
		n.closeBeside("the record names it no more")
		beside = nil
	}
	if beside == nil && r.opening == nil && want != 0 && time.Since(r.failed) >= r.pause {
		n.openBeside(set, want)
	}
	if beside == nil && r.opening == nil && want == 0 {
		r.trouble.Clear(rebuildPart)
		r.pause, r.failed = 0, time.Time{}
		serving.SetMemory(n.config.ShardBytes())
	}
	n.dropUnnamed(set)
}

// isIn says whether a generation is the one that a record has with a number.
func isIn(set generations.Set, number generations.Number, g *counting.Generation) bool {
	return g.Number == number && g.CountsBy == set.All[number].CountsBy()
}

// openBeside begins to open the second generation.
func (n *Node) openBeside(set generations.Set, number generations.Number) {
	r := &n.rebuilds
	ctx, end := context.WithCancel(n.ctx)
	g, err := n.newGenerationOf(ctx, set, number)
	if err != nil {
		end()
		n.openFailed(err)
		return
	}
	g.SetMemory(n.config.ShardBytesSecond())
	n.Serving().SetMemory(n.config.ShardBytesBeside())
	o := &opening{g, end, make(chan error, 1)}
	r.opening = o
	n.log.Info("tidemark: a generation is opened beside the one that serves", "generation", number)
	go func() { o.done <- n.openAside(g) }()
}

// openAside opens a generation while another one serves, or nothing of it.
func (n *Node) openAside(g *counting.Generation) (err error) {
	defer func() {
		if err != nil {
			g.UndoAll()
		}
	}()
	if n.dir != nil {
		if err := datadir.CheckFree(n.dir.Path); err != nil {
			return err
		}
	}
	return g.OpenAll()
}

// opened takes over a generation that is open, or notes why it is not.
func (n *Node) opened(err error) {
	r := &n.rebuilds
	g := r.opening.generation
	r.opening = nil
	if err != nil {
		if n.ctx.Err() == nil {
			n.openFailed(fmt.Errorf("generation %d does not open: %w", g.Number, err))
		}
		return
	}
	r.pause, r.failed = 0, time.Time{}
	r.trouble.Clear(rebuildPart)
	g.KeepLetters(r.set().Keeps(g.Number))
	g.Begin()
	r.beside.Store(g)
	n.log.Info("tidemark: a generation is open beside the one that serves", "generation", g.Number, "applied", g.Applied())
}

func (n *Node) openFailed(err error) {
	r := &n.rebuilds
	r.trouble.Set(rebuildPart, err)
	r.failed, r.pause = time.Now(), min(max(2*r.pause, openRetryMin), openRetryMax)
	n.log.Error("tidemark: something is wrong with the generation beside the one that serves; trying again", "after", r.pause, "error", err)
}

// dismiss ends an opening, and takes away what it has opened.
func (n *Node) dismiss(o *opening) {
	o.end()
	if err := <-o.done; err == nil {
		o.generation.UndoAll()
	}
}

// closeBeside closes the second generation. Its counts stay, and memory is given back.
func (n *Node) closeBeside(why string) {
	g := n.rebuilds.beside.Swap(nil)
	if g == nil {
		return
	}
	n.log.Info("tidemark: a generation is closed", "generation", g.Number, "why", why)
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	if err := g.CloseAll(ctx); err != nil {
		n.log.Warn("tidemark: a generation was not closed as it should be", "generation", g.Number, "error", err)
	}
}

// generationOf is the generation with a number, open on this node; nil: it is not.
func (n *Node) generationOf(number generations.Number) *counting.Generation {
	// The one beside is looked at twice: so one that comes to serve in between is found.
	for _, g := range []*counting.Generation{n.rebuilds.beside.Load(), n.Serving(), n.rebuilds.beside.Load()} {
		if g != nil && g.Number == number {
			return g
		}
	}
	return nil
}
