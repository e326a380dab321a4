package counting

import (
	"testing"

	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// What was given up is taken back from disk, at once: when nobody else answers for it, and
// when it is assigned here again.
func TestSpareIsTakenBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(100)
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	b := f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	gone := b.Serving().heldNow()
	f.Until("it is still stored", func() bool {
		shards, bytes := a.Serving().spareFigures()
		return shards == gone.Len() && bytes > 0
	})
	f.Stop(b)
	f.Until("all is held again", func() bool {
		held := a.Serving().heldNow()
		return held.Len() == nodetest.Shards && f.Likes(100, 1)
	})
	f.Until("it is said", func() bool { return f.Log.Has("are taken back") })
	if f.Log.Has("derived from EVENTS") {
		t.Errorf("it does not come from the disk\n%s", f.Log.String())
	}
	b = f.Start("b")
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Publish(100)
	f.Until("all likes", func() bool { return f.Likes(100, 2) })
}
