package tier

import (
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Lists gives to visit the newest items of lists, at most so many of each, the newest first,
// all as of one moment, until it returns false. If the disk may not be asked and must be, it
// is ErrCold.
func (t *Shard) Lists(asked []shard.Asked, most int, d *Disk, visit func(i int, l *shard.Listing) (more bool)) error {
	defer d.unpin()
	lists, err := t.Shard.Lists(asked, most, d.pin(t))
	if err != nil {
		return err
	}
	for i, l := range lists {
		if l.Cold || !l.Whole() {
			if err := d.use(1, func() error { return t.unreadable(listFrom(d.views[0], &asked[i], l)) }); err != nil {
				return err
			}
		}
		if l.End(); !visit(i, l) {
			return nil
		}
	}
	return nil
}

// listFrom adds what the disk has to a list.
func listFrom(view *cold.View, of *shard.Asked, l *shard.Listing) error {
	if l.Cold {
		if err := view.Cursors(of.ID, l.Cursor); err != nil {
			return err
		}
	}
	if l.Whole() {
		return nil
	}
	return view.Items(of.Column, of.ID, l.Add)
}

// itemFacts gives the items of lists as those of sets are given: each as a member, and of the
// first user those behind ask.After.
func (t *Shard) itemFacts(ask *FactsAsk, d *Disk, yield func(Fact)) (more bool, state shard.State, err error) {
	after, left := ask.After.A, ask.Limit
	asked := make([]shard.Asked, len(ask.IDs))
	for i, id := range ask.IDs {
		asked[i] = shard.Asked{Column: ask.Column, ID: id}
	}
	err = t.Lists(asked, math.MaxInt, d, func(i int, l *shard.Listing) bool {
		state = l.State
		for j := range l.Items {
			item := &l.Items[j]
			member := pipeline.Member{A: run.Newest(uint64(item.Position))}
			if member.A <= after {
				continue
			}
			if more = left == 0; more {
				return false
			}
			left--
			yield(Fact{Kind: FactMember, Column: ask.Column, ID: ask.IDs[i], Member: member, Value: itemValue(item)})
		}
		after = 0
		return true
	})
	return more, state, err
}

// itemValue is a number that says all of an item but its position.
func itemValue(i *shard.Item) int64 {
	sum := uint64(1)
	if i.Read {
		sum = 2
	}
	for _, word := range [...]uint64{uint64(i.Second), i.Identity.A, i.Identity.B, i.Actor, i.Post} {
		sum = pipeline.Mix(sum + word)
	}
	return int64(sum >> 1)
}
