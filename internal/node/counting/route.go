package counting

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

func (g *Generation) openPipeline() error {
	lease, err := bucket.NewLease(g.streams, bucket.LeaseOptions{
		Owner:  g.Name,
		Renew:  g.Config.Router.LeaseRenew,
		Expiry: g.Config.Router.LeaseExpiry,
		Logger: g.Log,
	})
	if err != nil {
		return err
	}
	letters, err := letters.NewDeadLetters(g.streams, g.Log)
	if err != nil {
		return err
	}
	g.lease = lease
	g.router = &pipeline.Router{
		Open: func(held context.Context, from pipeline.Position) (pipeline.Source, error) {
			return g.guard.Open(g.ctx, held, from)
		},
		Log:     jetlog.NewDeltaLog(g.streams),
		Letters: g.letters.keepIn(letters),
		Lane:    g.lane,
		Lanes:   g.lanes(),
		Logger:  g.Log,
		Cuts:    g.guard.Cuts,
	}
	g.backups = &upkeep.Schedule{
		Nc: g.NC, Streams: g.streams, Members: g.members, Config: g.Config, Owner: g.owner(), Limit: g.MoveLimit,
		Routes: g.router.Stats.Active.Load, Trouble: &g.trouble, Log: g.Log,
	}
	return nil
}

// lane derives when the generation may.
func (g *Generation) lane() pipeline.Deriver {
	lane := g.program.NewLane()
	lane.Version = func() int { return g.Writes(pipeline.FormatWindows) }
	return inTurns{lane, g.turn}
}

// Writes is the version of a format that all members of the generation read.
func (g *Generation) Writes(f pipeline.Format) int {
	if m := g.watched.Load(); m != nil {
		return m.View().Writes(f)
	}
	return f.Oldest
}

// lagging says which formats are written in an older version than this program could,
// and for which member, a line each.
func (g *Generation) lagging() (lines string) {
	for _, line := range g.View().Lagging() {
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
func (g *Generation) openTailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	tailer, err := g.tailer(ctx, after)
	if err == nil {
		g.trouble.Clear("follow")
	}
	return tailer, err
}

func (g *Generation) tailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	tailer, err := jetlog.OpenTailer(ctx, g.streams, after, jetlog.RunOptions{MessagesMax: 64, Logger: g.Log})
	if err != nil {
		return nil, err
	}
	if !tailer.Created().Equal(g.store.Meta().Streams.Deltas) {
		return nil, errors.Join(errors.New("stream DELTAS was recreated since where to follow it was looked for"), tailer.Close())
	}
	return tailer, nil
}

// follow applies DELTAS until the generation ends. What is held changes between two
// runs of the follower.
func (g *Generation) follow() {
	g.repeat("follow", func() error {
		for {
			if err := g.change(); err != nil {
				return err
			}
			if err := g.join(); err != nil {
				return err
			}
			ctx, cancel := g.holdings.following(g.ctx, &g.audits.renewals)
			err := g.beyond(g.follower.Follow(ctx))
			again := errors.Is(context.Cause(ctx), errHoldings)
			cancel(nil)
			if !again || g.ctx.Err() != nil {
				return err
			}
		}
	})
}

// route is the router while this process holds the lease.
func (g *Generation) route() {
	g.repeat("route", func() error {
		held, release, err := g.lease.Acquire(g.ctx)
		if err != nil {
			return err
		}
		defer release()
		for again := true; again; {
			again, err = g.routeOnce(held)
		}
		lost := held.Err() != nil && g.ctx.Err() == nil
		if lost {
			err = context.Cause(held)
		}
		if lost || errors.Is(err, pipeline.ErrFenced) {
			g.Log.Warn("router: stepped down, standing by", "reason", err)
			return nil
		}
		return g.beyond(err)
	})
}

// routeOnce routes until what is to be done with dead letters changes (again), or it
// fails. One that serves stores those that it owes before.
func (g *Generation) routeOnce(held context.Context) (again bool, err error) {
	const part = "letters"
	running, kept, end := g.letters.routing(held)
	defer end(nil)
	g.router.Lanes = g.lanes()
	if kept {
		switch err := g.owed(running); {
		case err == nil:
			g.trouble.Clear(part)
		case running.Err() == nil: // counting does not wait for it: tried again with the next run
			g.trouble.Set(part, err)
			g.Log.Error("tidemark: dead letters of what was routed before this generation served are not stored yet", "error", err)
		}
	}
	err = g.router.Run(running)
	return errors.Is(context.Cause(running), errLetters) && held.Err() == nil, err
}

// lanes is how many goroutines derive events.
func (g *Generation) lanes() int {
	if !g.host.IsServing(g) {
		return g.Config.Rebuild.Cores
	}
	if g.Config.Router.Lanes > 0 {
		return g.Config.Router.Lanes
	}
	return g.Processors
}

// routed says that this node routes, or another one does: what kept this one from routing
// no longer matters.
func (g *Generation) routed() bool {
	holder, mine := g.lease.Holder()
	return g.router.Stats.Active.Load() || holder != "" && !mine
}
