package tier

import (
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Timeline is the outboxes of the shards of a node, read together.
type Timeline struct {
	shards   []*Shard
	timeline *shard.Timeline
}

// NewTimeline makes one of shards by number; nil where another node must be asked.
func NewTimeline(shards []*Shard) *Timeline {
	in := make([]*shard.Shard, len(shards))
	for i, t := range shards {
		if t != nil {
			in[i] = t.Shard
		}
	}
	return &Timeline{shards, shard.NewTimeline(in)}
}

// CountPosts counts the listed posts of followees, all of shards that are here,
// after the mark and after the follow (each pair's B). applied is how far the
// count reaches.
func (t *Timeline) CountPosts(followees []hot.Pair, mark pipeline.Position, g *shard.Gathering, d *Disk) (n uint64, applied pipeline.Position, err error) {
	applied = math.MaxUint64
	for group := range slices.Chunk(followees, shard.GroupMax) {
		if len(followees) > shard.GroupMax {
			if err := d.ended(); err != nil {
				return 0, 0, err
			}
		}
		posts, reach, err := t.countGroup(group, mark, g, d)
		if err != nil {
			return 0, 0, err
		}
		n, applied = n+posts, min(applied, reach)
	}
	return n, applied, nil
}

func (t *Timeline) countGroup(group []hot.Pair, mark pipeline.Position, g *shard.Gathering, d *Disk) (n uint64, applied pipeline.Position, err error) {
	var pin func(pipeline.Shard) // those of g.Cold, in their order
	if d.May {
		defer d.unpin()
		pin = func(number pipeline.Shard) { d.pin(t.shards[number])() }
	}
	n, applied, err = t.timeline.Count(group, mark, g, pin)
	if err != nil || len(g.Cold) == 0 {
		return n, applied, err
	}
	err = d.use(len(g.Cold), func() error {
		i := 0
		for boxes := range byShard(g.Cold) {
			err := t.shards[boxes[0].Shard].readOutboxes(d, d.views[i], boxes, func(o *shard.Outbox, posts []hot.Pair) { n += uint64(len(o.Listed(posts))) })
			if err != nil {
				return err
			}
			i++
		}
		return nil
	})
	return n, applied, err
}

// byShard parts outboxes where neighbours are of different shards.
func byShard(list []shard.Outbox) func(yield func([]shard.Outbox) bool) {
	return func(yield func([]shard.Outbox) bool) {
		for from := 0; from < len(list); {
			to := from + 1
			for to < len(list) && list[from].Shard == list[to].Shard {
				to++
			}
			if !yield(list[from:to]) {
				return
			}
			from = to
		}
	}
}

// readOutboxes reads outboxes that are not in memory, by author. They are not
// brought there: they are old.
func (t *Shard) readOutboxes(d *Disk, view *cold.View, boxes []shard.Outbox, read func(o *shard.Outbox, posts []hot.Pair)) error {
	atATime := min(len(boxes), readsAtATime)
	asked, posts := make([]cold.From, 0, atATime), make([][]hot.Pair, atATime)
	for some := range slices.Chunk(boxes, readsAtATime) {
		if err := d.ended(); err != nil {
			return err
		}
		asked = asked[:0]
		for i, o := range some {
			asked, posts[i] = append(asked, cold.From{Author: o.Author, Position: o.From}), posts[i][:0]
		}
		err := view.Posts(asked, func(i int, position pipeline.Position, post uint64) {
			posts[i] = append(posts[i], hot.Pair{A: uint64(position), B: post})
		})
		if err != nil {
			return t.unreadable(err)
		}
		for i := range some {
			read(&some[i], posts[i])
		}
	}
	return nil
}

// Posts offers the listed posts of followees, all of this shard, that lie in
// [from, before), each author's newest first, until want says no to one of
// that author's. The answer reaches as far as the first followees' part, and so
// does what was offered before ErrCold.
func (t *Shard) Posts(followees []hot.Pair, from, before pipeline.Position, g *shard.Gathering, d *Disk, want func(author uint64, p hot.Pair) bool) (state shard.State, err error) {
	first := true
	for group := range slices.Chunk(followees, shard.GroupMax) {
		if err := d.ended(); err != nil {
			return state, err
		}
		as, err := t.postsOf(group, from, before, g, d, want)
		if first {
			state, first = as, false
		}
		if err != nil {
			return state, err
		}
	}
	return state, nil
}

func (t *Shard) postsOf(group []hot.Pair, from, before pipeline.Position, g *shard.Gathering, d *Disk, want func(author uint64, p hot.Pair) bool) (shard.State, error) {
	defer d.unpin()
	state, err := t.Shard.Posts(group, from, before, g, d.pin(t), want)
	if err != nil || len(g.Cold) == 0 {
		return state, err
	}
	err = d.use(len(g.Cold), func() error {
		return t.readOutboxes(d, d.views[0], g.Cold, func(o *shard.Outbox, posts []hot.Pair) { o.Offer(posts, before, want) })
	})
	return state, err
}
