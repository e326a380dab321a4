package sim

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// held is a view of a shard's runs that somebody reads for long.
type held struct {
	shard int
	view  *cold.View
	sum   uint64 // of all it held when it was made
}

// hold has somebody begin to read a shard's runs, or come to the end: a view is
// as of when it was made, whatever is committed or merged after that, and the files
// it needs stay.
func (w *world) hold() error {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if !p.up() || w.blind[p.number] > 0 {
		return nil
	}
	h := p.held
	if h == nil {
		h = &held{shard: w.rand.IntN(w.shards + 1)}
		h.view = p.store.Stack(pipeline.Shard(h.shard)).View()
	}
	w.note("%d reads all runs of %d, again %v", p.number, h.shard, p.held != nil)
	sum, err := sumOf(h.view)
	switch {
	case err != nil:
		return fmt.Errorf("process %d: a view of shard %d: %w", p.number, h.shard, err)
	case p.held == nil:
		h.sum, p.held = sum, h
		return nil
	case sum != h.sum:
		return fmt.Errorf("process %d: a view of shard %d is not what it was when it was made", p.number, h.shard)
	}
	h.view.Close()
	p.held = nil
	return nil
}

// sumOf is of all that a view holds.
func sumOf(v *cold.View) (uint64, error) {
	h := fnv.New64a()
	note := func(all ...any) { fmt.Fprintln(h, all...) }
	err := v.WalkRows(&cold.Part{Most: math.MaxInt}, func(counter int, id uint64, cells []int64) error {
		note(counter, id, cells)
		return nil
	})
	for _, read := range []func() error{
		func() error {
			return v.UserRange(&cold.Range{Most: math.MaxInt},
				func(user, followee uint64, since pipeline.Position) { note(user, followee, since) },
				func(user uint64, marks [4]uint64) { note(user, marks) },
				func(user uint64, channel string, position pipeline.Position) { note(user, channel, position) })
		},
		func() error {
			return v.PostRange(&cold.Range{Most: math.MaxInt}, func(author uint64, at pipeline.Position, post uint64) { note(author, at, post) })
		},
		func() error {
			return v.WalkEdges(&cold.Part{Most: math.MaxInt}, func(user, follower uint64) { note(user, follower) })
		},
		func() error {
			return v.Notices(func(channel string, notice uint64, at pipeline.Position) { note(channel, notice, at) })
		},
		func() error { return v.Seconds(func(second int64, at pipeline.Position) { note(second, at) }) },
	} {
		if err == nil {
			err = read()
		}
	}
	return h.Sum64(), err
}
