package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// openRecord begins to watch the record of generations. jetlog.ErrNoBucket: nobody
// has run on this server yet.
func (n *Node) openRecord(ctx context.Context) (*bucket.Generations, error) {
	streams, err := jetlog.Attach(ctx, n.nc, 0, jetlog.Owner{}, n.log)
	if err != nil {
		return nil, err
	}
	return n.versioned(bucket.OpenGenerations(ctx, streams, n.log))
}

// openGenerations finds out which generation serves, and what all nodes count by: the
// record says so, whatever this node's file says. The first node of a system writes it.
// A node that may not serve what it holds waits here, and is not ready.
func (n *Node) openGenerations() error {
	r := &n.rebuilds
	if err := n.openBucket(); err != nil {
		return err
	}
	defer n.trouble.Clear(led.Part)
	var log kit.Paced
	for {
		changed := r.record.Changed()
		g, why, err := n.settle(n.ctx)
		switch {
		case err != nil && !jetlog.Passing(err) && !errors.Is(err, bucket.ErrDecided):
			return err
		case err != nil:
			why = err
		case g != nil:
			n.serving.Store(g)
			return nil
		}
		n.waitAtStart(why, &log)
		select {
		case <-changed:
		case <-time.After(rebuildsEvery):
		case <-n.ctx.Done():
			return n.ctx.Err()
		}
	}
}

// openBucket opens the bucket, or makes it, and begins to watch the record.
func (n *Node) openBucket() error {
	ctx, cancel := led.Context(n.ctx, n.inCluster())
	defer cancel()
	return n.led().Until(ctx, led.LookWithin, jetlog.Passing, func(ctx context.Context) error {
		streams, err := jetlog.OpenBucket(ctx, n.nc, n.Serving().StreamOptions())
		if err != nil {
			return err
		}
		if n.rebuilds.record, err = n.versioned(bucket.OpenGenerations(ctx, streams, n.log)); err == nil {
			n.rebuilds.writer.Store(n.rebuilds.record)
		}
		return err
	})
}

// versioned has a record written in the version that all members read.
func (n *Node) versioned(r *bucket.Generations, err error) (*bucket.Generations, error) {
	if err == nil {
		r.Version = func() int { return n.Serving().Writes(pipeline.FormatRecord) }
	}
	return r, err
}

// waitAtStart says why a start does not go on.
func (n *Node) waitAtStart(why error, log *kit.Paced) {
	if n.http == nil {
		n.http = n.serveHTTP(n.startPages())
	}
	n.trouble.Set(led.Part, why)
	switch {
	case errors.Is(why, errJustWritten): // as where nodes of a new system start together
		n.log.Info("tidemark: the start looks again", "why", why)
	case log.Due(why.Error()):
		n.log.Error("tidemark: the start waits", "why", why)
	}
}

var errJustWritten = errors.New("another node has just written the record of the generations")

// settle is the generation to begin with, not opened yet; nil: not known, and why.
func (n *Node) settle(ctx context.Context) (g *counting.Generation, why, err error) {
	ctx, cancel := context.WithTimeout(ctx, led.StartWithin)
	defer cancel()
	first, err := n.firstRecord()
	if err != nil {
		return nil, nil, err
	}
	found, fault := n.found(first)
	if errors.Is(fault, generations.ErrVersion) { // not ours to replace: this node is no member yet
		return nil, fmt.Errorf("%w; if the record is forged, %s", fault, wayOut), nil
	}
	if err := n.look(ctx, found); err != nil {
		return nil, nil, err
	}
	set, why := found.Judge()
	switch {
	case set.Epoch == 0:
		return nil, fmt.Errorf("%w; start a node that holds what serves, or %s", errors.Join(why, fault), wayOut), nil
	case found.Own.Epoch == 0 && found.There.Epoch == 0:
		if created, err := n.rebuilds.record.Create(ctx, set); err != nil || !created {
			return nil, errJustWritten, err
		}
	}
	if g, err = n.newGenerationOf(n.ctx, set, set.Serving); err != nil {
		return nil, fmt.Errorf("%w; if the record is forged, %s", err, wayOut), nil
	}
	if !set.Equal(found.Own) {
		if err := n.take(set); err != nil {
			return nil, nil, err
		}
	}
	if why != nil { // there is none, or an older one
		if _, err := n.rebuilds.record.Restore(ctx, set); err != nil {
			return nil, nil, err
		}
	}
	n.rebuilds.known.Store(&set)
	return g, nil, nil
}

