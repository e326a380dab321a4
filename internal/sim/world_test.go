package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/recent"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// machine is what goes down together when the power is cut.
type machine int

const (
	safe     machine = iota // streams are replicated: nothing is lost
	embedded                // one process with the server inside: all goes down
	outside                 // the server alone: processes live on, with what they have read
)

// setup is everything drawn before the first step.
type setup struct {
	processes, shards, lanes int
	events                   []int   // in a window, by process
	faults                   float64 // chance that a call goes wrong
	crashes, steals          int     // weights of what happens
	leaders                  int     // of a leader change
	machine                  machine
	cuts                     int  // of the power
	syncs                    int  // weight of streams' syncs
	solid                    bool // EVENTS loses nothing to it
	blinds, spoils           int  // weights of disks that cannot be read, sections that make no sense
	presses                  bool // DELTAS gets full: who is away does not hold it back
	intrusions               int  // weight of what is no window in DELTAS, and of its being deleted
	replicas                 int  // among nodes: holders of each shard; 0: every process holds all of them
	audits, plants           int  // weights of audits, and of what they are to find
	publishes                int  // weight of producers; 0: as most
	rots                     int  // weight of a disk that loses a message of EVENTS
}

func draw(r *rand.Rand) setup {
	s := setup{
		processes: 1 + r.IntN(3),
		shards:    1 + r.IntN(4),
		lanes:     1 + r.IntN(3),
		faults:    []float64{0, 0.02, 0.1, 0.3}[r.IntN(4)],
		crashes:   []int{0, 1, 4}[r.IntN(3)],
		steals:    []int{0, 2, 6}[r.IntN(3)],
		leaders:   []int{0, 0, 2}[r.IntN(3)],
		machine:   []machine{safe, embedded, outside}[r.IntN(3)],
		cuts:      []int{1, 3}[r.IntN(2)],
		syncs:     3,
		blinds:    1,
		spoils:    []int{0, 0, 1}[r.IntN(3)],
		presses:   r.IntN(2) == 0,
		solid:     r.IntN(3) == 0,
	}
	if s.machine == embedded {
		s.processes = 1
	}
	if r.IntN(3) == 0 {
		// Windows that cannot be had again by anybody else tell of what EVENTS lost.
		s.intrusions, s.solid = 1, true
	}
	for range s.processes {
		s.events = append(s.events, []int{1, 2, 7, 20}[r.IntN(4)])
	}
	if s.machine == safe && s.intrusions == 0 && !s.presses {
		s.rots = 8 // DELTAS is whole: nobody has to count again from EVENTS, which would be refused
	}
	return s
}

// world is one run of the simulation.
type world struct {
	setup
	schedule
	rand   *rand.Rand
	server *Server
	story  *twin.Story
	fault  *fault // nil: everything as it should be

	published int
	processes []*process
	late      []*Call     // requests under way whose callers have given up
	outage    int         // steps until there is a leader again
	asleep    map[int]int // processes that stand still, for so many steps more
	blind     map[int]int // processes whose disk cannot be read
	cut       map[int]int // processes that are cut off from the log and the bucket, for so many steps more
	hurt      bool        // EVENTS has lost a tail
	again     atomic.Bool // what is counted of that is found out: everything is counted again
	calm      bool        // no more faults: everything must come to its end

	windows  uint64            // the last one noted
	made     time.Time         // and when its log was
	inquiry  *inquiry          // nil: nobody asks several nodes
	asked    int               // inquiries so far
	passed   pipeline.Position // as of which one asker has had an answer: it passes that on
	recent   *recent.Outboxes  // what is remembered of authors
	auditing *auditing         // nil: nobody audits
	known    map[pipeline.Position]facts

	hash  hash.Hash64
	trace io.Writer // nil: nowhere
	net   *netSums  // nil: nothing is held
	steps int

	mu      sync.Mutex
	sources map[string][]*Stored // by window: the messages that it was derived from
	wrong   error                // the first promise broken
}

// fault is something deliberately broken.
type fault struct {
	setup    func(s *setup)                                            // how to meet it soon; may be nil
	story    func(s *twin.Story)                                       // likewise
	router   func(ctx context.Context, p *process, r *pipeline.Router) // may be nil
	route    func(ctx, held context.Context, p *process) error         // instead of the router's run; may be nil
	guard    func(g *pipeline.Guard)                                   // may be nil
	follower func(g *pipeline.Guard)                                   // of the follower alone; may be nil
	engine   func(cold.Engine) cold.Engine                             // what a process's store runs on; may be nil
	state    func(o *sinks.Options)                                    // may be nil
	nodes    nodeFault                                                 // among nodes
	audits   auditFault
}

