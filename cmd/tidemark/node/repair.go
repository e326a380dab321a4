package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// RepairOptions say what to repair; exactly one of Replay and Adopt.
type RepairOptions struct {
	// Replay throws away what is counted and the windows, so that the next
	// start counts EVENTS again from its first event, by today's rules and
	// number of shards.
	Replay bool
	// Adopt keeps what is counted and goes on with the EVENTS that is there,
	// recreated or not, after everything counted.
	Adopt  bool
	Demo   bool
	Logger *slog.Logger
}

// Repair mends a stopped node's data directory.
func Repair(c *config.Config, o RepairOptions) error {
	if o.Replay == o.Adopt {
		return errors.New("repair: choose one of replay and adopt")
	}
	n := newNode(c, Options{Demo: o.Demo, Logger: o.Logger})
	defer n.undo()
	if o.Replay {
		return n.gen().replay()
	}
	return n.adopt()
}

func (n *generation) replay() (err error) {
	// The number of shards may be what has changed.
	if err := n.lockData(0); err != nil {
		return err
	}
	if err := n.openServer(); err != nil {
		return err
	}
	if err := n.awaitCluster(); err != nil {
		return err
	}
	if err := n.openStreams(); err != nil {
		return err
	}
	events := n.state.Load().Events
	if events.First > 1 && events.Last > 0 {
		return fmt.Errorf("repair: EVENTS begins at sequence %d: the events before it are gone, and a replay would lose what they counted; 'tidemark restore' makes a data directory of a backup", events.First)
	}
	ctx, cancel := context.WithTimeout(n.ctx, startWithin)
	defer cancel()
	// Dead letters come again with the events that they were.
	if err := n.streams.Delete(ctx, jetlog.DeadLetterStream); err != nil {
		return err
	}
	if err := n.streams.Delete(ctx, n.slot.Deltas()); err != nil {
		return err
	}
	// At one stroke, so that no start ever sees half a database.
	old := n.dir.join(badgerDir + ".old")
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	if err := os.Rename(n.dir.join(badgerDir), old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("repair: %w", err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	n.dir.marker.Shards, n.dir.marker.CountedBy, n.dir.marker.Mixed = n.config.Shards, "", false
	if err := n.dir.writeMarker(); err != nil {
		return err
	}
	n.log.Info("repair: the next start counts EVENTS again", "messages", events.Messages)
	return nil
}

func (p *Node) adopt() error {
	for _, step := range []func() error{p.openData, p.openServer, p.awaitCluster} {
		if err := step(); err != nil {
			return err
		}
	}
	n := p.gen()
	for _, step := range []func() error{n.openStreams, n.openStore} {
		if err := step(); err != nil {
			return err
		}
	}
	counted := uint64(0)
	for s := range n.config.Shards + 1 { // and the channels
		state, err := n.store.Stack(pipeline.Shard(s)).State()
		if err != nil {
			return err
		}
		counted = max(counted, state.Applied.Sequence())
	}
	tail, _, err := n.deltas.Tail(n.ctx)
	if err != nil {
		return err
	}
	counted = max(counted, tail.To.Sequence())
	if err := n.events.FastForward(n.ctx, counted); err != nil {
		return err
	}
	now := n.state.Load()
	known := n.store.Meta().Streams
	by, _ := n.dir.counted()
	if err := n.dir.note(by, true); err != nil { // EVENTS does not tell any more what was counted
		return err
	}
	err = n.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: known.Deltas})
	if err == nil {
		n.log.Info("repair: the counts stand; events go on after them", "sequence", counted)
	}
	return err
}
