package cold

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Import takes a shard over from another store.
//
//	Copy: each run into a file of its own ─► sum compared ─► sync ─► every block checked
//	Commit: state and list of runs, one transaction (I4)
//
// Runs that are here already are not copied again: those that this import has copied,
// and those of the shard as it stands, so that Copy may be called again, also with newer
// exports. A run is the same when its bytes are: it is known by its [Sum]. A shard's runs
// come from one export; of another replica's, whose runs are others, as good as none is
// used.
//
// A kill leaves the shard as it was, or as imported, and files that nothing
// lists, which the next start removes. An Import belongs to one goroutine;
// Close must follow.
type Import struct {
	// Progress is called while Copy goes on: how many bytes are here, of how
	// many. nil: it is not.
	Progress func(bytes, of int64)

	stack *Stack
	stood State    // of the shard when the import began, or was last committed
	have  []*layer // copied and not listed; held
	whole *whole   // what Commit commits; nil: nothing yet
}

// whole is a shard of which all runs are here.
type whole struct {
	state  State
	layers *layers
}

// Import begins to import a shard, or the commons, which nothing else may use
// until it is over: no checkpoint, and what reads it reads what it was.
// [ErrInUse] where it is imported already. Until Close its runs are not merged.
// A shard that is refused because its runs are damaged can be imported.
func (s *Store) Import(number pipeline.Shard) (*Import, error) {
	switch {
	case s.closed.Load():
		return nil, ErrClosed
	case int(number) >= len(s.stacks):
		return nil, fmt.Errorf("cold: there is no shard %d of %d", number, s.meta.Shards)
	}
	k := s.stacks[number]
	k.mu.Lock()
	defer k.mu.Unlock()
	var damage Damage
	switch {
	case k.importing:
		return nil, fmt.Errorf("%w: shard %d is being imported", ErrInUse, number)
	case len(k.pending) > 0:
		return nil, fmt.Errorf("%w: shard %d has a checkpoint that is not published", ErrInUse, number)
	case errors.As(k.err, &damage): // of the keys' own files
		return nil, k.err
	}
	k.importing = true
	return &Import{stack: k, stood: k.state}, nil
}

// Close ends the import, and lets go what was copied and not committed.
func (i *Import) Close() {
	i.drop()
	releaseAll(i.have)
	i.have = nil
	k := i.stack
	k.mu.Lock()
	k.importing = false
	k.mu.Unlock()
	k.store.files.sweep()
	k.store.wakeMerger()
}

// drop lets go what Commit would have committed.
func (i *Import) drop() {
	if i.whole != nil {
		i.whole.layers.release()
		i.whole = nil
	}
}

// Copy copies what is not here yet. After an error it may be called again, with
// the same export or another, and goes on with the run that was not whole. The error wraps
// [ErrDictionary] or [ErrForeign] where the shard cannot be imported here, [ErrDiskFull],
// or [ErrCorrupt]: what came is not what was exported, or was damaged there.
func (i *Import) Copy(ctx context.Context, from Source) error {
	i.drop()
	s, m := i.stack.store, from.Manifest()
	if err := s.accepts(m, i.stack.number); err != nil {
		return err
	}
	state := m.State
	if !m.Streams.Deltas.Equal(s.Meta().Streams.Deltas) {
		state.Sequence = 0 // of another DELTAS
	}
	c := copying{Import: i, from: from, m: m, runs: make([]*layer, len(m.Runs))}
	defer c.end()
	if err := c.find(ctx); err != nil {
		return err
	}
	if err := s.engine.Room(m.Bytes() - c.bytes + mergeReserve); err != nil {
		return fmt.Errorf("cold: import shard %d: %w", i.stack.number, err)
	}
	for n := range slices.Backward(m.Runs) { // the oldest first: merges leave them alone longest
		var err error
		if c.runs[n] == nil {
			err = c.fetch(ctx, n)
		}
		if err != nil {
			return fmt.Errorf("cold: import shard %d: run %d of %d: %w", i.stack.number, n+1, len(m.Runs), err)
		}
	}
	c.tell(0)
	i.whole = &whole{state, newLayers(c.runs)}
	return nil
}

// Commit makes the shard what the last Copy copied. After an error it is as it
// was, and Commit may be called again; [ErrInUse]: it was checkpointed since.
func (i *Import) Commit() error {
	k, w := i.stack, i.whole
	if w == nil {
		return fmt.Errorf("cold: import shard %d: there is nothing whole to commit", k.number)
	}
	defer k.store.files.sweep()
	k.edit.Lock()
	defer k.edit.Unlock()
	k.mu.Lock()
	used := k.state != i.stood || len(k.pending) > 0
	k.mu.Unlock()
	if used {
		return fmt.Errorf("%w: shard %d was checkpointed while it was imported", ErrInUse, k.number)
	}
	maybe, err := k.store.commit([]Write{k.write(w.state, w.layers.all)})
	if err != nil {
		if maybe {
			for _, l := range w.layers.all {
				k.doubt(l)
			}
		}
		return fmt.Errorf("cold: import shard %d: %w", k.number, err)
	}
	k.certain()
	k.mu.Lock()
	old := k.visible
	k.visible, k.state, k.err = w.layers, w.state, nil
	k.mu.Unlock()
	k.horizon.Store(0) // what is too old is found again by its next holder
	old.release()
	i.whole, i.stood = nil, w.state
	releaseAll(i.have)
	i.have = nil
	return nil
}

// Drop lets a shard go, or the commons, also one that is refused: its state and
// its runs are as if they had never been here. Nothing may use the shard;
// [ErrInUse] is as with [Store.Import]. A view made before still reads what it
// saw.
func (s *Store) Drop(number pipeline.Shard) error {
	i, err := s.Import(number)
	if err != nil {
		return err
	}
	defer i.Close()
	i.whole = &whole{layers: newLayers()}
	if err := i.Commit(); err != nil {
		return fmt.Errorf("cold: drop shard %d: %w", number, err)
	}
	return nil
}
