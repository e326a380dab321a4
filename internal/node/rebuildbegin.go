package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// beginRebuild begins a rebuild, if nothing speaks against it.
func (n *Node) beginRebuild(ctx context.Context, ask *RebuildAsk) (*RebuildBegun, error) {
	n.rebuilds.leader.mine.Lock() // one at a time
	defer n.rebuilds.leader.mine.Unlock()
	serving := n.Serving()
	plan, next, err := n.planRebuild(ctx, ask)
	if err == nil {
		err = plan.Refuses(ask)
	}
	if err != nil {
		return nil, err
	}
	set, err := n.makeRoom(ctx, serving.Number)
	if err != nil {
		return nil, err
	}
	number, err := n.reserve(ctx, set, next)
	if err != nil {
		return nil, err
	}
	begun, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
		if now.Serving != serving.Number {
			return now, generations.ErrNotServing
		}
		return now.Past(number-1).Begin(next, ask.Accept)
	})
	if err != nil {
		n.unreserve(jetlog.Slot(1-set.All[set.Serving].Slot), number)
		return nil, err
	}
	n.log.Info("tidemark: a rebuild has begun", "generation", begun.Building, "slot", begun.All[begun.Building].Slot)
	// What is asked next is about it. It has begun, whether this node knows so or not.
	if err := n.untilKnown(ctx, func(s generations.Set) bool { return s.Newest >= begun.Building }); err != nil {
		n.log.Warn("tidemark: the record of the rebuild is not heard of yet", "error", err)
	}
	return &RebuildBegun{Building: begun.Building, Changes: plan.Changes}, nil
}

// makeRoom drops the generation that is kept, if there is one, also if the record changes
// at the same time. It returns what is known afterwards.
func (n *Node) makeRoom(ctx context.Context, serving generations.Number) (generations.Set, error) {
	next, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
		switch {
		case now.Building != 0:
			return now, generations.ErrUnderWay
		case now.Serving != serving:
			return now, generations.ErrNotServing
		}
		return now.Drop()
	})
	switch {
	case errors.Is(err, generations.ErrKept): // there is none
		return n.rebuilds.set(), nil
	case err != nil:
		return next, err
	}
	if n.untilKnown(ctx, func(s generations.Set) bool { return s.Epoch >= next.Epoch }) != nil {
		return next, errors.New("no rebuild was begun: the generation that was kept is dropped, and this node has not heard of it yet; ask again in a moment")
	}
	return n.rebuilds.set(), nil
}

// reserve makes the slot empty for the next generation, and has the server keep the room
// for its windows; it says which number is free. Without room nothing is begun.
func (n *Node) reserve(ctx context.Context, set generations.Set, counting json.RawMessage) (generations.Number, error) {
	o := n.Serving().StreamOptions()
	o.Slot = jetlog.Slot(1 - set.All[set.Serving].Slot)
	free, err := n.clearFree(ctx, o.Slot, set.Newest)
	if err != nil {
		return 0, err
	}
	o.Generation = jetlog.Owner{Number: free, CountsBy: generations.Generation{Counting: counting}.CountsBy()}
	if err := jetlog.Reserve(ctx, n.nc, o); errors.Is(err, jetlog.ErrNoRoom) {
		return 0, job.Bad("no rebuild was begun: %v", err)
	} else if err != nil {
		n.unreserve(o.Slot, free)
		return 0, err
	}
	return free, nil
}

// unreserve removes what was reserved for a number that no generation has after all. What
// stays is removed when the slot is tidied, or the next rebuild begins.
func (n *Node) unreserve(slot jetlog.Slot, number generations.Number) {
	n.rebuilds.leader.tidied.Store(untidy)
	ctx, cancel := context.WithTimeout(n.ctx, led.LookWithin)
	defer cancel()
	there, err := bucket.LoadGenerations(ctx, n.nc)
	if _, begun := there.All[number]; err != nil || begun {
		return
	}
	js, err := jetstream.New(n.nc)
	if err != nil {
		return
	}
	if is, err := jetlog.SlotOf(ctx, js, slot); err != nil || is.Number != number {
		return
	}
	if _, err := jetlog.Evict(ctx, n.nc, slot, jetlog.Owner{Number: number + 1}); err != nil {
		n.log.Warn("tidemark: what was reserved for a rebuild that did not begin is not removed yet", "stream", slot.Deltas(), "error", err)
	}
}

var errNotHeard = errors.New("it is done: the record of the generations is written; this node has not heard of it yet: 'tidemark rebuild --status' shows when it has")

// knownWithin bounds how long is waited until this node acts on a record: it may be amid
// a switch, or close a generation before.
const knownWithin = 30 * time.Second

// untilKnown waits until this node acts on a record like that.
func (n *Node) untilKnown(ctx context.Context, is func(generations.Set) bool) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	for !is(n.rebuilds.set()) {
		select {
		case <-ctx.Done():
			return errNotHeard
		case <-time.After(rebuildsEvery / 10):
		}
	}
	return nil
}

// tidyRestMax bounds the pause before a slot that could not be made empty is tried again.
// It begins with leadEvery, and is twice as long each time.
const tidyRestMax = 8 * time.Second

