package counting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/shardlog"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// Generation is all that a process counts by one configuration, from EVENTS to its
// answers. A generation has its own DELTAS, members and assignment, which it shares with
// the same generation in other processes.
type Generation struct {
	*Process
	host Host
	Spec
	memory atomic.Int64 // bytes that its shards may take

	// In the order in which they are opened; close goes the other way.
	streams *jetlog.Streams
	store   *cold.Store
	sinks   *sinks.Node
	members *bucket.Members // nil: a process that only answers has found none yet
	runs    *move.Server    // gives runs to other nodes; nil: this one holds nothing
	parts   *spread.Server  // answers other nodes; nil: this one holds nothing

	program   *operators.Program
	explainer *check.Explainer           // nil: this one only answers
	explains  atomic.Pointer[func() int] // bytes that explanations take; nil: none yet
	guard     *pipeline.Guard
	follower  *pipeline.Follower
	router    *pipeline.Router
	letters   letterGate
	lease     *bucket.Lease
	history   *history.History
	events    history.Whole
	deltas    *jetlog.DeltaLog
	reports   *bucket.Checkpoints
	figures   *prometheus.Registry

	watched  atomic.Pointer[bucket.Members] // members, for requests
	same     cluster.Member                 // what this process says of itself that never changes
	behind   atomic.Bool                    // behind the log by more than ready.lag, or not caught up since the start
	open     atomic.Bool                    // shards, router and follower are there
	holdings holdings
	audits   audits
	backups  *upkeep.Schedule // made with the router

	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	duties  duties        // what goes on while it serves
	users   sync.RWMutex  // held for reading while in use; CloseAll waits for it
	closed  bool          // guarded by users
	lost    chan struct{} // closed on a fatal error; that ends the process only if the generation serves
	losing  sync.Once
	state   atomic.Pointer[streamsState]       // as of the last look
	fresh   *pipeline.Freshness                // where EVENTS ended when
	ended   atomic.Pointer[jetlog.StreamState] // the state of EVENTS that fresh took last; nil: none yet
	seen    sightings
	front   front
	trouble kit.Troubles

	reported  uint64    // the checkpoint that this node reported last; used only by keep
	overruled time.Time // when it was last logged that reports were ignored; used only by keep
	tidied    time.Time // when keys of members were last tidied; used only by keep
}

// Process is what all generations of a process use. Start fills it in, in this order,
// before the first of them opens. Nothing in it changes after that.
type Process struct {
	Version    string // of the program
	Processors int    // how many goroutines of a kind compute side by side
	Clock      func() time.Duration
	Log        *slog.Logger
	Lines      *shardlog.Lines // of the log, about shards
	MoveLimit  *move.Limiter   // of the bytes read from other nodes; nil: none
	Counting   pipeline.Turns  // in which the generation that serves computes: of more threads than processors some are free for requests
	Turns      pipeline.Turns  // in which the second generation computes, and what compares
	Dir        *datadir.Dir    // nil: this process only answers
	Name       string          // of this node, among all nodes
	NC         *nats.Conn
	Queries    *nats.Conn // only for requests: on nc they would wait for megabytes of events
	Session    string     // of a process that only answers, in all generations; "": each generation has its own
}

// Host is what a generation asks of the process that it is in. Several goroutines
// may call its methods.
type Host interface {
	// IsServing says whether a generation is the one that serves. That may change at once
	// after the answer.
	IsServing(g *Generation) bool
	// Generations is which there are, as far as this process acts on it. Before it knows of
	// any, Epoch is 0.
	Generations() generations.Set
	// ChangeRecord replaces the record of the generations by what change makes of it, and
	// returns when this process acts on that, or will at once. change may be called
	// several times; its error is returned as it is. jetlog.ErrNoBucket: nobody has run on
	// this server yet.
	ChangeRecord(ctx context.Context, change func(generations.Set) (generations.Set, error)) (generations.Set, error)
	// CountAgain begins a generation that counts everything again, where g has counted events
	// that EVENTS has lost. It may be called again: nothing happens once that has begun.
	CountAgain(ctx context.Context, g *Generation, why error) error
	// InCluster says that the embedded server is a member of a NATS cluster: then a start
	// waits for the other servers, and has no time limit.
	InCluster() bool
	// Ready is nil when /readyz says ok.
	Ready() error
	// Stats are all figures of the process, by name and labels.
	Stats() map[string]any
	// Fail says that the process cannot go on, and does not wait for its end. The first
	// error is the one that counts.
	Fail(err error)
}

