package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query/spread"
)

// thin is what a process that only answers finds out from the others. It has no data
// directory and no counters of its own: it asks a holder what is counted.
//
//	attach: bucket, members, join ─► ask a holder what is counted ─► serve
//	nobody there: every request is 503 ◄─┘        ▲ when a holder counts something else
//
// It belongs to the goroutine that starts the process, then to attend.
type thin struct {
	node    *Node
	counted *spread.Counted // by which requests are answered; nil: no holder has answered yet
	by      counts          // of the member that it is from
	asked   time.Time       // when that member answered
	stop    context.CancelFunc
	done    chan struct{} // closed when attend has returned; nil: it has not begun
}

// counts is equal for members that count the same.
type counts struct {
	fingerprint cluster.Fingerprint
	shards      int
}

const (
	// askWithin bounds how long a holder may take to say what is counted, asksMax
	// how many are asked before others may be looked for.
	askWithin = time.Second
	asksMax   = 4
	// askAgainEvery is how often it is asked although no member says that it
	// counts anything else.
	askAgainEvery = time.Minute
	// attendPause is how long what members say is gathered: each beats.
	attendPause = 100 * time.Millisecond
)

// openName chooses a name: nothing that a process keeps has one already.
func (n *Node) openName() error {
	n.name = cmp.Or(n.config.Node, nuid.Next())
	n.shared.Name = n.name
	return nil
}

// openThin joins the nodes that are there, and answers for them. Without any it begins all
// the same: every request gets 503 until they come.
func (n *Node) openThin() error {
	n.register()
	if err := n.openJobs(); err != nil {
		return err
	}
	t := &thin{node: n}
	n.thin, n.shared.Session = t, nuid.Next()
	if err := t.try(n.ctx); final(err) {
		return err
	}
	if err := n.ctx.Err(); err != nil {
		return err
	}
	if t.counted == nil {
		if err := n.serveNobody(); err != nil {
			return err
		}
	}
	return n.show()
}

// beginThin starts what runs for as long as the process does.
func (n *Node) beginThin() {
	ctx, stop := context.WithCancel(n.ctx)
	n.thin.stop, n.thin.done = stop, make(chan struct{})
	go n.thin.attend(ctx)
	n.log.Info("tidemark: running, to answer only", "node", n.name, "nats", jetlog.Address(n.nc), "http", n.HTTPAddress(), "api", n.APIAddress())
}

// serveNobody answers as long as it is not known what is counted.
func (n *Node) serveNobody() error {
	none, err := pipeline.NewSchema(nil, nil)
	if err != nil {
		return err
	}
	return n.serveAll(n.Serving(), &spread.Counted{Schema: none}, func() error { return cluster.ErrNobody })
}

// final says that a process cannot go on beside the members that are there.
func final(err error) bool {
	return errors.Is(err, bucket.ErrNameTaken) || errors.Is(err, bucket.ErrMemberMisfit)
}

// attend looks after what is answered until ctx ends.
func (t *thin) attend(ctx context.Context) {
	defer close(t.done)
	n := t.node
	for ctx.Err() == nil {
		changed := n.Serving().MembersChanged()
		var other <-chan struct{}
		if r := n.rebuilds.record; r != nil {
			other = r.Changed()
		}
		err := t.try(ctx)
		switch {
		case final(err):
			n.fail(fmt.Errorf("this process must stop: %w", err))
			return
		case err == nil, errors.Is(err, jetlog.ErrNoBucket), errors.Is(err, cluster.ErrNobody): // Ready sees that
			n.trouble.Clear("nodes")
		case ctx.Err() == nil:
			n.trouble.Set("nodes", err)
		}
		select {
		case <-ctx.Done():
		case <-other:
			continue
		case <-time.After(attendPause):
		}
		select {
		case <-ctx.Done():
		case <-other:
		case <-changed:
		case <-time.After(bucket.MemberBeat):
		}
	}
}

func (t *thin) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, led.StartWithin)
	defer cancel()
	return t.look(ctx)
}