// tidySlot makes the slot empty that no generation has: what was aborted, or
// dropped, or reserved by a leader that was killed before its rebuild began, leaves
// nothing on the server.
func (n *Node) tidySlot(ctx context.Context, set generations.Set) {
	l := &n.rebuilds.leader
	if !l.mine.TryLock() { // a rebuild begins, and does it
		return
	}
	defer l.mine.Unlock()
	if l.tidied.Load() == set.Epoch || n.rebuilds.set().Epoch != set.Epoch || time.Now().Before(l.rested) {
		return
	}
	if err := n.emptySlot(ctx, jetlog.Slot(1-set.All[set.Serving].Slot), set.Newest); err != nil {
		l.rest = min(max(2*l.rest, leadEvery), tidyRestMax)
		l.rested = time.Now().Add(l.rest)
		if n.ctx.Err() == nil && l.leaves(err.Error()) {
			n.log.Warn("tidemark: what a generation has left on the server is not removed yet; trying again", "error", err)
		}
		return
	}
	l.tidied.Store(set.Epoch)
	l.rest = 0
	l.leaves("")
}

// emptySlot removes what tidySlot finds. Of a later generation than all that the record
// remembers nothing but a reservation without windows is removed: the record may be lost,
// and what it named is left to the nodes that know of it. A leader that was only
// suspended, and begins after that, makes the stream when it opens the generation.
func (n *Node) emptySlot(ctx context.Context, slot jetlog.Slot, newest generations.Number) error {
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	looking, cancel := context.WithTimeout(ctx, led.LookWithin)
	defer cancel()
	is, err := jetlog.SlotOf(looking, js, slot)
	if err != nil {
		return err
	}
	if is.Number <= newest {
		_, err := n.clearFree(ctx, slot, newest)
		return err
	}
	removed, err := jetlog.Unreserve(looking, js, slot, is)
	if removed {
		n.log.Info("tidemark: what was reserved for a rebuild that did not begin is removed", "stream", slot.Deltas())
	}
	return err
}

// leaves notes why something is left on the server, and says whether to log it.
func (l *leader) leaves(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = why
	return l.saying.Due(why)
}

// clearWithin bounds how long a rebuild waits for nodes that still have an earlier
// generation open in the slot: one that was killed is away after bucket.MemberExpiry.
const clearWithin = 4 * bucket.MemberExpiry

// clearFree is clearSlot unless the record as it stands gives the slot to a generation:
// another node may have put back a record that this one does not know.
func (n *Node) clearFree(ctx context.Context, slot jetlog.Slot, newest generations.Number) (generations.Number, error) {
	there, err := bucket.LoadGenerations(ctx, n.nc)
	if err != nil && !errors.Is(err, generations.ErrMalformed) {
		return 0, err
	}
	for number, g := range there.All {
		if jetlog.Slot(g.Slot) == slot {
			return 0, fmt.Errorf("generation %d has its place by the record: ask again in a moment", number)
		}
	}
	return n.clearSlot(ctx, slot, newest)
}

// clearSlot makes a slot empty, once no node uses it, and returns which number a
// generation may have that begins there. newest is the highest number of a generation that
// is remembered. What is found in the slot may be of a later one that nobody remembers.
func (n *Node) clearSlot(ctx context.Context, slot jetlog.Slot, newest generations.Number) (free generations.Number, err error) {
	ctx, cancel := context.WithTimeout(ctx, clearWithin)
	defer cancel()
	js, err := jetstream.New(n.nc)
	if err == nil {
		err = n.untilLeft(ctx, js, slot)
	}
	if err != nil {
		return 0, err
	}
	is, err := jetlog.SlotOf(ctx, js, slot)
	if err != nil {
		return 0, err
	}
	// Another leader may have begun one in between.
	there, err := bucket.LoadGenerations(ctx, n.nc)
	switch {
	case err != nil && !errors.Is(err, generations.ErrMalformed):
		return 0, err
	case err == nil && there.Newest > newest:
		return 0, fmt.Errorf("generation %d has begun meanwhile", there.Newest)
	}
	if is.Number > newest {
		n.log.Warn("tidemark: what a generation has left on the server is removed; no node and no record knows of it", "stream", slot.Deltas(), "generation", is.Number)
	}
	free = max(newest, is.Number) + 1
	return free, bucket.Clear(ctx, js, slot, free)
}

// untilLeft waits until nobody has the generation open that is, or was, in a slot.
func (n *Node) untilLeft(ctx context.Context, js jetstream.JetStream, slot jetlog.Slot) error {
	members, err := bucket.AttachMembers(ctx, n.nc, slot, bucket.MembersOptions{Beat: bucket.MemberBeat, Expiry: bucket.MemberExpiry, Logger: n.log})
	if err != nil {
		return err
	}
	defer members.Close()
	silent := silence{}
	for {
		_, err := jetlog.SlotOf(ctx, js, slot)
		there := silent.there(members.View().Members, time.Now(), err == nil)
		if len(there) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nodes have the generation before still open: %s; ask again in a moment", strings.Join(there, ", "))
		case <-members.Changed():
		case <-time.After(rebuildsEvery):
		}
	}
}

// silence is since when members have said nothing. Where all of them were killed, a view
// does not tell: its clock goes on only while somebody says something.
type silence map[string]said

type said struct {
	what  *cluster.Member // another one with each beat
	since time.Time
}

// there are the members that have not stopped, or said something not long ago. A node
// that cannot ask the server now has heard nothing, which is no silence.
func (s silence) there(members []cluster.State, now time.Time, asked bool) (nodes []string) {
	for _, m := range members {
		if m.Status == cluster.Away || m.Stopped {
			continue
		}
		was := s[m.Node]
		if was.what != m.Member || !asked {
			was = said{m.Member, now}
			s[m.Node] = was
		}
		if now.Sub(was.since) < bucket.MemberExpiry+2*bucket.MemberBeat {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}
