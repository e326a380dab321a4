package node

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
)

// `rebuild.cores` bounds all that the second generation computes until it serves: with
// no turn to be had nothing of it is derived; the one that serves goes on. The one
// that comes to serve is no longer bound, and the one before is.
func TestRebuildInTurns(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	turns := n.shared.Turns
	if cap(turns) != 1 {
		t.Fatalf("there are %d turns, of rebuild.cores %d and 2 processors", cap(turns), n.config.Rebuild.Cores)
	}
	f.Publish(40)
	f.Until("all likes", func() bool { return f.Likes(40, 1) })

	turns.Take()
	given := false
	defer func() {
		if !given {
			turns.Give() // or it does not close
		}
	}()
	f.begin(fans(n.config), false)
	f.Until("the second one is open", func() bool { return n.rebuilds.beside.Load() != nil })
	second := n.rebuilds.beside.Load()
	f.Until("its router runs", func() bool { return second.Inside().Router.Stats.Messages.Load() > 0 })
	f.Publish(40)
	f.Until("the first one counts", func() bool { return f.Likes(40, 2) })
	if windows, applied := second.Inside().Router.Stats.Windows.Load(), second.Sinks().Applied(); windows != 0 || applied != 0 {
		t.Errorf("without a turn there are %d windows, applied up to %d", windows, applied)
	}
	turns.Give()
	f.serves(2, n)
	f.Until("all fans", f.Has("post", "fans", 7, 2))

	turns.Take()
	first := n.rebuilds.beside.Load()
	if first == nil || first.Number != 1 || n.Serving() != second {
		t.Fatalf("beside is %+v", first)
	}
	stood := first.Sinks().Applied()
	f.Publish(40)
	f.Until("the second one counts", func() bool { return f.Likes(40, 3) })
	if now := first.Sinks().Applied(); now != stood {
		t.Errorf("without a turn the first one has come from %d to %d", stood, now)
	}
	turns.Give()
	given = true
	f.Until("the first one is up to date", func() bool { return first.Sinks().Applied() >= second.Sinks().Applied() })
}

// A comparison waits for its turns too, of the generation that serves and of the new
// one. With as many cores as processors nothing is held back.
func TestCompareInTurns(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := func(*config.Config) {}
	a, a2 := f.counting("a", 1, one, nil), f.counting("a2", 2, one, nil)
	f.Publish(50)
	f.whole(a, a2)
	for _, held := range []*Node{a, a2} {
		held.shared.Turns.Take()
		done := make(chan uint64)
		go func() {
			differs, _, why, err := f.compares(t.Context(), a, a2, nil)
			if err != nil || why != "" {
				t.Errorf("%v; %s", err, why)
			}
			done <- differs
		}()
		select {
		case <-done:
			t.Errorf("generation %d is compared without a turn", held.Serving().Number)
		case <-time.After(500 * time.Millisecond):
			held.shared.Turns.Give()
			if differs := <-done; differs != 0 {
				t.Errorf("%d ids differ", differs)
			}
		}
		if n := len(held.shared.Turns); n != 0 {
			t.Errorf("%d turns are not given back", n)
		}
	}
	free := newNode(f.Config("b", func(c *config.Config) { c.Rebuild.Cores = 2 }), Options{Processors: 2, Logger: f.Logger()})
	defer free.cancel()
	if free.shared.Turns != pipeline.Turns(nil) {
		t.Error("with as many cores as processors there is a bound")
	}
}
