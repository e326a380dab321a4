package node

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// leader is what the node that routes the generation that serves knows of a rebuild
// beside the record. Another one that takes over begins with nothing.
//
//	building, all shards ready ─► comparing ─► compared ─► nothing differs, or accepted ─► switched ─► kept long enough ─► dropped
//
// Each arrow is one compare-and-set of the record; before and after it everything
// may stop and go on.
type leader struct {
	mu       sync.Mutex
	samples  []sample           // of how far what is built has come, oldest first
	of       generations.Number // which generation they are of
	done     float64            // of the comparison, 0 to 1
	examples []check.Difference
	why      string             // it does not go on
	whyOf    generations.Number // which generation why is of, of those that are built; 0: of none
	left     string             // why what a generation has left on the server is not removed
	saying   kit.Paced          // left, in the log

	mine   sync.Mutex    // held to begin a rebuild, or to tidy
	tidied atomic.Uint64 // the epoch of which nothing is left in the other slot
	rested time.Time     // until then tidySlot rests; mine's
	rest   time.Duration // of the last failure, 0: it did not fail; mine's

	ended *checks.Comparison // the last one that came to its end here; lead's
}

// untidy is no epoch: something is left, or may be.
const untidy = math.MaxUint64

type sample struct {
	at       time.Time
	position pipeline.Position
}

const (
	// leadEvery is how often the leader looks.
	leadEvery = 250 * time.Millisecond
	// samplesMax and sampleEvery say over how long the pace of a rebuild is measured.
	samplesMax, sampleEvery = 30, time.Second
	// compareAgain is the pause before a comparison that failed is made again.
	compareAgain = 5 * time.Second
)

// leads says whether this node is the leader.
func (n *Node) leads() bool {
	g := n.Serving()
	_, routes := g.Routes()
	set := n.rebuilds.set()
	return (routes || set.Recounts()) && g.Number == set.Serving // of what has counted what is lost nobody routes
}

// lettersTo is up to where the letters are stored of what this node has routed, for the
// record: 0 would say that none are owed.
func (n *Node) lettersTo() uint64 {
	upTo, _ := n.Serving().Routes()
	return max(upTo, 1)
}

// lead brings a rebuild on, as long as this node routes the generation that serves.
func (n *Node) lead() {
	ticker := time.NewTicker(leadEvery)
	defer ticker.Stop()
	l := &n.rebuilds.leader
	l.tidied.Store(untidy)
	var failed time.Time
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		if !n.leads() { // the node that leads may leave something, and be killed
			l.tidied.Store(untidy)
			continue
		}
		if time.Since(failed) < compareAgain {
			continue
		}
		set := n.rebuilds.set()
		switch err := n.leadOnce(n.ctx, set); {
		case n.ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, bucket.ErrDecided):
			l.say(set.Building, "")
		default:
			failed = time.Now()
			l.say(set.Building, err.Error())
			n.log.Error("tidemark: the rebuild does not go on; trying again", "error", err)
		}
	}
}

// say notes why the step of a generation that is built does not go on, or why what
// is due without one does not (of is 0).
func (l *leader) say(of generations.Number, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why, l.whyOf = why, of
}

// saidLocked is what was said of a generation. What was said of one that has been aborted
// since is not said of the next state: the leader may rest before it looks again.
func (l *leader) saidLocked(of generations.Number) string {
	if l.whyOf != of {
		return ""
	}
	return l.why
}

// leadOnce takes the next step, if one is due.
func (n *Node) leadOnce(ctx context.Context, set generations.Set) error {
	seen, lacks := n.leadSees(set)
	switch set.Next(seen) {
	case generations.StepTidy:
		n.tidySlot(ctx, set)
	case generations.StepDrop:
		return n.step(ctx, set.Equal, generations.Set.Drop)
	case generations.StepAbort:
		_, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
			if now.Building != set.Building {
				return now, bucket.ErrDecided
			}
			return now.Abort(lacks.Error())
		})
		return err
	case generations.StepCompare:
		return n.step(ctx, set.Equal, generations.Set.Compare)
	case generations.StepCheck:
		return n.compareBoth(ctx, set)
	case generations.StepReplace:
		return n.step(ctx, set.Equal, generations.Set.Replace)
	case generations.StepSwitch:
		return n.step(ctx, set.Equal, func(now generations.Set) (generations.Set, error) { return now.Switch(n.lettersTo()) })
	}
	return nil
}

// leadSees is what the next step depends on beside the record; lacks is why EVENTS lacks its
// beginning.
func (n *Node) leadSees(set generations.Set) (seen generations.Seen, lacks error) {
	if set.Kept != 0 {
		seen.KeptLong = n.keptLong()
	}
	if set.Building == 0 {
		return seen, nil
	}
	if lacks = n.Serving().History().LacksOf(n.Serving().SeenEvents()); lacks != nil {
		seen.Lacks = true
		return seen, lacks
	}
	l := &n.rebuilds.leader
	seen.Compared = l.compared(set.Building)
	if b := n.rebuilds.beside.Load(); b != nil && b.Number == set.Building && b.IsOpen() { // else rebuilds' trouble says why
		l.see(set.Building, b.View().Come(b.Config.Shards))
		seen.CaughtUp = caughtUp(b)
	}
	return seen, nil
}

