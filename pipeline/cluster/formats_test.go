package cluster

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

func speaking(node string, oldest, newest int) *Member {
	m := someMember()
	m.Node, m.Formats = node, Formats{"windows": {oldest, newest}}
	return m
}

// "A node of this version and one of the next work together, or the new
// one refuses by name what it cannot do"
func TestMisfitOfFormats(t *testing.T) {
	a := speaking("a", 1, 1)
	if err := Misfit(a, speaking("b", 1, 2)); err != nil {
		t.Errorf("one step: %v", err)
	}
	for _, pair := range [][2]*Member{{a, speaking("c", 2, 3)}, {speaking("c", 2, 3), a}} {
		err := Misfit(pair[0], pair[1])
		want := "node a (version 1.2.0) reads windows of versions 1 to 1, node c (version 1.2.0) of versions 2 to 3"
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Upgrade node a") {
			t.Errorf("two steps: %v", err)
		}
	}
	later := speaking("d", 1, 1)
	later.Formats["harmless"], later.Formats["needed"] = Versions{0, 1}, Versions{1, 1}
	if err := Misfit(a, later); err == nil || !strings.Contains(err.Error(), "needed of versions 0 to 0") {
		t.Errorf("a format that a does not have: %v", err)
	}
}

// What is written is what all read, those that are away too.
func TestWrites(t *testing.T) {
	f := pipeline.Format{Name: "windows", Oldest: 2, Newest: 4}
	view := func(members ...*Member) *View {
		v := &View{Settled: true}
		for _, m := range members {
			v.Members = append(v.Members, State{Member: m, Status: Away})
		}
		return v
	}
	for name, is := range map[string]struct {
		view *View
		want int
	}{
		"nobody":                          {view(), 4},
		"all new":                         {view(speaking("a", 2, 4), speaking("b", 3, 5)), 4},
		"one older":                       {view(speaking("a", 2, 4), speaking("b", 1, 3)), 3},
		"one that cannot join is ignored": {view(speaking("a", 2, 4), speaking("b", 1, 1)), 4},
	} {
		if got := is.view.Writes(f); got != is.want {
			t.Errorf("%s: version %d, want %d", name, got, is.want)
		}
	}
	begun := view(speaking("a", 1, 4))
	begun.Settled = false
	if got := begun.Writes(f); got != 2 {
		t.Errorf("others may not be heard of yet: version %d, want 2", got)
	}
	if begun.Stored = true; begun.Writes(f) != 4 {
		t.Error("the bucket has all members")
	}
}