// wayOut is the one command out of a record that no node can act on.
const wayOut = "stop a node whose counts are to serve, run 'tidemark repair --record' there, and start it"

// firstRecord is that of a system whose first node is this one.
func (n *Node) firstRecord() (generations.Set, error) {
	counting, err := n.config.Counting()
	if err != nil {
		return generations.Set{}, err
	}
	return generations.Start(counting)
}

// found is what this node knows, and what the bucket says; fault is what is wrong with that.
func (n *Node) found(first generations.Set) (found *generations.Found, fault error) {
	found = &generations.Found{Own: n.dir.Generations(), First: first}
	found.There, fault = n.rebuilds.record.Seen()
	return found, fault
}

// look adds what other nodes act on and whose windows there are, where that is needed.
func (n *Node) look(ctx context.Context, found *generations.Found) error {
	if found.Own.Epoch != 0 && (found.Own.Equal(found.There) || found.Own.Follows(found.There)) {
		return nil
	}
	found.Told = n.askGenerations(ctx)
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	for slot := range jetlog.Slot(jetlog.Slots) {
		if found.Deltas[slot], err = jetlog.SlotOf(ctx, js, slot); err != nil {
			return err
		}
	}
	return nil
}

// openServing opens the generation that serves.
func (n *Node) openServing() error { return n.Serving().OpenAll() }

// judge says which record this node, which runs, acts on, and why that is not what the
// bucket says.
func (n *Node) judge(ctx context.Context, own, there generations.Set) (next generations.Set, why error) {
	switch {
	case n.dir == nil: // a process without counts has nothing to lose
		return there, nil
	case own.Equal(there), own.Follows(there):
		return there, nil
	case there.Epoch == 0:
		return own, generations.ErrGone
	case own.Newer(there):
		return own, generations.ErrOlder
	}
	return n.judgeByOthers(ctx, own, there)
}

// judgeByOthers is judge of a record that does not follow from this node's: it was away
// while a generation came and went, or the record is forged.
func (n *Node) judgeByOthers(ctx context.Context, own, there generations.Set) (next generations.Set, why error) {
	r := &n.rebuilds
	if time.Since(r.asked) < askAgain && r.unsaid != nil {
		return own, r.unsaid
	}
	defer func() { r.asked, r.unsaid = time.Now(), why }()
	found := &generations.Found{Own: own, There: there}
	if err := n.look(ctx, found); err != nil {
		return own, err
	}
	if next, why = found.Judge(); next.Epoch == 0 {
		next = own
	}
	if why != nil {
		why = fmt.Errorf("%w; if it was forged, %s", why, wayOut)
	}
	return next, why
}

// askAgain is how often others are asked about a record that this node may not follow.
const askAgain = 5 * time.Second

// generationsVerb is what nodes ask each other: which generations there are, and
// whether one more may be.
const generationsVerb = "generations"

// askGenerations asks others which generations there are, and gives the newest answer;
// the zero: no node answers.
func (n *Node) askGenerations(ctx context.Context) (newest generations.Set) {
	var nodes []cluster.State
	for slot := range jetlog.Slot(jetlog.Slots) {
		members, err := bucket.AttachMembers(ctx, n.nc, slot, bucket.MembersOptions{Beat: bucket.MemberBeat, Expiry: bucket.MemberExpiry, Logger: n.log})
		if err != nil {
			continue
		}
		nodes = append(nodes, members.View().Members...)
		members.Close()
	}
	for _, p := range n.known(ctx, nodes) {
		if p.Generations.Newer(newest) && p.Generations.Fault() == nil {
			newest = p.Generations
		}
	}
	return newest
}