// runSeed is the simulation of one seed. It must be called in a bubble of its own.
// The sum is of everything that happened.
func runSeed(seed uint64, f *fault, trace io.Writer, n *netSums) (sum uint64, err error) {
	r := rand.New(rand.NewPCG(seed, 0x7157))
	w := &world{
		setup: draw(r), rand: r, server: NewServer(), fault: f,
		asleep: map[int]int{}, blind: map[int]int{}, cut: map[int]int{}, sources: map[string][]*Stored{},
		known: map[pipeline.Position]facts{}, hash: fnv.New64a(), trace: trace, net: n,
	}
	if f != nil && f.setup != nil {
		f.setup(&w.setup)
	}
	w.story = twin.Generate(r, int(seed%1000))
	if f != nil && f.story != nil {
		f.story(w.story)
	}
	w.note("%+v, %d messages", w.setup, len(w.story.Messages))
	for i := range w.setup.processes {
		p := &process{w: w, number: i}
		for shard := range w.shards + 1 {
			p.given = append(p.given, given{shard: shard})
		}
		w.processes = append(w.processes, p)
		p.start(w.options())
	}
	defer func() {
		w.inquiry.end()
		for _, p := range w.processes {
			if p.alive() {
				p.crash()
			}
		}
		time.Sleep(time.Minute) // until what is left of nodes has come to its end
	}()
	if err := w.live(); err != nil {
		return 0, fmt.Errorf("step %d: %w", w.steps, err)
	}
	for _, m := range w.server.Held(jetlog.DeltasStream) {
		w.hash.Write(m.Data)
	}
	return w.hash.Sum64(), nil
}

// changesFew bounds what may be dirty where it is bounded low.
const changesFew = 1000

// options are those of one life's state.
func (w *world) options() sinks.Options {
	o := sinks.Options{
		Shards:          w.shards,
		Owners:          1 + w.rand.IntN(2),
		CheckpointEvery: []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, time.Second}[w.rand.IntN(3)],
		DirtyRowsMax:    []int{1, 20, changesFew / 2}[w.rand.IntN(3)],
		CommitRows:      []int{1, 10, 0}[w.rand.IntN(3)],                                            // a shard's alone, a few, all
		MemoryBytes:     []int{0, 1, w.shards * 8 << 10}[w.rand.IntN(3)],                            // all of it, nothing but what must be, a part
		Users:           shard.Limits{PostsMax: math.MaxInt32, Retention: 86_400, Inactive: 86_400}, // a seed is over in minutes
		Notices:         configuration().ChannelsOf(config.KindNotice),
		Dots:            configuration().ChannelsOf(config.KindDot),
		Logger:          slog.New(slog.DiscardHandler),
	}
	if o.MemoryBytes > 1 {
		o.Owners = 1 // one owner evicts by what others hold at the moment
	}
	if w.fault != nil && w.fault.state != nil {
		w.fault.state(&o)
	}
	w.note("owners %d, checkpoints every %v or %d rows, of %d rows or all, memory %d", o.Owners, o.CheckpointEvery, o.DirtyRowsMax, o.CommitRows, o.MemoryBytes)
	return o
}

// note adds to the trace, which is all that two runs of a seed have to agree in.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.hash, format, args...)
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%6d %v  "+format+"\n", append([]any{w.steps, time.Since(epoch).Round(time.Millisecond)}, args...)...)
	}
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// noteWindows notes what has been appended since the last step.
func (w *world) noteWindows() {
	state := w.server.State(jetlog.DeltasStream)
	if last := state.Last; !state.Created.Equal(w.made) {
		w.windows, w.made = 0, state.Created
		w.note("DELTAS is another one, of %d", last)
	}
	for _, m := range w.server.Held(jetlog.DeltasStream) {
		if m.Sequence > w.windows {
			h, _ := pipeline.DecodeHeader(m.Data)
			w.net.window(m)
			w.note("window %d: (%v.%d, %v.%d] %d events", m.Sequence, h.From.Sequence(), h.From.Line(), h.To.Sequence(), h.To.Line(), h.Events)
		}
	}
	w.windows = state.Last
}

// broken keeps the first promise that was broken.
func (w *world) broken(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = err
	}
}

// caught makes a panic the seed's failure rather than the test binary's.
func (w *world) caught() {
	if fault := recover(); fault != nil {
		w.broken(fmt.Errorf("panic: %v\n%s", fault, debug.Stack()))
	}
}

// heard is what a process's router or follower ended with: part of life.
func (w *world) heard(p *process, err error) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "       process %d: %v\n", p.number, err)
	}
}

// lifeMax is how long faults last.
const lifeMax = jetlog.DuplicateWindow / 2

