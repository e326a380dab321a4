package upkeep

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

func setOf(shards ...pipeline.Shard) (set cluster.ShardSet) {
	for _, s := range shards {
		set.Add(s)
	}
	return set
}

// What all nodes count by is read from the nodes that count; an error says that they disagree.
func TestIdentity(t *testing.T) {
	member := func(node string, status cluster.Status, rules cluster.Fingerprint, ready ...pipeline.Shard) cluster.State {
		return cluster.State{Status: status, Member: &cluster.Member{Node: node, Roles: cluster.Hold, Shards: 2, Fingerprint: rules, Ready: setOf(ready...)}}
	}
	view := func(members ...cluster.State) *cluster.View { return &cluster.View{Members: members} }
	if shards, rules, err := identity(view(member("a", cluster.Away, 1, 0), member("b", cluster.Up, 3), member("c", cluster.Up, 2, 0))); err != nil || shards != 2 || rules != cluster.Fingerprint(2).String() {
		t.Error(shards, rules, err)
	}
	if _, _, err := identity(view(member("a", cluster.Up, 1, 0), member("c", cluster.Up, 2, 0))); err == nil || !strings.Contains(err.Error(), "nodes a and c") {
		t.Error(err)
	}
	if _, _, err := identity(view(member("a", cluster.Away, 1, 0))); err == nil {
		t.Error("nobody is there")
	}
}