// askPrepared asks a node which generations it knows of and, with counting, what speaks
// against one more that counts by that.
func (n *Node) askPrepared(ctx context.Context, node string, counting json.RawMessage) (p Prepared, err error) {
	const every = rebuildsEvery / 50 // it takes a moment
	raw, err := job.AskWhenFree(ctx, n.queries, node, generationsVerb, PrepareAsk{counting}, every, 0)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	return p, err
}

// known is what others know of the generations, of those that answer. A process that
// only answers is not asked: it has nothing to lose, and obeys what is there.
func (n *Node) known(ctx context.Context, nodes []cluster.State) (answers []Prepared) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	asked := map[string]bool{n.name: true}
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, m := range nodes {
		if m.Status == cluster.Away || asked[m.Node] || !m.Roles.Has(cluster.Hold) && !m.Roles.Has(cluster.Route) {
			continue
		}
		asked[m.Node] = true
		work.Go(func() {
			answer, err := n.askPrepared(ctx, m.Node, nil)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, answer)
		})
	}
	work.Wait()
	return answers
}

// outrun is an error where a node that is there knows a newer record than this one does:
// the bucket was lost, and has an older copy. What follows from that must not be
// written, that node has acted on the newer one.
func (n *Node) outrun(ctx context.Context, from generations.Set) error {
	nodes := n.Serving().View().Members
	if b := n.rebuilds.beside.Load(); b != nil {
		nodes = append(slices.Clone(nodes), b.View().Members...)
	}
	for _, p := range n.known(ctx, nodes) {
		if p.Generations.Newer(from) && p.Generations.Fault() == nil {
			return fmt.Errorf("node %s knows the generations of epoch %d, and this one those of %d: ask again in a moment", p.Node, p.Generations.Epoch, from.Epoch)
		}
	}
	return nil
}

// newGenerationOf is a generation as the record has it, not opened yet. It ends with ctx.
func (n *Node) newGenerationOf(ctx context.Context, set generations.Set, number generations.Number) (*counting.Generation, error) {
	is := set.All[number]
	by, err := n.config.CountingBy(is.Counting)
	if err != nil {
		return nil, fmt.Errorf("what generation %d counts by does not fit the configuration of this node: %w", number, err)
	}
	differs, err := config.Changes(by, n.config)
	return n.newGeneration(ctx, counting.Spec{Number: number, Slot: jetlog.Slot(is.Slot), Config: by, CountsBy: is.CountsBy(), Differs: differs}), err
}

// changeRecord writes the record that follows from the one that this node knows. It
// returns when this node acts on it, or will at once. Another change that came before it
// may be heard of late, where a node is amid a switch: it begins again for settleWithin.
func (n *Node) changeRecord(ctx context.Context, change func(generations.Set) (generations.Set, error)) (next generations.Set, err error) {
	r := n.rebuilds.writer.Load()
	if r == nil {
		return next, jetlog.ErrNoBucket
	}
	for end := time.Now().Add(settleWithin); ; {
		from := n.rebuilds.set()
		if next, err = change(from); err != nil {
			return from, err
		}
		again, err := n.writeRecord(ctx, r, from, next)
		if !again || time.Now().After(end) {
			return next, err
		}
		select {
		case <-time.After(rebuildsEvery / 5):
		case <-ctx.Done():
			return next, err
		}
	}
}

// writeRecord puts next in the place of from; again: what was faster is heard of soon.
func (n *Node) writeRecord(ctx context.Context, r *bucket.Generations, from, next generations.Set) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	if err := n.outrun(ctx, from); err != nil {
		return true, err
	}
	err = r.Write(ctx, from, next)
	return errors.Is(err, bucket.ErrDecided), err
}
