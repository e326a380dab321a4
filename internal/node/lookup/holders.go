// Package lookup says which node has what, as a process sees it.
//
// [Holders] has which nodes can be asked about which shard: answers ask it for every
// request. It lays out a view of the members once, and again when the layout of the members
// has changed. [Overview] reports the nodes and the holders of shards to tidemark.nodes and
// tidemark.shards. Both read the view that they are given, and have no locks and no life of
// their own: the last layout is an atomic pointer, and two goroutines may compute the same
// one.
package lookup

import (
	"slices"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/spread"
)

// Holders has which node can be asked about which shard. It implements
// [spread.Directory]. Safe for concurrent use.
type Holders struct {
	view   func() *cluster.View
	own    query.Holder // nil: this process holds nothing
	lags   func() bool  // whether this process is behind the log, now; nil: it holds nothing
	me     string
	shards int
	last   atomic.Pointer[layout]
}

// layout is computed from a view of the members.
type layout struct {
	number      uint64 // of the view's layout
	answered    int    // shards that other nodes say they answer for
	part, whole *spread.View
	late        *spread.View // for when this process is behind the log
}

var _ spread.Directory = (*Holders)(nil)

// NewHolders is that of node me. own is what it holds; nil: nothing. lags says whether it
// is behind the log; nil: it holds nothing.
func NewHolders(me string, shards int, view func() *cluster.View, own query.Holder, lags func() bool) *Holders {
	return &Holders{view: view, own: own, lags: lags, me: me, shards: shards}
}

// Own implements [spread.Directory].
func (d *Holders) Own() query.Holder { return d.own }

// View implements [spread.Directory].
func (d *Holders) View() *spread.View {
	v := d.view()
	l := d.last.Load()
	if l == nil || l.number != v.Layout {
		l = d.lay(v)
		d.last.Store(l)
	}
	if l.late != nil && d.lags != nil && d.lags() {
		return l.late
	}
	if whole, ok := d.own.(interface{ Whole() bool }); ok && whole.Whole() {
		return l.whole
	}
	return l.part
}

// lay lists the nodes that say they answer for a shard. Where none does, it lists the
// nodes that are to hold it and are there: one that has just started has not said so yet.
func (d *Holders) lay(v *cluster.View) *layout {
	holders, behind, answered := make([][]string, d.shards), [][]string(nil), 0
	sessions, speaks := make(map[string]string, len(v.Members)), make(map[string]byte, len(v.Members))
	for _, m := range v.Members {
		sessions[m.Node] = m.Session
		speaks[m.Node] = byte(m.Reads(pipeline.FormatWire))
	}
	further := make([]bool, d.shards) // a holder of the shard, on another node, does not lag
	for s := range holders {
		shard := pipeline.Shard(s)
		answering := v.Answering(shard)
		for _, node := range answering {
			if node != d.me {
				holders[s] = append(holders[s], node)
				m, _ := v.Member(node)
				further[s] = further[s] || !m.Behind
			}
		}
		if len(holders[s]) > 0 {
			answered++
		}
		for _, node := range v.Behind(shard) {
			if behind == nil {
				behind = make([][]string, d.shards)
			}
			if node != d.me {
				behind[s] = append(behind[s], node)
			}
		}
		if len(answering) > 0 {
			continue
		}
		for _, node := range v.Assignment.Holders(shard) {
			if m, there := v.Member(node); there && m.Status != cluster.Away && node != d.me {
				holders[s] = append(holders[s], node)
			}
		}
	}
	part := &spread.View{Epoch: v.Layout, Holders: holders, Behind: behind, Sessions: sessions, Wire: speaks}
	d.layOthers(v, part)
	whole := *part
	whole.Whole = true
	l := &layout{number: v.Layout, answered: answered, part: part, whole: &whole}
	if d.own != nil && slices.Contains(further, true) {
		late := *part
		late.OwnBehind = further
		l.late = &late
	}
	return l
}

// layOthers lists the nodes that may come to answer for a shard, and the shards for which
// a node that is away may answer. A node that has stopped in order answers nobody.
func (d *Holders) layOthers(v *cluster.View, part *spread.View) {
	part.Coming, part.Unheard = make([][]string, d.shards), make([]bool, d.shards)
	for s := range part.Coming {
		shard := pipeline.Shard(s)
		assigned := v.Assignment.Holders(shard)
		for _, m := range v.Members {
			may := slices.Contains(assigned, m.Node) || m.Ready.Has(shard)
			asked := slices.Contains(part.Holders[s], m.Node) || part.Behind != nil && slices.Contains(part.Behind[s], m.Node)
			switch {
			case m.Node == d.me || m.Stopped || asked:
			case m.Status == cluster.Away:
				part.Unheard[s] = part.Unheard[s] || may
			case may || m.Epoch == 0 && m.Roles.Has(cluster.Hold):
				part.Coming[s] = append(part.Coming[s], m.Node)
			}
		}
		for _, name := range assigned {
			if _, there := v.Member(name); !there && !slices.Contains(v.Gone, name) {
				part.Unheard[s] = true
			}
		}
	}
}

// Held is how many shards other nodes say they answer for.
func (d *Holders) Held() int {
	_ = d.View() // the newest
	return d.last.Load().answered
}
