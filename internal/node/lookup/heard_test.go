package lookup

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query"
)

// docs/nodes.md: "A node that was killed is away after 5 s; /readyz and shards say after 2 s
// that nobody answers for what it alone has."
func TestHeard(t *testing.T) {
	var ready cluster.ShardSet
	ready.Add(0)
	view := func(heard time.Duration) *cluster.View {
		return &cluster.View{
			Assignment: cluster.Assignment{Epoch: 1, Replicas: 1, ByShard: [][]string{{"a"}}},
			Members:    []cluster.State{{Member: &cluster.Member{Node: "a", Roles: cluster.Hold, Ready: ready, Epoch: 1}, Heard: time.Now().Add(-heard)}},
		}
	}
	for heard, want := range map[time.Duration]query.HolderState{0: query.HolderReady, time.Hour: query.HolderAway} {
		c := NewOverview("me", func() *cluster.View { return view(heard) }, func() time.Duration { return 0 })
		if got := c.Shards().Shards[0].Holders[0].State; got != want {
			t.Errorf("heard %v ago: %s, want %s", heard, got, want)
		}
		none, _ := Heard(view(heard), "me").Unanswered(func(pipeline.Shard) bool { return false })
		if (none == 1) != (want == query.HolderAway) {
			t.Errorf("heard %v ago: nobody answers for %d", heard, none)
		}
		if none, _ = Heard(view(heard), "a").Unanswered(func(pipeline.Shard) bool { return false }); none != 0 {
			t.Errorf("of itself, heard %v ago: nobody answers for %d", heard, none)
		}
	}
}
