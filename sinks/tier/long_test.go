package tier_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// soon is a context that ends after it has been looked at so many times: amid
// a read, wherever that looks.
type soon struct {
	context.Context
	looks int
}

func (s *soon) Err() error {
	if s.looks--; s.looks < 0 {
		return context.Canceled
	}
	return nil
}

// A method may block for as long as the disk takes; when ctx ends it returns ctx's
// error soon after, also amid one long read.
func TestLongReadsEndWithTheirContext(t *testing.T) {
	const many = 2000
	store := openStore(t)
	s := restarted(t, store)
	var ops []pipeline.Operation
	var authors []hot.Pair
	var ids []uint64
	for id := uint64(1); id <= many; id++ {
		ids, authors = append(ids, id), append(authors, hot.Pair{A: id})
		ops = append(ops, pipeline.Operation{Op: pipeline.OpPost, ID: id, Other: 10_000 + id})
	}
	w := window(s, ops...)
	var cells []byte
	for _, id := range ids {
		cells = pipeline.AppendChange(cells, 0, id, pipeline.Add(1))
	}
	w.Sections[0] = append(cells, w.Sections[0]...)
	apply(t, s, w)
	checkpoint(t, store, s)

	reads := map[string]func(s *tier.Shard, d *tier.Disk) (int, error){
		"rows": func(s *tier.Shard, d *tier.Disk) (n int, err error) {
			var b tier.Batch
			_, err = s.Read(0, ids, &b, d, func(_ int, cells []int64) { n += int(cells[0]) })
			return n, err
		},
		"posts": func(s *tier.Shard, d *tier.Disk) (n int, err error) {
			var g shard.Gathering
			_, err = s.Posts(authors, 0, pipeline.PositionMax, &g, d, func(uint64, hot.Pair) bool { n++; return true })
			return n, err
		},
		"counts of posts": func(s *tier.Shard, d *tier.Disk) (int, error) {
			var g shard.Gathering
			n, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts(authors, 0, &g, d)
			return int(n), err
		},
	}
	for name, read := range reads {
		d := &tier.Disk{May: true, Context: &soon{context.Background(), 2}}
		if _, err := read(restarted(t, store), d); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after the context has ended amid the read", name, err)
		}
		d = &tier.Disk{May: true, Context: context.Background()}
		if n, err := read(restarted(t, store), d); n != many || err != nil {
			t.Errorf("%s: %d of %d, %v", name, n, many, err)
		}
	}
}
