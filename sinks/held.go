package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// held is what a node holds at one moment. It never changes: Hold, Release, and
// a shard that has caught up, store another one. A reader loads it once and works
// on it throughout.
//
//	Hold ─► behind ─ windows ─► answers ─► Release
//
// What is behind the node's progress does not answer: an answer reflects all up
// to there (I6), and a shard that was just taken up does not.
type held struct {
	units    []unit         // the shards, and the commons last
	shards   []*tier.Shard  // by number, ascending
	answers  []*tier.Shard  // by number: those that answer; nil: another node must be asked
	whole    bool           // all shards that there are answer
	timeline *tier.Timeline // of those that answer
}

// newHeld holds shards, which ascend; answers is by number.
func newHeld(shards, answers []*tier.Shard, others ...unit) *held {
	h := &held{shards: shards, answers: answers, whole: !slices.Contains(answers, nil), timeline: tier.NewTimeline(answers)}
	for _, s := range shards {
		h.units = append(h.units, s)
	}
	h.units = append(h.units, others...)
	return h
}

// others are the units that are no shards.
func (h *held) others() []unit { return h.units[len(h.shards):] }

// at is where a shard is, or would be, among those held.
func (h *held) at(number pipeline.Shard) (at int, held bool) {
	return slices.BinarySearchFunc(h.shards, number, func(s *tier.Shard, number pipeline.Shard) int { return int(s.Number) - int(number) })
}

// with holds one more, which does not answer yet.
func (h *held) with(s *tier.Shard) *held {
	at, _ := h.at(s.Number)
	return newHeld(slices.Insert(slices.Clone(h.shards), at, s), h.answers, h.others()...)
}

// without holds one less.
func (h *held) without(s *tier.Shard) *held {
	at, _ := h.at(s.Number)
	answers := slices.Clone(h.answers)
	answers[s.Number] = nil
	return newHeld(slices.Delete(slices.Clone(h.shards), at, at+1), answers, h.others()...)
}

// answering has shards answer from now on.
func (h *held) answering(some []*tier.Shard) *held {
	answers := slices.Clone(h.answers)
	for _, s := range some {
		answers[s.Number] = s
	}
	return newHeld(h.shards, answers, h.others()...)
}

// of is the shard of an id; query.ErrElsewhere if it does not answer here.
func (h *held) of(id uint64) (*tier.Shard, error) {
	if s := h.answers[pipeline.ShardOf(id, len(h.answers))]; s != nil {
		return s, nil
	}
	return nil, query.ErrElsewhere
}

// hold stores what another one becomes.
func (n *Node) hold(change func(*held) *held) {
	n.holding.Lock()
	defer n.holding.Unlock()
	n.held.Store(change(n.held.Load()))
}