// end stops attend. From then on what is answered changes no more.
func (t *thin) end() {
	if t != nil && t.done != nil {
		t.stop()
		<-t.done
	}
}

// look joins the members of the generation that serves if that was not possible
// before, and has requests be answered by what they count.
func (t *thin) look(ctx context.Context) error {
	n := t.node
	n.watchRecord(ctx)
	if n.rebuilds.record != nil {
		n.acceptRecord(ctx)
	}
	set := n.rebuilds.set()
	if set.Epoch == 0 {
		return cluster.ErrNobody
	}
	if n.Serving().Number != set.Serving {
		return t.change(ctx, n.newGeneration(n.ctx, counting.Spec{Number: set.Serving, Slot: jetlog.Slot(set.All[set.Serving].Slot), Config: n.config}))
	}
	if err := n.Serving().Attach(ctx); err != nil {
		return err
	}
	return t.ask(ctx)
}

// change switches answers to another generation. The one before answers until a holder has
// said what the other one counts.
func (t *thin) change(ctx context.Context, to *counting.Generation) error {
	n, before := t.node, t.node.Serving()
	counted, by, err := t.join(ctx, to)
	if err == nil && before.MembersChanged() == nil { // nothing was answered before
		err = n.serveAll(to, counted, nil)
	} else if err == nil {
		err = n.answerAfter(ctx, before, to, counted, func(ctx context.Context) (pipeline.Position, error) {
			last, err := to.LogEnd(ctx)
			return pipeline.EndOf(last), err
		})
	}
	if err != nil {
		_ = to.Close(ctx)
		return err
	}
	n.serving.Store(to)
	t.counted, t.by, t.asked = counted, by, time.Now()
	n.log.Info("tidemark: another generation answers", "generation", to.Number, "before", before.Number, "shards", counted.Shards)
	return before.CloseAll(ctx)
}

// join joins the members of a generation and has one of them say what is counted.
func (t *thin) join(ctx context.Context, g *counting.Generation) (*spread.Counted, counts, error) {
	if err := g.Attach(ctx); err != nil {
		return nil, counts{}, err
	}
	err := cluster.ErrNobody
	for _, m := range g.View().Members {
		if m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) {
			continue
		}
		var counted *spread.Counted
		if counted, err = t.askOne(ctx, m.Node, g.Number); err == nil {
			return counted, counts{m.Fingerprint, m.Shards}, nil
		}
	}
	return nil, counts{}, err
}

// ask asks a holder what is counted: as soon as any counts something else than requests
// are answered by, and now and then.
func (t *thin) ask(ctx context.Context) error {
	g := t.node.Serving()
	members := g.View().Members
	err, asked := cluster.ErrNobody, 0
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		by := counts{m.Fingerprint, m.Shards}
		known := t.counted != nil && by == t.by && time.Since(t.asked) < askAgainEvery
		if m.Status == cluster.Away || !m.Roles.Has(cluster.Hold) || known {
			continue
		}
		if asked++; asked > asksMax {
			break
		}
		counted, fault := t.askOne(ctx, m.Node, g.Number)
		if fault != nil { // it is gone, and not away yet
			err = fmt.Errorf("%w: %w", cluster.ErrNobody, fault)
			continue
		}
		if fault := t.take(counted, m.Node); fault != nil {
			return fault
		}
		t.by, t.asked = by, time.Now()
		return nil
	}
	if t.counted != nil {
		return nil
	}
	return err
}

func (t *thin) askOne(ctx context.Context, node string, of generations.Number) (*spread.Counted, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return spread.AskCounted(ctx, t.node.queries, node, of)
}

// take has requests be answered by what a node counts.
func (t *thin) take(counted *spread.Counted, from string) error {
	if t.counted != nil && t.counted.Equal(counted) {
		return nil
	}
	if err := t.node.serveAll(t.node.Serving(), counted, nil); err != nil {
		return err
	}
	t.node.log.Info("tidemark: requests are answered by what a node counts", "of", from,
		"counters", cluster.Summary(counted.Schema), "shards", counted.Shards, "before", t.counted != nil)
	t.counted = counted
	return nil
}