// step applies change to the record by compare-and-set, if still(record) holds.
func (n *Node) step(ctx context.Context, still func(generations.Set) bool, change func(generations.Set) (generations.Set, error)) error {
	next, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
		if !still(now) {
			return now, bucket.ErrDecided
		}
		return change(now)
	})
	if err == nil { // the write succeeded: wait for the local copy, which the next step reads
		_ = n.untilKnown(ctx, func(s generations.Set) bool { return s.Epoch >= next.Epoch })
	}
	return err
}

// compareBoth compares what is built with what serves, and notes what came of it.
func (n *Node) compareBoth(ctx context.Context, set generations.Set) error {
	l := &n.rebuilds.leader
	// comparing ends when the record changes. The result is a change of the record, too: it is
	// written with ctx.
	comparing, end := context.WithCancel(ctx)
	defer end()
	still := func(now generations.Set) bool {
		if !set.Compared && now.Accept { // amid the first one: what differs is said all the same
			now.Epoch, now.Accept = set.Epoch, set.Accept
		}
		return now.Equal(set)
	}
	defer n.whileRecord(comparing, still, end)()
	except, err := n.notAlike(set)
	if err != nil {
		return err
	}
	n.log.Info("tidemark: the new generation has caught up; both are compared with the log", "generation", set.Building, "serving", set.Serving)
	c := l.ended
	if c == nil || !c.IsOf(set.Building) {
		c = n.newComparison(set.Building, except, func(done, of uint64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = float64(done) / float64(max(of, 1))
		})
	}
	l.ended = nil
	err = c.Run(comparing, set.Serving, set.Building)
	differs, examples, why := c.Result()
	l.mu.Lock()
	if l.done = 0; comparing.Err() == nil {
		l.examples = examples
	}
	l.mu.Unlock()
	switch {
	case comparing.Err() != nil:
		return nil // the record has changed, or the node stops
	case err != nil:
		return err
	}
	l.ended = c
	n.log.Info("tidemark: both generations were compared with the log", "differs", differs, "why", why)
	return n.step(ctx, still, func(now generations.Set) (generations.Set, error) { return now.Found(differs, why) })
}

// newComparison is of the generation building and the one that serves; of the latter
// what except names may differ (check.Difference.Name). All holders of a shard are asked, not
// one of them. progress gets how much is done; it must return at once.
func (n *Node) newComparison(building generations.Number, except []string, progress func(done, of uint64)) *checks.Comparison {
	waits := func(why string) { n.rebuilds.leader.say(building, why) }
	return &checks.Comparison{NC: n.queries, Of: n.openHere, Except: except, Progress: progress, Waits: waits, Patience: checks.Patience}
}

// openHere is what a comparison sees of a generation that is open here; view nil: it is not.
func (n *Node) openHere(number generations.Number) (view func() *cluster.View, shards int) {
	g := n.generationOf(number)
	if g == nil || !g.IsOpen() {
		return nil, 0
	}
	return g.View, g.Config.Shards
}

// compared says that this leader has compared each copy of a generation that may come to
// serve. A copy of a node that was away, and is back, was not compared.
func (l *leader) compared(building generations.Number) bool {
	return l.ended != nil && l.ended.IsOf(building) && l.ended.Whole(building)
}

// whileRecord has something end when the record is not still as it must be; done ends
// the watching.
func (n *Node) whileRecord(ctx context.Context, still func(generations.Set) bool, end context.CancelFunc) (done func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(leadEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !still(n.rebuilds.set()) || !n.leads() {
				end()
				return
			}
		}
	}()
	return func() {
		end()
		<-ended
	}
}

// notAlike are the names of what the two generations do not define alike.
func (n *Node) notAlike(set generations.Set) ([]string, error) {
	serving, err := n.config.CountingBy(set.All[set.Serving].Counting)
	if err != nil {
		return nil, err
	}
	building, err := n.config.CountingBy(set.All[set.Building].Counting)
	if err != nil {
		return nil, err
	}
	alike := config.Alike(serving, building)
	var names []string
	for _, counter := range serving.Counters {
		for _, column := range counter.Columns {
			if name := counter.Name + "." + column.Name; !slices.Contains(alike, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// settleWithin bounds how long is waited for what usually takes a moment.
const settleWithin = 5 * time.Second

// see notes how far a generation has come.
func (l *leader) see(of generations.Number, position pipeline.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of != of {
		l.of, l.samples, l.examples = of, nil, nil
	}
	if k := len(l.samples); k > 0 && time.Since(l.samples[k-1].at) < sampleEvery {
		return
	}
	l.samples = append(l.samples, sample{time.Now(), position})
	if len(l.samples) > samplesMax {
		l.samples = slices.Delete(l.samples, 0, 1)
	}
}

// etaLocked is in how many seconds a position is reached, as fast as of late; 0: it
// is, or that is not known.
func (l *leader) etaLocked(of pipeline.Position) float64 {
	if len(l.samples) < 2 {
		return 0
	}
	first, last := l.samples[0], l.samples[len(l.samples)-1]
	if last.position <= first.position || of <= last.position {
		return 0
	}
	rate := float64(last.position-first.position) / last.at.Sub(first.at).Seconds()
	return float64(of-last.position) / rate
}
