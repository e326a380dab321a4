package node

import (
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/spread"
)

// directory tells who can be asked about which shard. It implements
// [spread.Directory].
type directory struct {
	view   func() *cluster.View
	own    query.Holder // nil: this process holds nothing
	me     string
	shards int
	last   atomic.Pointer[layout]
}

// layout is what a view of the members comes to.
type layout struct {
	number      uint64 // of the view's layout
	part, whole *spread.View
}

var _ spread.Directory = (*directory)(nil)

// Own implements [spread.Directory].
func (d *directory) Own() query.Holder { return d.own }

// View implements [spread.Directory].
func (d *directory) View() *spread.View {
	v := d.view()
	l := d.last.Load()
	if l == nil || l.number != v.Layout {
		l = d.lay(v)
		d.last.Store(l)
	}
	if whole, ok := d.own.(interface{ Whole() bool }); ok && whole.Whole() {
		return l.whole
	}
	return l.part
}

func (d *directory) lay(v *cluster.View) *layout {
	holders := make([][]string, d.shards)
	for s := range holders {
		for _, node := range v.Answering(pipeline.Shard(s)) {
			if node != d.me {
				holders[s] = append(holders[s], node)
			}
		}
	}
	part := &spread.View{Epoch: v.Layout, Holders: holders}
	whole := *part
	whole.Whole = true
	return &layout{v.Layout, part, &whole}
}

// held is how many shards other nodes answer for.
func (d *directory) held() (shards int) {
	for _, nodes := range d.View().Holders {
		if len(nodes) > 0 {
			shards++
		}
	}
	return shards
}