// countAgain is what nodes do once one of them has found that EVENTS has lost what it
// counted: a new generation counts everything, of which nobody has anything yet.
func (w *world) countAgain() {
	w.note("everything is counted again")
	for _, p := range w.processes {
		if p.alive() {
			p.crash()
		}
		p.disk, p.wasHeld, p.kept, p.reported, p.deltas = Disk{}, cluster.ShardSet{}, nil, 0, time.Time{}
		for i := range p.given {
			p.given[i].from(0)
		}
		delete(w.blind, p.number)
	}
	w.late, w.hurt = nil, false
	w.server.Recreate(jetlog.DeltasStream)
	for _, p := range w.processes {
		p.start(w.options())
	}
}

const (
	stepsMax = 200_000 // of one run
	calmMax  = 3_000   // from the last fault to the end
)

// live takes steps until everything is told, applied and compared.
func (w *world) live() error {
	calmSince := 0
	for w.steps = 1; w.steps < stepsMax; w.steps++ {
		synctest.Wait()
		w.noteWindows()
		if w.again.Swap(false) {
			w.countAgain()
			synctest.Wait() // as after each step
		}
		for _, p := range w.processes {
			if p.stopped() {
				w.note("%d has stopped: %v", p.number, p.kept)
			}
		}
		if err := cmp.Or(w.wrong, w.stopped(), w.answered(), w.inquired(), w.audited(), w.epochs()); err != nil {
			return err
		}
		if !w.calm && w.left() == 0 && w.rand.IntN(60) == 0 {
			w.calm, calmSince = true, w.steps
			w.note("calm")
			w.mend()
		}
		if w.calm && w.done() {
			return w.settle()
		}
		if w.calm && w.steps-calmSince > w.calmMax() {
			return errors.Join(fmt.Errorf("stuck: nothing goes wrong any more, and %d steps later it is still not done", w.calmMax()), w.lost(), w.misplaced(), w.stand())
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return errors.New("endless")
}

// action is something that can happen, and how often it does.
type action struct {
	weight int
	do     func() error
}

func (w *world) step() error {
	for p, left := range w.asleep {
		if w.asleep[p] = left - 1; left <= 1 {
			delete(w.asleep, p)
		}
	}
	for p, left := range w.cut {
		if w.cut[p] = left - 1; left <= 1 {
			delete(w.cut, p)
		}
	}
	for p, left := range w.blind {
		if w.blind[p] = left - 1; left <= 1 {
			w.sees(p)
		}
	}
	w.outage = max(0, w.outage-1)
	ready, forced := w.ready()
	actions := []action{
		{when(len(ready) > 0, 100), func() error { w.let(ready[w.rand.IntN(len(ready))]); return nil }},
		{when(w.left() > 0, cmp.Or(w.publishes, 12)), w.publish},
		{when(len(ready) == 0, 60) + 4, w.sleep},
		{4, w.check},
		{2, w.waitFor},
		{when(w.amongNodes() && w.inquiry == nil, 6), w.inquire},
		{2, w.hold},
		{when(w.auditing == nil, w.audits), w.audit},
		{when(len(w.late) > 0, 8), w.land},
		{when(w.down() > 0, 8), w.restart},
		{when(w.deposed() > 0, 3), func() error {
			w.note("depose")
			w.underWay(processOf(w.server.Deposed()))
			w.server.Depose()
			return nil
		}},
	}
	if !w.calm {
		actions = append(actions,
			action{w.syncs, w.sync},
			action{1, w.purge},
			action{w.crashes, w.crash},
			action{when(w.crashes > 0, 1), w.stop},
			action{when(len(forced) > 0, w.steals), func() error { w.let(forced[w.rand.IntN(len(forced))]); return nil }},
			action{when(w.steals > 0, 1), w.expire},
			action{1, w.doze},
			action{w.blinds, w.blindfold},
			action{when(w.amongNodes(), 1), w.drain},
			action{when(w.amongNodes(), 1), w.cutOff},
			action{when(w.amongNodes(), 1), w.keepDisk},
			action{when(w.amongNodes() && w.down() > 0, 1), w.oldDisk},
			action{w.spoils, w.spoil},
			action{when(w.fault == nil, w.rots), w.rot},
			action{w.intrusions, w.intrude},
			action{w.plants, w.corrupt},
			action{w.leaders, w.loseLeader},
			action{when(w.machine != safe, w.cuts), w.cutPower},
		)
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := w.rand.IntN(total)
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			return a.do()
		}
	}
	panic("no action")
}

func when(is bool, weight int) int {
	if is {
		return weight
	}
	return 0
}

// ready are the calls that may go on, and those that may by force.
func (w *world) ready() (ready, forced []*waiting) {
	for _, c := range w.calls() {
		switch {
		case w.asleep[c.Process] > 0, w.isCut(c) && (c.Kind == Next || c.Kind == Acquire):
		case c.Ready == nil || c.Ready():
			ready = append(ready, c)
		case c.Kind == Acquire:
			forced = append(forced, c)
		}
	}
	return ready, forced
}

var (
	errNoAnswer = errors.New("sim: no answer")
	errLost     = errors.New("sim: the connection is lost")
	errRefused  = errors.New("sim: refused")
)

// let lets a call on, with a fate by chance.
func (w *world) let(c *waiting) {
	fate := w.fate(c)
	w.note("let %d %d %s %d: %v %v %d", c.Process, c.Turn, c.Kind, c.Key, fate.Err, fate.Done, fate.Size)
	w.schedule.let(c, fate)
}

func (w *world) fate(c *waiting) (fate Fate) {
	if w.calm {
		return fate
	}
	if w.isCut(c) {
		fate.Err = errNoAnswer
		return fate
	}
	wrong := w.rand.Float64() < w.faults
	if w.outage > 0 && !slices.Contains([]Kind{Next, Work, Acquire, Fetch, Ask}, c.Kind) {
		wrong = true
	}
	switch c.Kind {
	case Work, Acquire:
	case Commit:
		if wrong {
			fate.Err = cold.ErrDiskFull
		}
	case Next:
		fate.Size = 1 + w.rand.IntN(runMax)
		if wrong && w.rand.IntN(8) == 0 {
			fate.Err = errLost
		}
	case Fetch: // lost, or damaged
		if fate.Size = 0; wrong {
			fate.Err = errNoAnswer
		} else if w.faults > 0 && w.rand.IntN(20) == 0 {
			fate.Size = 1
		}
	case Ask:
		if fate.Size = w.rand.IntN(replyFates); wrong {
			fate.Err = errNoAnswer
		}
	case Keep:
		if wrong && w.rand.IntN(4) == 0 {
			fate = Fate{Err: errRefused, Done: w.rand.IntN(2) == 0}
		}
	default:
		if !wrong {
			break
		}
		fate.Err = errNoAnswer
		switch w.rand.IntN(3) {
		case 0:
			fate.Done = true
		case 1:
			if c.Land != nil && c.Kind != Commit {
				w.late = append(w.late, c.Call)
			}
		}
	}
	return fate
}

// left is how many messages producers have still to store. The last one waits
// for the calm: a router that has nothing to append does not notice that DELTAS
// has lost its tail, and those who follow wait with it.
func (w *world) left() int {
	left := len(w.story.Messages) - w.published
	if !w.calm {
		left--
	}
	return left
}

// publish stores what producers have to say next.
func (w *world) publish() error {
	for range 1 + w.rand.IntN(6) {
		if w.left() == 0 {
			break
		}
		sequence := w.server.State(jetlog.EventsStream).Last + 1
		m := w.story.Messages[w.published].Stored(sequence)
		w.published++
		subject, data := m.Encode(sequence)
		w.server.Store(Stored{Subject: subject, Header: oddHeaders[sequence%uint64(len(oddHeaders))], Data: data, Tag: &told{m}})
		w.note("publish %d", sequence)
	}
	return nil
}

// told is a message that a producer has had stored: the same wherever it is moved.
type told struct{ twin.Message }

func (w *world) sleep() error {
	d := []time.Duration{time.Millisecond, 20 * time.Millisecond, 150 * time.Millisecond, 2 * time.Second}[w.rand.IntN(4)]
	switch lived := time.Since(epoch); {
	case lived > lifeMax && !w.amongNodes():
		d = min(d, 150*time.Millisecond)
	case lived < lifeMax/2 && w.rand.IntN(30) == 0:
		d = 17 * time.Second // past every patience
	}
	w.note("sleep %v", d)
	time.Sleep(d)
	return nil
}

// doze lets a process stand still for a while, in the middle of what it does.
func (w *world) doze() error {
	p, steps := w.rand.IntN(len(w.processes)), 10+w.rand.IntN(300)
	w.note("%d stands still for %d", p, steps)
	w.asleep[p] = steps
	return nil
}

// loseLeader makes requests fail for a while, whether they were done or not.
func (w *world) loseLeader() error {
	w.outage = 1 + w.rand.IntN(40)
	w.note("no leader for %d", w.outage)
	return nil
}

func (w *world) land() error {
	i := w.rand.IntN(len(w.late))
	c := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	drop := w.rand.IntN(3) == 0
	w.note("late %s of %d: dropped %v", c.Kind, c.Process, drop)
	if !drop {
		c.Land()
	}
	return nil
}

// underWay takes the requests of a process that is about to give up waiting.
func (w *world) underWay(process int) {
	for _, c := range w.calls() {
		if c.Process == process && c.Kind != Commit && c.Land != nil && w.rand.IntN(2) == 0 {
			w.late = append(w.late, c.Call)
		}
	}
}

// processOf is the number of the process that an owner of the lease is.
func processOf(owner string) int {
	n, err := strconv.Atoi(owner)
	if err != nil {
		panic(err)
	}
	return n
}

func (w *world) sync() error {
	stream := []string{jetlog.EventsStream, jetlog.DeltasStream}[w.rand.IntN(2)]
	w.note("sync %s", stream)
	w.server.Sync(stream)
	return nil
}

// blindfold makes a process's disk unreadable for a while.
func (w *world) blindfold() error {
	p, steps := w.processes[w.rand.IntN(len(w.processes))], 10+w.rand.IntN(200)
	if p.up() {
		w.note("%d cannot read its disk for %d", p.number, steps)
		p.mount.Unreadable(true)
		w.blind[p.number] = steps
	}
	return nil
}

// spoil stops one of a process's shards in the middle of a window; the others
// go on. It takes part again when the process has started anew.
func (w *world) spoil() error {
	p, unit := w.processes[w.rand.IntN(len(w.processes))], w.rand.IntN(w.shards+1)
	if p.up() {
		w.note("of %d, %d is spoiled", p.number, unit)
		p.spoil = unit
	}
	return nil
}

// intrude stores in DELTAS what is no window, or deletes it.
func (w *world) intrude() error {
	switch w.rand.IntN(3) {
	case 0:
		w.note("DELTAS is deleted")
		w.server.Recreate(jetlog.DeltasStream)
	case 1:
		w.note("oops")
		w.server.Intrude([]byte("oops"))
	default: // but for its checksum
		h := pipeline.Header{Events: 1}
		if held := w.server.Held(jetlog.DeltasStream); len(held) > 0 {
			last, _ := pipeline.DecodeHeader(held[len(held)-1].Data)
			h.From, h.Rules, h.Time = last.To, last.Rules, last.Time
		}
		h.To = h.From + pipeline.Position(1+w.rand.Uint64N(1<<12))
		w.note("a damaged window: %+v", h)
		w.server.Intrude(pipeline.AppendWindow(nil, &pipeline.Window{Header: h, Sections: make([][]byte, w.shards+1)}))
	}
	return nil
}

// sees ends that.
func (w *world) sees(process int) {
	delete(w.blind, process)
	if p := w.processes[process]; p.mount != nil {
		p.mount.Unreadable(false)
	}
}

// handedMax is what an owner and its reader ahead can have without the latter
// being held up.
const handedMax = 4

// pace lets a process hand its state a window. Where memory is bounded, what is
// read ahead and what is evicted must not meet: so many windows are read ahead
// at once, and what the owners are slow to apply waits here.
func (w *world) pace(ctx context.Context, p *process, h pipeline.Header) error {
	if p.memory == 0 {
		return nil
	}
	p.ends = append(p.ends, h.To)
	_, err := p.client.pass(ctx, Call{Kind: Work, Key: uint64(h.From), Ready: func() bool {
		p.ends = slices.DeleteFunc(p.ends, func(end pipeline.Position) bool { return end <= p.node.Applied() })
		return len(p.ends) <= handedMax
	}})
	return err
}

// purge takes from DELTAS what every process has checkpointed; when it is full,
// also what those do not have that are down, or shards that have stopped: they
// derive it again.
func (w *world) purge() error {
	lowest, pressed := ^uint64(0), w.presses && w.rand.IntN(2) == 0
	for _, p := range w.processes {
		switch {
		case p.up() && pressed:
			p.reported = p.node.CheckpointedGoing()
		case p.up():
			if reported := p.node.Checkpointed(); !p.loading() || reported < p.reported {
				p.reported = reported // what comes goes on from about where this was
			}
		case pressed:
			continue
		}
		lowest = min(lowest, p.reported)
	}
	w.note("purge below %d", lowest)
	if lowest > w.server.State(jetlog.DeltasStream).Last {
		return nil // that was said of another log, or of a tail that is lost
	}
	w.server.Purge(jetlog.DeltasStream, lowest)
	return nil
}

// stop has a process end in order, which takes it a while.
func (w *world) stop() error {
	if p := w.processes[w.rand.IntN(len(w.processes))]; p.up() {
		w.note("stop %d", p.number)
		w.underWay(p.number)
		p.stop()
	}
	return nil
}

func (w *world) crash() error {
	if p := w.processes[w.rand.IntN(len(w.processes))]; p.alive() {
		w.note("crash %d", p.number)
		w.crashed(p)
	}
	return nil
}

// crashed: a commit under way is on disk, whole, or it is not.
func (w *world) crashed(p *process) {
	w.underWay(p.number)
	for _, c := range w.calls() {
		if c.Process == p.number && c.Kind == Commit && c.Land != nil && w.rand.IntN(2) == 0 {
			w.note("it has written, %s %d", c.Kind, c.Key)
			c.Land()
		}
	}
	delete(w.blind, p.number)
	p.crash()
}

func (w *world) down() (n int) {
	for _, p := range w.processes {
		n += when(!p.alive(), 1)
	}
	return n
}

func (w *world) restart() error {
	n := w.rand.IntN(w.down())
	for _, p := range w.processes {
		if p.alive() {
			continue
		}
		if n == 0 {
			w.note("start %d", p.number)
			p.start(w.options())
			return nil
		}
		n--
	}
	return nil
}

func (w *world) deposed() int {
	_, n := w.server.Holder()
	return n
}

// expire lets the lease run out: its holder is told, if it lives.
func (w *world) expire() error {
	owner, _ := w.server.Holder()
	w.note("the lease of %s expires", owner)
	if owner != "" {
		w.underWay(processOf(owner))
	}
	w.server.Expire()
	return nil
}

// cutPower takes what is not on disk, as far as that is known to be mended:
//
//   - A stream keeps a message. A DELTAS whose every window is gone, purged or
//     lost, makes no guess where to go on; and a router in the middle of a
//     message cannot open an EVENTS that begins behind it.
//   - DELTAS loses no tail once EVENTS has lost one (hurt) that was not found out.
//   - Where EVENTS may lose its tail, DELTAS loses its own under one process only,
//     and not while that one has windows in hand that are lost, which it could
//     apply after the router has looked where its shards stand: the router does
//     not know what others have counted (both: decision 0012).
//   - A window that was derived before it is stored at once or never: stored
//     when the log has come as far again, by others made of what came instead,
//     it would join on to them.
func (w *world) cutPower() error {
	tail := func(stream string) uint64 {
		state := w.server.State(stream)
		last, least := state.Last, min(state.Last, max(w.server.Synced(stream), state.First))
		loose := !w.solid && (len(w.processes) > 1 || w.machine == outside && w.processes[0].inHand())
		if stream == jetlog.DeltasStream && (w.hurt || loose) {
			return last
		}
		if stream == jetlog.EventsStream && w.solid {
			return last
		}
		return least + w.rand.Uint64N(last-least+1)
	}
	events, deltas := tail(jetlog.EventsStream), tail(jetlog.DeltasStream)
	last := w.server.State(jetlog.EventsStream).Last
	w.note("power cut: EVENTS %d of %d, DELTAS %d of %d", events, last, deltas, w.server.State(jetlog.DeltasStream).Last)
	w.hurt = w.hurt || events < last
	if w.machine == embedded {
		for _, p := range w.processes {
			if p.alive() {
				w.crashed(p)
			}
		}
	}
	w.late = nil // what was under way met no server
	for _, c := range w.calls() {
		if c.Kind == Append {
			c.Land = nil // nor does what is sent now overtake what the same process sends later
		}
	}
	w.server.PowerCut(events, deltas)
	time.Sleep(100 * time.Millisecond) // nothing stored after it has a timestamp from before
	return nil
}

// mend ends all that goes wrong.
func (w *world) mend() {
	w.outage, w.late = 0, nil
	clear(w.asleep)
	clear(w.cut)
	w.undrain()
	for _, p := range w.processes {
		w.sees(p.number)
		if p.spoil = -1; p.up() && len(p.spoiled) > 0 {
			p.stop() // somebody has read what it says, and starts it anew
		}
	}
}

// done says whether every process has applied every event, and nobody is
// wrong about who routes. Of an id that the log does not name audits see what is on
// disk, so what is wrong must be there.
func (w *world) done() bool {
	end := pipeline.Position(0)
	if held := w.server.Held(jetlog.EventsStream); len(held) > 0 {
		end = pipeline.EndOf(held[len(held)-1].Sequence)
	}
	for _, p := range w.processes {
		if !p.up() || p.node.Positions()[0] < end || p.drifts() && p.node.Kept()[0] < end {
			return false
		}
	}
	return w.left() == 0 && w.deposed() == 0 && w.inquiry == nil && w.auditing == nil && w.misplaced() == nil && w.lost() == nil
}

// lost is an error as long as something is counted of a tail that EVENTS has lost.
func (w *world) lost() error {
	held := w.server.Held(jetlog.EventsStream)
	for _, p := range w.processes {
		for _, g := range p.given {
			if _, err := truth(g.seen, g.position, held, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// stand says where everyone stands.
func (w *world) stand() error {
	state := w.server.State(jetlog.EventsStream)
	s := fmt.Sprintf("EVENTS ends at %d, with %d messages to come", pipeline.EndOf(state.Last), w.left())
	if h, last, err := w.server.NewClient(-1, nil).Deltas().Tail(context.Background()); err == nil {
		s += fmt.Sprintf("; window %d is %+v", last, h)
	}
	for _, p := range w.processes {
		if p.up() {
			s += fmt.Sprintf("; process %d stands at %v, after window %d", p.number, p.node.Positions(), p.node.Sequence())
		}
	}
	return errors.New(s)
}

// derived remembers from which messages windows were derived.
func (w *world) derived(windows []pipeline.Derived, messages []pipeline.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range windows {
		var from []*Stored
		for i := range messages {
			m := &messages[i]
			if pipeline.EndOf(m.Sequence) > d.From && pipeline.At(m.Sequence, 0) <= d.To {
				from = append(from, w.server.Ever(m.Sequence, m.Time))
			}
		}
		w.sources[string(d.Window)] = from
	}
}

func (w *world) messagesOf(window []byte) []*Stored {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sources[string(window)]
}

// stopped says which state has stopped: none ever should but what was spoiled.
func (w *world) stopped() error {
	for _, p := range w.processes {
		if p.up() {
			if err := p.node.Err(); p.node.Failed() > len(p.spoiled) || errors.Is(err, pipeline.ErrGap) {
				return fmt.Errorf("process %d has stopped (I2, I3): %w", p.number, err)
			}
		}
	}
	return nil
}

// waitFor has somebody wait for a position of which answers must be: "An answer
// with min_position P reflects every event at or before P" (I6).
func (w *world) waitFor() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if !p.up() || len(p.waits) > 2 {
		return nil
	}
	end := pipeline.EndOf(w.server.State(jetlog.EventsStream).Last)
	waits := &wait{position: min(p.node.Applied()+pipeline.Position(w.rand.Uint64N(1<<14)), end), over: make(chan struct{})}
	w.note("wait for %d of %d", waits.position, p.number)
	p.waits = append(p.waits, waits)
	node, ctx := p.node, p.ctx
	go func() {
		if node.WaitApplied(ctx, waits.position) == nil {
			close(waits.over)
		}
	}()
	return nil
}

// answered asks whoever has reached what was waited for.
func (w *world) answered() error {
	for _, p := range w.processes {
		if w.blind[p.number] > 0 || p.closed != nil || p.drifts() {
			continue // no answers at all, or whoever stops has sent home who asks
		}
		for i := 0; i < len(p.waits); i++ {
			select {
			case <-p.waits[i].over:
			default:
				continue
			}
			least := p.waits[i].position
			p.waits = slices.Delete(p.waits, i, i+1)
			w.note("answer of %d as of %d", p.number, least)
			if err := w.compare(p, least, false); err != nil {
				return err
			}
			i--
		}
	}
	return nil
}

// check compares what a process has, at whatever position each of its shards
// stands, with the model.
func (w *world) check() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if !p.up() || w.blind[p.number] > 0 || p.drifts() {
		return nil
	}
	w.note("check %d at %v", p.number, p.node.Positions())
	return w.compare(p, 0, false)
}

var errModel = errors.New("not what the model says (I1, I4)")

// compare compares all of a process, which must stand at a position at least.
// At the end nothing is left to be mended.
func (w *world) compare(p *process, least pipeline.Position, end bool) error {
	stands, err := w.stands(p.node)
	if err != nil {
		return fmt.Errorf("process %d: %w", p.number, err)
	}
	held := w.server.Held(jetlog.EventsStream)
	var last []span // most shards stand where the one before does
	var all map[twin.Fact]int64
	want := facts{}
	for i, at := range stands {
		if at == nowhere {
			continue
		}
		if at < least && p.node.Failed() == 0 {
			return fmt.Errorf("process %d: shard %d answers as of %d, and %d was waited for (I6)", p.number, i, at, least)
		}
		seen, err := p.given[i].upTo(at)
		if err != nil {
			return fmt.Errorf("process %d: %w", p.number, err)
		}
		log, err := truth(seen, at, held, end)
		if err != nil {
			return fmt.Errorf("process %d: shard %d, at %d: %w", p.number, i, at, err)
		}
		if all == nil || !slices.Equal(log, last) {
			m := twin.NewModel()
			for _, t := range log {
				m.Tell(t.Tag.(*told).Message, t.Sequence, t.from, t.to)
			}
			all, last = m.Facts(w.story), log
		}
		for f, n := range all {
			if shardOf(f, w.shards) == i {
				want.add(f, n)
			}
		}
	}
	diff, err := w.ask(&answers{p.node, p.node.Schema(), p.node.Failed() > 0 || w.amongNodes()}, want)
	if err == nil && diff != "" {
		err = fmt.Errorf("shards at %v: %w:%s", stands, errModel, diff)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.number, err)
	}
	return nil
}

// shardOf is the shard that a fact is in; the last one is what every node holds.
func shardOf(f twin.Fact, shards int) int {
	if f.ID == 0 {
		return shards
	}
	return int(pipeline.ShardOf(f.ID, shards))
}

// truth is what a shard should have counted, in log order: every event that EVENTS holds up
// to where the shard stands, and those that a disk has lost since they were counted or read.
// As long as nobody has found out that EVENTS has lost its tail, those of that, too. Whether a
// lost one was counted, only the windows can tell.
func truth(seen []span, position pipeline.Position, held []*Stored, end bool) (log []span, err error) {
	saw := map[uint64]*Stored{} // the last one seen at a sequence
	for _, m := range seen {
		saw[m.Sequence] = m.Stored
	}
	is, last := map[*Stored]bool{}, uint64(0)
	for _, m := range held {
		is[m], last = true, m.Sequence
		if pipeline.At(m.Sequence, 0) > position {
			continue
		}
		if other := saw[m.Sequence]; other == nil || other == m {
			log = append(log, span{m, 0, position})
		} else if end {
			return nil, fmt.Errorf("message %d is counted, and EVENTS has another one there (I10)", m.Sequence)
		}
	}
	for _, m := range seen {
		if !is[m.Stored] {
			log = append(log, m) // EVENTS may have lost it from the middle
			if end && m.Sequence > last {
				return nil, fmt.Errorf("message %d is counted, and EVENTS ends before it (I10)", m.Sequence)
			}
		}
	}
	slices.SortStableFunc(log, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.from, b.from))
	})
	twice := map[any]*Stored{}
	for _, m := range log {
		if other := twice[m.Tag]; other != nil && other != m.Stored {
			return nil, fmt.Errorf("a message was counted at %d, and again at %d (I1)", other.Sequence, m.Sequence)
		}
		twice[m.Tag] = m.Stored
	}
	return log, nil
}

