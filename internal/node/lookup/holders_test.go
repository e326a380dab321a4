package lookup

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
)

// A node that lags asks other nodes first for the shards that one of them has which does
// not lag, and for no others.
func TestDirectoryOfANodeThatIsBehind(t *testing.T) {
	set := func(shards ...pipeline.Shard) (set cluster.ShardSet) {
		for _, s := range shards {
			set.Add(s)
		}
		return set
	}
	member := func(name string, behind bool, ready cluster.ShardSet) cluster.State {
		return cluster.State{Member: &cluster.Member{Node: name, Roles: cluster.Hold, Behind: behind, Ready: ready, Epoch: 1}}
	}
	for _, told := range []bool{false, true} { // before and after the others know
		v := &cluster.View{
			Assignment: cluster.Assignment{Epoch: 1, ByShard: [][]string{{"a", "me"}, {"me", "b"}, {"me"}}},
			Members:    []cluster.State{member("a", false, set(0)), member("b", true, set(0, 1)), member("me", told, set(0, 1, 2))},
			Layout:     1,
		}
		lags := true
		d := &Holders{view: func() *cluster.View { return v }, own: struct{ query.Holder }{}, lags: func() bool { return lags }, me: "me", shards: 3}
		got := d.View()
		if got.Whole || len(got.OwnBehind) != 3 || !got.OwnBehind[0] || got.OwnBehind[1] || got.OwnBehind[2] {
			t.Errorf("told %v: it is behind others with %v", told, got.OwnBehind)
		}
		if len(got.Holders[0]) == 0 || got.Holders[0][0] != "a" {
			t.Errorf("told %v: shard 0 is asked of %v", told, got.Holders[0])
		}
		v.Members[0].Member.Behind = true
		v.Layout = 2
		if got = d.View(); got.OwnBehind != nil {
			t.Errorf("told %v: all are behind, and others are asked first: %v", told, got.OwnBehind)
		}
		v.Members[0].Member.Behind = false
		lags, v.Layout = false, 3
		l := d.lay(v)
		if l.part.OwnBehind != nil || l.late == nil {
			t.Errorf("told %v: one that is not behind asks others first", told)
		}
	}
}