// load opens what the options say is held. A shard whose state cannot be read has
// failed; the others serve.
func (n *Node) load() error {
	numbers := n.o.Held
	if numbers == nil {
		for i := range n.o.Shards {
			numbers = append(numbers, pipeline.Shard(i))
		}
	}
	numbers = slices.Sorted(slices.Values(numbers))
	if len(slices.Compact(slices.Clone(numbers))) < len(numbers) {
		return fmt.Errorf("sinks: the shards to hold, %v: one comes twice", numbers)
	}
	n.loadCommons()
	var shards []*tier.Shard
	answers := make([]*tier.Shard, n.o.Shards)
	for _, number := range numbers {
		s, err := n.open(number, n.o.SequenceMax)
		if s == nil {
			return fmt.Errorf("sinks: %w", err)
		}
		if err != nil {
			s.Fail(err)
		}
		shards, answers[number] = append(shards, s), s
	}
	var others []unit
	if n.o.Beside {
		if err := n.recall(shards); err != nil {
			return fmt.Errorf("sinks: log time of a node beside another: %w", err)
		}
	} else {
		others = append(others, n.commons)
	}
	n.held.Store(newHeld(shards, answers, others...))
	var faults []error
	for _, u := range n.units() {
		if err := u.Err(); err != nil {
			n.o.Logger.Error("sinks: not loaded", "what", u.Name(), "error", err)
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 && len(faults) == len(n.units()) {
		return faults[0]
	}
	return nil
}

// loadCommons reads what every node holds: log time first, which shards ask for.
func (n *Node) loadCommons() {
	number := pipeline.Shard(n.o.Shards)
	var state shard.State
	var err error
	if !n.o.Beside {
		state, err = n.storedState(number, n.o.SequenceMax)
	}
	n.commons = tier.NewCommons(shard.NewCommons(number, n.clock, state, n.o.Notices, n.o.Dots, n.o.Channels), n.store, number)
	if err == nil && !n.o.Beside {
		err = n.commons.Load()
	}
	if err != nil {
		n.commons.Fail(err)
	}
}

// recall has a node beside another know the time of the log up to where the
// lowest of its shards stands, as the store's commons have it: ages are measured
// from there on. From there on windows tell.
func (n *Node) recall(shards []*tier.Shard) error {
	lowest := pipeline.PositionMax
	for _, s := range shards {
		if s.Err() == nil {
			lowest = min(lowest, s.State().Applied)
		}
	}
	if lowest == 0 || lowest == pipeline.PositionMax {
		return nil
	}
	n.timed = lowest
	view := n.store.Stack(pipeline.Shard(n.o.Shards)).View()
	defer view.Close()
	return view.Seconds(func(second int64, at pipeline.Position) {
		if at <= lowest {
			n.clock.Note([]pipeline.TimeMark{{Second: second, Position: at}})
		}
	})
}

// open makes a shard as the store has it; with an error it may be damaged, or
// nil: there is no such shard, or it may not be held.
func (n *Node) open(number pipeline.Shard, sequenceMax uint64) (*tier.Shard, error) {
	if int(number) >= n.o.Shards {
		return nil, fmt.Errorf("there is no shard %d: the shards are 0 to %d", number, n.o.Shards-1)
	}
	state, err := n.storedState(number, sequenceMax)
	s := tier.New(shard.New(number, n.schema, n.o.Users, n.clock, state), n.store)
	s.Turn, s.Disk = n.o.Turn, n.o.Disk
	s.Joins = n.o.Joins
	return s, err
}

func (n *Node) storedState(number pipeline.Shard, sequenceMax uint64) (shard.State, error) {
	state, err := n.store.Stack(number).State()
	state.Sequence = min(state.Sequence, sequenceMax)
	return state, err
}

// units are the shards held, and the commons.
func (n *Node) units() []unit { return n.held.Load().units }

// Hold takes up shards as the store has them: empty, or what was checkpointed or
// imported before. They are loaded in the background, as at a start, and answer
// once they have come as far as the node. One whose state cannot be read has
// failed, as at a start: the others must not wait for it.
//
// It is for the caller of Hand, between two runs of the follower: Sequence and
// Positions say then where the lowest of them stands, and Follower.Join brings
// them to where the others are. It waits until what was handed over is applied.
// After an error, of ctx too, those before the shard that it names are held.
//
// Those that are far behind the others are to be brought on by a node beside this
// one first (NewNode): the others stand still until these have come as far. Log
// time reaches back a day further than the longest age from where all are
// checkpointed; of a shard that is older still, but not empty, a post that was
// published twice, further apart than the retention, may be listed at the other
// place.
func (n *Node) Hold(ctx context.Context, shards ...pipeline.Shard) error {
	for i, number := range shards {
		if _, is := n.held.Load().at(number); is || slices.Contains(shards[:i], number) {
			return fmt.Errorf("sinks: hold shard %d: it is held already", number)
		}
	}
	var opened []*tier.Shard
	for _, number := range shards {
		// The log has the windows that this node was handed, besides those that
		// it had at the start.
		s, err := n.open(number, max(n.o.SequenceMax, n.sequence))
		if s == nil {
			return fmt.Errorf("sinks: hold shard %d: %w", number, err)
		}
		if err != nil {
			n.o.Logger.Error("sinks: not loaded", "what", s.Name(), "error", err)
			s.Fail(err)
		}
		opened = append(opened, s)
	}
	if err := n.Settle(ctx); err != nil {
		return fmt.Errorf("sinks: hold shards %v: windows are still to be applied: %w", shards, err)
	}
	for i, s := range opened {
		if err := n.take(ctx, s); err != nil {
			n.wait.Go(func() { n.warm(opened[:i]) })
			return fmt.Errorf("sinks: hold shard %d: %w", s.Number, err)
		}
		if s.Err() == nil {
			n.sequence = min(n.sequence, s.State().Sequence)
		}
	}
	n.wait.Go(func() { n.warm(opened) })
	return nil
}

// take gives a shard to the owner with the fewest.
func (n *Node) take(ctx context.Context, s *tier.Shard) error {
	o := slices.MinFunc(n.owners, func(a, b *owner) int { return cmp.Compare(len(a.units), len(b.units)) })
	n.hold(func(h *held) *held { return h.with(s) })
	err := o.do(ctx, func() { o.take(s) })
	if err != nil {
		n.hold(func(h *held) *held { return h.without(s) })
	}
	return err
}

// Release gives up shards, and forgets them. What was not checkpointed is lost
// here; the store keeps what was until it is dropped there (cold.Store.Drop).
// What a reader had begun to read is answered as it was, or missing.
//
// It is for the caller of Hand, as Hold is, and waits until what was handed over
// is applied and a commit of the shard under way is done. After an error those
// before the shard that it names are given up.
func (n *Node) Release(ctx context.Context, shards ...pipeline.Shard) error {
	for i, number := range shards {
		if _, is := n.held.Load().at(number); !is || slices.Contains(shards[:i], number) {
			return fmt.Errorf("sinks: release shard %d: it is not held", number)
		}
	}
	if err := n.Settle(ctx); err != nil {
		return fmt.Errorf("sinks: release shards %v: windows are still to be applied: %w", shards, err)
	}
	for _, number := range shards {
		h := n.held.Load()
		at, _ := h.at(number)
		s := h.shards[at]
		o := n.owners[slices.IndexFunc(n.owners, func(o *owner) bool { return slices.Contains(o.units, unit(s)) })]
		if err := o.do(ctx, func() { o.release(s) }); err != nil {
			return fmt.Errorf("sinks: release shard %d: %w", number, err)
		}
		n.released.add(s.Stats())
		n.hold(func(h *held) *held { return h.without(s) })
		// Its disk may be another shard's soon: a reader that has it still must
		// not find nothing there.
		s.Fail(fmt.Errorf("%w: shard %d was given up", query.ErrElsewhere, number))
		n.advance() // not before: a reader of it still answers as of where it stood
	}
	return nil
}

// do has the owner's goroutine run a task, and returns when it is done; ctx's
// error if that does not come to it before ctx ends.
func (o *owner) do(ctx context.Context, task func()) error {
	if o.node.stopping.Load() {
		return errors.New("the node is closed")
	}
	done := make(chan struct{})
	select {
	case o.tasks <- func() { task(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Correct has notices be where they should be, between two windows; see [shard.Commons.Correct].
func (n *Node) Correct(ctx context.Context, list []shard.Correction) (made int, err error) {
	err = n.owners[0].do(ctx, func() { made = n.commons.Correct(list) })
	return made, err
}

// take takes up a shard, which answers at once if it has come far enough.
func (o *owner) take(s *tier.Shard) {
	o.units, o.behind, o.order = append(o.units, s), append(o.behind, s), append(o.order, s)
	if o.watching {
		s.Watch()
	}
	o.noteDurable()
	o.admit()
}

// release gives up a shard, after its commit under way.
func (o *owner) release(s *tier.Shard) {
	is := func(u unit) bool { return u == unit(s) }
	o.left = slices.DeleteFunc(o.left, is)
	for slices.ContainsFunc(o.flying, func(c *commit) bool { return slices.ContainsFunc(c.units, is) }) {
		o.settle(<-o.committed)
	}
	o.units, o.order = slices.DeleteFunc(o.units, is), slices.DeleteFunc(o.order, is)
	o.behind = slices.DeleteFunc(o.behind, func(other *tier.Shard) bool { return other == s })
	o.observe()
	o.noteDurable()
}

func (o *owner) isBehind(u unit) bool {
	return slices.ContainsFunc(o.behind, func(s *tier.Shard) bool { return u == unit(s) })
}

// admit has those shards answer that have come as far as the node. Its progress stands
// still until then, and from then on does not go past them.
func (o *owner) admit() {
	if len(o.behind) == 0 {
		return
	}
	var come []*tier.Shard
	o.node.progress.move(func(at pipeline.Position) pipeline.Position {
		o.behind = slices.DeleteFunc(o.behind, func(s *tier.Shard) bool {
			has := s.Err() == nil && s.State().Applied >= at
			if has {
				come = append(come, s)
			}
			return has
		})
		if len(come) > 0 {
			o.observe()
		}
		return at
	})
	if len(come) > 0 {
		o.node.hold(func(h *held) *held { return h.answering(come) })
	}
}
