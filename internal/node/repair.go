package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/led"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// RepairOptions say what to repair; exactly one of Replay, Adopt and Record.
type RepairOptions struct {
	// Replay throws away what is counted and the windows, so that the next
	// start counts EVENTS again from its first event, by today's rules and
	// number of shards.
	Replay bool
	// Adopt keeps what is counted and goes on with the EVENTS that is there,
	// recreated or not, after everything counted.
	Adopt bool
	// Record has what is counted here serve, whatever the bucket says of the
	// generations; where nothing is, the configuration's.
	Record bool
	Demo   bool
	Logger *slog.Logger
}

// Repair mends a stopped node's data directory.
func Repair(c *config.Config, o RepairOptions) error {
	n := newNode(c, Options{Demo: o.Demo, Logger: o.Logger})
	defer n.undo()
	switch {
	case o.Replay:
		return n.replay()
	case o.Adopt:
		return n.adopt()
	case o.Record:
		return n.insist()
	}
	return errors.New("repair: choose one of replay, adopt and record")
}

// insist puts the record of this directory in the place of the bucket's, as one that is newer,
// and removes the windows of all generations that it does not name.
func (n *Node) insist() error {
	for _, step := range []func() error{n.openData, n.openServer, n.awaitCluster, n.openBucket} {
		if err := step(); err != nil {
			return err
		}
	}
	ctx, cancel := led.Context(n.ctx, n.inCluster())
	defer cancel()
	own := n.dir.Generations()
	if own.Epoch == 0 {
		first, err := n.firstRecord()
		if err != nil {
			return err
		}
		own = first
	}
	if there, fault := n.rebuilds.record.Seen(); fault == nil {
		own.Epoch = max(own.Epoch, there.Epoch+1)
	}
	if err := n.dir.NoteGenerations(own); err != nil {
		return err
	}
	if _, err := n.rebuilds.record.Restore(ctx, own); err != nil {
		return err
	}
	if err := n.clearOthers(ctx, own); err != nil {
		return err
	}
	n.log.Info("repair: the record of the generations is as this directory has it", "epoch", own.Epoch, "serving", own.Serving)
	return nil
}

// clearOthers makes the slots empty that have windows of generations which a record does
// not name.
func (n *Node) clearOthers(ctx context.Context, set generations.Set) error {
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	for slot := range jetlog.Slot(jetlog.Slots) {
		is, err := jetlog.SlotOf(ctx, js, slot)
		if err != nil {
			return err
		}
		g, named := set.All[is.Number]
		if is == (jetlog.Owner{}) || named && jetlog.Slot(g.Slot) == slot && is == set.Owner(is.Number) {
			continue
		}
		if _, err := n.clearSlot(ctx, slot, set.Newest); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	return nil
}

func (n *Node) replay() (err error) {
	for _, step := range []func() error{n.lockDataToReplay, n.openServer, n.awaitCluster, n.openBucket} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := n.replayable(); err != nil {
		return err
	}
	set, err := n.anew()
	if err != nil {
		return err
	}
	g, err := n.newGenerationOf(n.ctx, set, set.Serving)
	if err != nil {
		return err
	}
	n.serving.Store(g)
	messages, err := g.DropLetters()
	if err != nil {
		return err
	}
	// At one stroke each, so that no start ever sees half a database. The first two are an
	// earlier build's.
	for _, name := range []string{datadir.BadgerDir, datadir.FiltersDir, datadir.GenerationsDir} {
		old := n.dir.Join(name + ".old")
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		if err := kit.Move(n.dir.Join(name), old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("repair: %w", err)
		}
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	n.dir.Marker.Counts, n.dir.Marker.Generations = nil, &set
	if err := n.dir.WriteMarker(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, led.StartWithin)
	defer cancel()
	if _, err := n.rebuilds.record.Restore(ctx, set); err != nil {
		return err
	}
	n.log.Info("repair: the next start counts EVENTS again", "messages", messages)
	return nil
}

// replayable is an error if EVENTS, with its archive, does not begin with the first event, or
// lacks one after it: it is read to its end before anything is thrown away.
func (n *Node) replayable() error {
	ctx, cancel := led.Context(n.ctx, n.inCluster())
	defer cancel()
	streams, err := jetlog.AttachEvents(ctx, n.nc, 0, n.log)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	events, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil {
		return err
	}
	all := history.New(streams, n.config.NATS.Streams.Events.Archive, false, n.log)
	if first := all.Begins(events); first > 1 && events.Last > 0 {
		return fmt.Errorf("repair: EVENTS begins at sequence %d: the events before it are gone, and a replay would lose what they counted; 'tidemark restore' makes a data directory of a backup", first)
	}
	whole := history.Whole{Events: jetlog.NewEvents(streams, jetlog.RunOptions{Logger: n.log}), History: all}
	if err := whole.ReadThrough(n.ctx, events.Last); err != nil {
		return fmt.Errorf("repair: nothing was changed, for a replay would lose what is missing: %w", err)
	}
	return nil
}

// anew is the record once everything is counted again, by a new generation. Both slots
// are cleared; all nodes must be stopped.
func (n *Node) anew() (set generations.Set, err error) {
	known := n.dir.Generations()
	if there, fault := n.rebuilds.record.Seen(); fault == nil {
		known = generations.Newest(known, there)
	}
	counting, err := n.config.Counting()
	if err != nil {
		return set, err
	}
	if known.Epoch == 0 {
		return generations.Start(counting)
	}
	for slot := range jetlog.Slot(jetlog.Slots) {
		if _, err := n.clearSlot(n.ctx, slot, known.Newest); err != nil {
			return set, fmt.Errorf("repair: everything is counted again by all nodes, which must be stopped: %w", err)
		}
	}
	return known.Anew(counting)
}

// endBeside ends the generation beside the one that serves: it is of the EVENTS that
// was.
func (n *Node) endBeside() error {
	set := n.dir.Generations()
	if set.Beside() == 0 {
		return nil
	}
	gone := set.Beside()
	set = set.Alone("EVENTS was recreated")
	if err := n.dir.NoteGenerations(set); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, led.StartWithin)
	defer cancel()
	if n.rebuilds.record != nil {
		if _, err := n.rebuilds.record.Restore(ctx, set); err != nil {
			return err
		}
	}
	return n.dir.Drop(gone)
}

func (n *Node) adopt() error {
	for _, step := range []func() error{n.openData, n.openServer, n.awaitCluster, n.openGenerations, n.endBeside} {
		if err := step(); err != nil {
			return err
		}
	}
	counted, err := n.Serving().Adopt()
	if err == nil {
		n.log.Info("repair: the counts stand; events go on after them", "sequence", counted)
	}
	return err
}