// Spec is which generation it is, and what it counts by.
type Spec struct {
	Number   generations.Number
	Slot     jetlog.Slot
	Config   *config.Config // what it counts is as the record says; all else is as in the file
	CountsBy string         // as in the record; differs from that of another generation with this number; "": it is not known yet
	Differs  []string       // what the process' file counts differently, in words
}

// New makes a generation that is not open yet, with all of the process' memory and
// processors. It ends with ctx.
func New(ctx context.Context, p *Process, h Host, of Spec) *Generation {
	c := of.Config
	g := &Generation{
		Process: p, host: h, Spec: of,
		holdings: newHoldings(), figures: prometheus.NewRegistry(), lost: make(chan struct{}),
		fresh: pipeline.NewFreshness(c.Freshness, p.Clock),
	}
	g.memory.Store(int64(c.ShardBytes()))
	g.behind.Store(true) // until it has looked
	g.ctx, g.cancel = context.WithCancel(ctx)
	if c.Thin() { // one that opens more shows more, once that is open
		g.showFigures()
	}
	return g
}

// OpenAll opens all of a generation, up to answering other nodes.
func (g *Generation) OpenAll() error {
	for _, step := range []func() error{g.evict, g.openStreams, g.openMembers, g.openState, g.openPipeline, g.openAudits, g.openEnds, g.openQueries} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Begin starts what runs for as long as the generation does.
func (g *Generation) Begin() {
	g.seen.see(time.Now(), g.state.Load().Events.Last, g.sinks.Applied().Sequence())
	g.open.Store(true)
	_ = g.self()     // sets behind
	g.members.Soon() // says that it holds something
	g.work.Go(g.follow)
	if g.Config.Has(config.RoleRoute) {
		g.work.Go(g.route)
	}
	g.work.Go(g.arrange)
	g.work.Go(g.obeyReads)
	g.work.Go(g.obeyWrites)
	g.work.Go(g.keep)
}

// retryAfter paces what failed and is tried again.
const retryAfter = time.Second

// repeat calls do again and again until the generation closes, and notes its errors among
// the troubles. What works again is cleared elsewhere.
func (g *Generation) repeat(name string, do func() error) {
	var lost kit.Paced
	for g.ctx.Err() == nil {
		err := do()
		if g.ctx.Err() != nil {
			return
		}
		if errors.Is(err, pipeline.ErrWindowVersion) { // trying again does not help
			g.fail(fmt.Errorf("this program does not read what the other nodes write (docs/nodes.md, Rolling upgrade): %w", err))
			return
		}
		tail := errors.Is(err, pipeline.ErrLostTail)
		if tail {
			err = errors.Join(err, g.host.CountAgain(g.ctx, g, err))
		}
		if err != nil {
			g.trouble.Set(name, err)
		}
		if err != nil && (!tail || lost.Due(err.Error())) {
			g.Log.Error("tidemark: "+name+" failed; trying again", "error", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-g.ctx.Done():
		}
	}
}

func (g *Generation) WaitApplied(ctx context.Context, p pipeline.Position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	return g.sinks.WaitApplied(ctx, p)
}

// Close stops routing, following and answering other nodes, and makes a last
// checkpoint.
func (g *Generation) Close(ctx context.Context) error {
	if g == nil {
		return nil
	}
	var faults []error
	g.cancel()
	g.EndServing()
	g.work.Wait()
	g.leave() // before others ask in vain
	if g.parts != nil {
		faults = append(faults, g.parts.Stop(ctx), g.runs.Close())
	}
	if g.sinks != nil {
		faults = append(faults, g.sinks.Close())
		g.Log.Info("tidemark: checkpointed", "applied", g.sinks.Applied())
	}
	return errors.Join(faults...)
}

// TryUse keeps a generation from being closed until the caller calls done. done is nil where
// it is being closed, or may be: the caller must not wait for that, as CloseAll waits for
// the goroutines that use it already, and one of those may call TryUse again. closed: it is
// closed, and its figures can be read still. Work that takes long must end with the
// generation's ctx.
func (g *Generation) TryUse() (done func(), closed bool) {
	if !g.users.TryRLock() {
		return nil, false
	}
	return g.users.RUnlock, g.closed
}

// CloseStore comes last: figures are read from the store.
func (g *Generation) CloseStore() error {
	if g == nil || g.store == nil {
		return nil
	}
	return g.store.Close()
}

// CloseAll closes a generation while the process goes on, once nobody uses it.
func (g *Generation) CloseAll(ctx context.Context) error {
	g.cancel()
	g.users.Lock()
	g.closed = true
	g.users.Unlock()
	return errors.Join(g.Close(ctx), g.CloseStore())
}

// UndoAll takes away what was opened of a generation that does not begin, while the
// process goes on.
func (g *Generation) UndoAll() {
	g.cancel()
	g.stopAnswering()
	g.leave()
	g.undoOpened()
}

func (g *Generation) stopAnswering() {
	g.work.Wait()
	if g.runs != nil {
		g.runs.Close()
	}
	if g.parts != nil {
		g.parts.Stop(context.Background())
	}
}

// Undo closes what was opened of a generation that does not begin, with its process. It
// says whether its streams were opened.
func (g *Generation) Undo() (attached bool) {
	g.stopAnswering()
	g.undoOpened()
	return g.streams != nil
}

func (g *Generation) undoOpened() {
	if g.members != nil {
		g.members.Close()
	}
	if g.sinks != nil {
		g.sinks.Close()
	}
	if g.store != nil {
		g.store.Close()
	}
}

// turn computes for a while in its turn. The generation that serves has one for each
// processor, and another one has its own. So it has all processors from the moment on in
// which it serves.
func (g *Generation) turn(work func()) {
	if g.host.IsServing(g) {
		g.Counting.Do(work)
		return
	}
	g.Turns.Do(work)
}

// disk does what may wait for the disk: at once if the generation serves, for others
// compute meanwhile.
func (g *Generation) disk(work func()) {
	if g.host.IsServing(g) {
		work()
		return
	}
	g.Turns.Do(work)
}

// SetMemory says how much memory the shards may take from now on.
func (g *Generation) SetMemory(bytes int) {
	if g.memory.Swap(int64(bytes)) != int64(bytes) && g.sinks != nil {
		g.sinks.SetMemory(bytes)
	}
}

// fail says that the process cannot go on. A generation beside the one that serves
// is closed, and tried again.
func (g *Generation) fail(err error) {
	g.losing.Do(func() { close(g.lost) }) // before the look: it may come to serve just now (switchTo)
	if g.host.IsServing(g) {
		g.host.Fail(err)
		return
	}
	g.Log.Error("tidemark: a generation beside the one that serves cannot go on", "generation", g.Number, "error", err)
}

// Lost is closed when it cannot go on.
func (g *Generation) Lost() <-chan struct{} { return g.lost }

// InWork does something that the generation is not closed before; done is closed after it.
func (g *Generation) InWork(do func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	g.work.Go(func() {
		defer close(ended)
		do()
	})
	return ended
}

// IsOpen says whether shards, router and follower are there.
func (g *Generation) IsOpen() bool { return g.open.Load() }

// Applied is up to where every answer of this process reflects all events; only once it is open.
func (g *Generation) Applied() pipeline.Position { return g.sinks.Applied() }

// Routes says whether this process routes the generation, and where the last window ends
// that it has appended; 0: it has appended none.
func (g *Generation) Routes() (upTo uint64, now bool) {
	if g.router == nil {
		return 0, false
	}
	return g.router.Stats.Position.Load(), g.router.Stats.Active.Load()
}

// KeepLetters stores the dead letters of what it routes from now on, or none.
func (g *Generation) KeepLetters(serves bool) { g.letters.keep(serves) }

// SeenEvents is EVENTS as of the last look; zero in a process that only answers, which does
// not look.
func (g *Generation) SeenEvents() jetlog.StreamState {
	if state := g.state.Load(); state != nil {
		return state.Events
	}
	return jetlog.StreamState{}
}

// History is EVENTS with its history.
func (g *Generation) History() *history.History { return g.history }

// Wrong is what is wrong with it at the moment; nil: nothing.
func (g *Generation) Wrong() error { return g.trouble.Err() }

// owner names this generation as its DELTAS does.
func (g *Generation) owner() jetlog.Owner {
	return jetlog.Owner{Number: g.Number, CountsBy: g.CountsBy}
}

// beginAnew moves what is stored here of another generation with this number aside: its
// record was lost, and a node that knew nothing of it wrote the next one.
func (g *Generation) beginAnew() error {
	if was := g.Dir.Counted(g.Number); was.Counting != "" && was.Counting != g.CountsBy {
		g.Log.Warn("tidemark: what is stored of a generation is of another one with its number; it is moved aside", "generation", g.Number, "counts_by", was.Counting, "to", g.Dir.Aside(g.Number, was.Aside()))
	}
	return g.Dir.Exchange(g.Number, g.CountsBy)
}
