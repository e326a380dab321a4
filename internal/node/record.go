package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
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
		case err != nil && !jetlog.Passing(err) && !errors.Is(err, bucket.ErrDecided) && !errors.Is(err, nats.ErrNoResponders): // the last: the bucket has no leader yet
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
	case !log.Due(why.Error()):
	case errors.Is(why, nats.ErrNoResponders): // the servers of a new cluster choose their leaders
		n.log.Info("tidemark: the start waits", "why", why)
	default:
		n.log.Error("tidemark: the start waits", "why", why)
	}
}

var errJustWritten = errors.New("another node has just written the record of the generations")

// settle is the generation to begin with, not opened yet; nil: not known, and why.
func (n *Node) settle(ctx context.Context) (g *counting.Generation, why, err error) {
	ctx, cancel := context.WithTimeout(ctx, led.StartWithin)
	defer cancel()
	there, fault := n.rebuilds.record.Seen()
	if errors.Is(fault, generations.ErrVersion) { // not ours to replace: this node is no member yet
		return nil, fmt.Errorf("%w; or %s", fault, wayOut), nil
	}
	own := n.dir.Generations()
	set := generations.Newest(own, there)
	if set.Epoch == 0 {
		if set, err = n.firstRecord(); err != nil {
			return nil, nil, err
		}
		if created, err := n.rebuilds.record.Create(ctx, set); err != nil || !created {
			return nil, errJustWritten, err
		}
	}
	if g, err = n.newGenerationOf(n.ctx, set, set.Serving); err != nil {
		return nil, fmt.Errorf("%w; or %s", err, wayOut), nil
	}
	if !set.Equal(own) {
		if err := n.take(set); err != nil {
			return nil, nil, err
		}
	}
	if fault != nil || !set.Equal(there) {
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

// openServing opens the generation that serves.
func (n *Node) openServing() error {
	err := n.Serving().OpenAll()
	if errors.Is(err, jetlog.ErrGeneration) { // the record was lost, and this node has an old copy, or none
		err = fmt.Errorf("%w; start a node that holds what serves, or %s", err, wayOut)
	}
	return err
}

// generationsVerb is what nodes ask each other: which generations there are, and
// whether one more may be.
const generationsVerb = "generations"

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
	err = r.Write(ctx, from, next)
	return errors.Is(err, bucket.ErrDecided), err
}
