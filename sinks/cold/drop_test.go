package cold

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// "its state and its runs are as if they had never been here … A view made before still
// reads what it saw."
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	c := s.Begin() // both in one file
	for shard := range pipeline.Shard(2) {
		countTo(c.Shard(shard))
	}
	for _, g := range c.shards {
		g.State(State{Applied: 1, Sequence: 1})
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	for shard := range pipeline.Shard(2) {
		s.Stack(shard).Publish()
		count(t, s, shard, 2)
	}
	before := s.Stack(1).View()
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	if state, err := s.Stack(1).State(); err != nil || state != (State{}) {
		t.Errorf("the state is %+v, %v", state, err)
	}
	wantCounted(t, s, 1, 0)
	cells := make([]int64, 1)
	if err := before.Rows(0, []uint64{7}, cells); err != nil || cells[0] != 2 {
		t.Errorf("a view made before reads %d, %v", cells[0], err)
	}
	if n := len(runFiles(t, dir)); n != 3 {
		t.Errorf("%d files while it is open", n)
	}
	before.Close()
	count(t, s, 1, 1)
	wantCounted(t, s, 1, 1)
	if n := len(runFiles(t, dir)); n != 3 { // the shared one, and one of each
		t.Errorf("%d files", n)
	}
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	wantCounted(t, s, 0, 2)
	wantCounted(t, s, 1, 1)
	if err := s.Drop(5); err == nil || !strings.Contains(err.Error(), "shard 5") {
		t.Errorf("there is none: %v", err)
	}
	closeStore(t, s)
}
