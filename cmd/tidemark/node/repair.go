package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
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
		return n.replay()
	}
	return n.adopt()
}

func (p *Node) replay() (err error) {
	for _, step := range []func() error{p.lockData, p.openServer, p.awaitCluster} {
		if err := step(); err != nil {
			return err
		}
	}
	n := p.gen()
	set, err := p.anew(n)
	if err != nil {
		return err
	}
	if err := n.openStreams(); err != nil {
		return err
	}
	events := n.state.Load().Events
	if first := n.history.begins(events); first > 1 && events.Last > 0 {
		return fmt.Errorf("repair: EVENTS begins at sequence %d: the events before it are gone, and a replay would lose what they counted; 'tidemark restore' makes a data directory of a backup", first)
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
	// At one stroke each, so that no start ever sees half a database.
	for _, name := range []string{badgerDir, generationsDir} {
		old := n.dir.join(name + ".old")
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		if err := os.Rename(n.dir.join(name), old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("repair: %w", err)
		}
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	n.dir.marker.noted, n.dir.marker.Later, n.dir.marker.Generations = noted{Shards: n.config.Shards}, nil, nil
	if set.Epoch > 0 {
		n.dir.marker.noted, n.dir.marker.Generations, n.dir.marker.Format = noted{}, &set, generationsFormat
	}
	if err := n.dir.writeMarker(); err != nil {
		return err
	}
	if set.Epoch > 0 {
		if _, err := p.rebuilds.record.Restore(ctx, set); err != nil {
			return err
		}
	}
	n.log.Info("repair: the next start counts EVENTS again", "messages", events.Messages)
	return nil
}

// anew is the record once everything is counted again: where there was a rebuild, by a
// new generation. Both slots are cleared then; nobody may be there who uses them.
func (p *Node) anew(n *generation) (set generations.Set, err error) {
	ctx, cancel := n.startContext()
	defer cancel()
	known := p.dir.generations()
	record, err := p.openRecord(ctx)
	switch {
	case errors.Is(err, jetlog.ErrNoBucket):
	case err != nil:
		return set, err
	default:
		p.rebuilds.record = record
		if there, fault := record.Seen(); fault == nil && there.Epoch > known.Epoch {
			known = there
		}
	}
	if known.Epoch == 0 {
		return set, nil
	}
	if p.rebuilds.record == nil { // the bucket is gone: the streams bring it
		if _, err := jetlog.OpenStreams(ctx, p.nc, n.streamOptions()); err != nil && !errors.Is(err, jetlog.ErrGeneration) {
			return set, err
		}
		if p.rebuilds.record, err = p.openRecord(ctx); err != nil {
			return set, err
		}
	}
	for slot := range jetlog.Slot(jetlog.Slots) {
		if _, err := p.clearSlot(ctx, slot, known.Served().Newest); err != nil {
			return set, fmt.Errorf("repair: everything is counted again by all nodes, which must be stopped: %w", err)
		}
	}
	counting, err := p.config.Counting()
	if err != nil {
		return set, err
	}
	if set, err = known.Anew(counting); err != nil {
		return set, err
	}
	n.number = set.Serving
	return set, nil
}

// endBeside ends the generation beside the one that serves: it is of the EVENTS that
// was.
func (p *Node) endBeside() error {
	set := p.dir.generations()
	if set.Beside() == 0 {
		return nil
	}
	gone := set.Beside()
	set = set.Alone("EVENTS was recreated")
	if err := p.dir.noteGenerations(set); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, startWithin)
	defer cancel()
	if p.rebuilds.record != nil {
		if _, err := p.rebuilds.record.Restore(ctx, set); err != nil {
			return err
		}
	}
	return p.dir.drop(gone)
}

func (p *Node) adopt() error {
	for _, step := range []func() error{p.openData, p.openServer, p.awaitCluster, p.openGenerations, p.endBeside} {
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
	is := n.dir.counted(n.number)
	is.Mixed = true
	if err := n.dir.note(n.number, is); err != nil { // EVENTS does not tell any more what was counted
		return err
	}
	err = n.store.SetStreams(cold.Streams{Events: now.Events.Created, Deltas: known.Deltas})
	if err == nil {
		n.log.Info("repair: the counts stand; events go on after them", "sequence", counted)
	}
	return err
}
