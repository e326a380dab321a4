package node

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func (n *generation) openPipeline() error {
	lease, err := jetlog.NewLease(n.streams, jetlog.LeaseOptions{
		Owner:  n.name,
		Renew:  n.config.Router.LeaseRenew,
		Expiry: n.config.Router.LeaseExpiry,
		Logger: n.log,
	})
	if err != nil {
		return err
	}
	letters, err := jetlog.NewDeadLetters(n.streams, n.number, n.log)
	if err != nil {
		return err
	}
	n.lease = lease
	n.router = &pipeline.Router{
		Open: func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
			return n.guard.Open(n.ctx, held, from)
		},
		Log:     jetlog.NewDeltaLog(n.streams),
		Letters: n.letters.keepIn(letters),
		Lane:    n.lane,
		Lanes:   n.lanes(),
		Logger:  n.log,
		Cuts:    n.guard.Cuts,
	}
	return nil
}

// lane derives when the generation may.
func (n *generation) lane() pipeline.Deriver {
	lane := n.program.NewLane()
	lane.Version = func() int { return n.writes(pipeline.FormatWindows) }
	return inTurns{lane, n.turn}
}

// writes is the version of a format that all members of the generation read.
func (n *generation) writes(f pipeline.Format) int {
	if m := n.watched.Load(); m != nil {
		return m.View().Writes(f)
	}
	return f.Oldest
}

// lagging says which formats are written in an older version than this program could,
// and for which member, a line each.
func (n *generation) lagging() (lines string) {
	for _, line := range n.view().Lagging() {
		lines += "formats: " + line + "\n"
	}
	return lines
}

type inTurns struct {
	pipeline.Deriver
	turn func(work func())
}

func (d inTurns) Derive(from, to pipeline.Position, messages []pipeline.Message) (windows []pipeline.Derived, err error) {
	d.turn(func() { windows, err = d.Deriver.Derive(from, to, messages) })
	return windows, err
}

// openTailer opens DELTAS for what this node holds.
func (n *generation) openTailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	tailer, err := n.tailer(ctx, after)
	if err == nil {
		n.trouble.clear("follow")
	}
	return tailer, err
}

func (n *generation) tailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	tailer, err := jetlog.OpenTailer(ctx, n.streams, after, jetlog.RunOptions{MessagesMax: 64, Logger: n.log})
	if err != nil {
		return nil, err
	}
	if !tailer.Created().Equal(n.store.Meta().Streams.Deltas) {
		return nil, errors.Join(errors.New("stream DELTAS was recreated since where to follow it was looked for"), tailer.Close())
	}
	return tailer, nil
}

// follow applies DELTAS until the node closes. What is held changes between two
// runs of the follower.
func (n *generation) follow() {
	n.repeat("follow", func() error {
		for {
			if err := n.change(); err != nil {
				return err
			}
			if err := n.join(); err != nil {
				return err
			}
			ctx, cancel := n.holdings.following(n.ctx, &n.audits.renewals)
			err := n.beyond(n.follower.Follow(ctx))
			again := errors.Is(context.Cause(ctx), errHoldings)
			cancel(nil)
			if !again || n.ctx.Err() != nil {
				return err
			}
		}
	})
}

// route is the router while this process holds the lease.
func (n *generation) route() {
	n.repeat("route", func() error {
		held, release, err := n.lease.Acquire(n.ctx)
		if err != nil {
			return err
		}
		defer release()
		for again := true; again; {
			again, err = n.routeOnce(held)
		}
		lost := held.Err() != nil && n.ctx.Err() == nil
		if lost {
			err = context.Cause(held)
		}
		if lost || errors.Is(err, pipeline.ErrFenced) {
			n.log.Warn("router: stepped down, standing by", "reason", err)
			return nil
		}
		return n.beyond(err)
	})
}

// routeOnce routes until what is to be done with dead letters changes (again), or it
// fails. One that serves stores those that it owes before.
func (n *generation) routeOnce(held context.Context) (again bool, err error) {
	const part = "letters"
	running, kept, end := n.letters.routing(held)
	defer end(nil)
	n.router.Lanes = n.lanes()
	if kept {
		switch err := n.owed(running); {
		case err == nil:
			n.trouble.clear(part)
		case running.Err() == nil: // counting does not wait for it: tried again with the next run
			n.trouble.set(part, err)
			n.log.Error("tidemark: dead letters of what was routed before this generation served are not stored yet", "error", err)
		}
	}
	err = n.router.Run(running)
	return errors.Is(context.Cause(running), errLetters) && held.Err() == nil, err
}

// lanes is how many goroutines derive events.
func (n *generation) lanes() int {
	if n.gen() != n {
		return n.config.Rebuild.Cores
	}
	if n.config.Router.Lanes > 0 {
		return n.config.Router.Lanes
	}
	return n.o.Processors
}

// routed says that this node routes, or another: what kept this one from it
// is nobody's trouble any more.
func (n *generation) routed() bool {
	holder, mine := n.lease.Holder()
	return n.router.Stats.Active.Load() || holder != "" && !mine
}