// settle is the end: everything is as if nothing had ever gone wrong, but for
// what EVENTS has lost.
func (w *world) settle() error {
	to := pipeline.Position(0)
	for _, m := range w.server.Held(jetlog.DeltasStream) {
		h, err := pipeline.DecodeHeader(m.Data)
		if err != nil {
			return fmt.Errorf("window %d: %w", m.Sequence, err)
		}
		if to != 0 && h.From != to {
			return fmt.Errorf("window %d, %+v, follows one that ends at %d (I2)", m.Sequence, h, to)
		}
		to = h.To
	}
	for _, p := range w.processes {
		err := w.compare(p, 0, true)
		if w.audits > 0 {
			err = w.drift(p, err)
		}
		if err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if err := w.asksAll(); err != nil {
		return fmt.Errorf("at the end, of all nodes: %w", err)
	}
	if err := w.explains(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return w.letters()
}

// letters compares DEADLETTER with what should be there: "Bad input is kept whole with
// its reason" (I9).
func (w *world) letters() error {
	kept := map[pipeline.Position][]pipeline.DeadLetter{}
	for _, l := range w.server.Letters() {
		kept[l.Position] = append(kept[l.Position], l)
	}
	is := map[pipeline.Position]bool{}
	held := w.server.Held(jetlog.EventsStream)
	for _, m := range held {
		t, ok := m.Tag.(*told)
		for line := 0; ok && line < t.Lines(); line++ {
			at := pipeline.At(m.Sequence, line)
			if is[at] = t.Refused(line); !is[at] {
				continue
			}
			body := m.Data
			if strings.HasSuffix(m.Subject, ".pack") {
				body = bytes.Split(m.Data, []byte("\n"))[line]
			}
			if !slices.ContainsFunc(kept[at], func(l pipeline.DeadLetter) bool { return bytes.Equal(l.Data, body) }) {
				return fmt.Errorf("event %d was refused, and is not among the %d letters of that position (I9): %s", at, len(kept[at]), body)
			}
		}
	}
	for at := range kept {
		if ok, held := is[at]; held && !ok && !w.everRefused(at) {
			return fmt.Errorf("event %d is in DEADLETTER, and was good: %s", at, kept[at][0].Data)
		}
	}
	return nil
}

// everRefused says whether a message that was ever at a position was to be refused.
func (w *world) everRefused(at pipeline.Position) bool {
	for _, m := range w.server.AllEver() {
		if t, ok := m.Tag.(*told); ok && m.Sequence == at.Sequence() && at.Line() < t.Lines() && t.Refused(at.Line()) {
			return true
		}
	}
	return false
}

// Programs are the same in every world, and take time to make.
var programs sync.Map

type programKey struct{ shards, events int }

func (w *world) newLane(process int) pipeline.Deriver {
	return program(w.shards, w.events[process]).NewLane()
}

var configuration = sync.OnceValue(twin.Configuration)

// program makes windows of so many events at most.
func program(shards, events int) *operators.Program {
	key := programKey{shards, events}
	p, ok := programs.Load(key)
	if !ok {
		c := configuration()
		schema, err := c.Schema()
		if err == nil {
			p, err = operators.Compile(schema, c.Rules(), key.shards, operators.Limits{Events: key.events, Bytes: 512 << 10})
		}
		if err != nil {
			panic(err)
		}
		programs.Store(key, p)
	}
	return p.(*operators.Program)
}
