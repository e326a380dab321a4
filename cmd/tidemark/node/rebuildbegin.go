package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// beginRebuild begins a rebuild, if nothing speaks against it.
func (n *Node) beginRebuild(ctx context.Context, ask *RebuildAsk) (*RebuildBegun, error) {
	n.rebuilds.leader.mine.Lock() // one at a time
	defer n.rebuilds.leader.mine.Unlock()
	set := n.rebuilds.set()
	serving := n.gen()
	now, err := serving.config.Counting()
	if err != nil {
		return nil, err
	}
	next := ask.Counting
	if len(next) == 0 || string(next) == "null" {
		next = now
	}
	if set.Building != 0 {
		return nil, generations.ErrUnderWay
	}
	by, err := n.config.CountingBy(next)
	if err != nil {
		return nil, err
	}
	changes, err := config.Changes(serving.config, by)
	if err != nil {
		return nil, err
	}
	if err := n.lacks(ctx); err != nil {
		return nil, err
	}
	if err := n.prepare(ctx, set, next); err != nil {
		return nil, err
	}
	if set.Kept != 0 { // what was kept makes room
		if err := n.step(ctx, set, generations.Set.Drop); err != nil {
			return nil, err
		}
		if err := n.untilKnown(ctx, func(s generations.Set) bool { return s.Kept == 0 }); err != nil {
			return nil, err
		}
	}
	set = n.rebuilds.set()
	if err := n.clearSlot(ctx, jetlog.Slot(1-set.All[set.Serving].Slot), set.Newest+1); err != nil {
		return nil, err
	}
	begun, err := n.changeRecord(ctx, func(now generations.Set) (generations.Set, error) {
		if now.Served().Serving != serving.number {
			return now, errNotServing
		}
		counting, err := serving.config.Counting()
		if err != nil {
			return now, err
		}
		return now.Begin(counting, next, ask.Accept)
	})
	if err != nil {
		return nil, err
	}
	n.log.Info("tidemark: a rebuild has begun", "generation", begun.Building, "slot", begun.All[begun.Building].Slot)
	// What is asked next is about it. It has begun, whether this node knows so or not.
	if err := n.untilKnown(ctx, func(s generations.Set) bool { return s.Newest >= begun.Building }); err != nil {
		n.log.Warn("tidemark: the record of the rebuild is not heard of yet", "error", err)
	}
	return &RebuildBegun{Building: begun.Building, Changes: changes}, nil
}

// untilKnown waits until this node acts on a record like that.
func (n *Node) untilKnown(ctx context.Context, is func(generations.Set) bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for !is(n.rebuilds.set()) {
		select {
		case <-ctx.Done():
			return errors.New("the record of the generations is written, and this node does not hear of it; ask again")
		case <-time.After(rebuildsEvery / 10):
		}
	}
	return nil
}

// tidySlot makes the slot empty that no generation has any more: what was aborted, or
// dropped, leaves nothing on the server.
func (n *Node) tidySlot(ctx context.Context, set generations.Set) {
	l := &n.rebuilds.leader
	if set.Epoch == 0 || l.tidied == set.Epoch || !l.mine.TryLock() { // a rebuild begins, and does it
		return
	}
	defer l.mine.Unlock()
	if n.rebuilds.set().Epoch != set.Epoch {
		return
	}
	if err := n.clearSlot(ctx, jetlog.Slot(1-set.All[set.Serving].Slot), set.Newest+1); err != nil {
		if n.ctx.Err() == nil && l.tidying.tell(err.Error()) {
			n.log.Warn("tidemark: what a generation has left on the server is not removed yet; trying again", "error", err)
		}
		return
	}
	l.tidied = set.Epoch
}

// clearWithin bounds how long a rebuild waits for those who still have an earlier
// generation open in the slot: one that was killed is away after memberExpiry.
const clearWithin = 4 * memberExpiry

// clearSlot makes a slot empty for a generation that is about to begin, once nobody
// uses it any more.
func (n *Node) clearSlot(ctx context.Context, slot jetlog.Slot, next generations.Number) error {
	ctx, cancel := context.WithTimeout(ctx, clearWithin)
	defer cancel()
	members, err := jetlog.AttachMembers(ctx, n.nc, slot, jetlog.MembersOptions{Beat: memberBeat, Expiry: memberExpiry, Logger: n.log})
	if err != nil {
		return err
	}
	defer members.Close()
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	silent := silence{}
	for {
		_, err := jetlog.SlotOf(ctx, js, slot)
		there := silent.there(members.View().Members, time.Now(), err == nil)
		if len(there) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nodes have the generation before still open: %s; ask again in a moment", strings.Join(there, ", "))
		case <-members.Changed():
		case <-time.After(rebuildsEvery):
		}
	}
	return jetlog.Clear(ctx, js, slot, next)
}

// silence is since when members have said nothing. Where all of them were killed, a view
// does not tell: its clock goes on only while somebody says something.
type silence map[string]said

type said struct {
	what  *cluster.Member // another one with each beat
	since time.Time
}

// there are the members that have not stopped, or said something not long ago. Who cannot
// ask the server now has not heard a silence.
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
		if now.Sub(was.since) < memberExpiry+2*memberBeat {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}
