package sinks_test

import (
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Who asks for no channel is answered also while the channels are stopped: only
// the asked ones are looked at.
func TestUnreadWithoutStoppedChannels(t *testing.T) {
	const shards = 4
	store := openStore(t, t.TempDir(), shards)
	o := options(shards)
	o.Notices, o.Dots = []string{"system"}, []string{"games"}
	n, w := newNode(t, store, o), newWorld(shards)
	w.window(1000, []int{0}, nil)
	win, err := pipeline.DecodeWindow(w.entries[0].Window)
	if err != nil {
		t.Fatal(err)
	}
	win.Sections[shards] = unknown
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 1, Window: pipeline.AppendWindow(nil, win)}}})
	var out query.Unreads
	await(t, "the channels have stopped, and all else is applied", func() bool {
		if err := n.Unread(t.Context(), []uint64{7, 8}, []string{}, &out, true); err != nil {
			t.Fatal(err)
		}
		return n.Err() != nil && out.AsOf == w.last()
	})

	for _, c := range []struct {
		channels []string
		missing  []int
	}{{nil, []int{0, 1}}, {[]string{"system"}, []int{0, 1}}, {[]string{"games"}, []int{0, 1}}, {[]string{}, nil}} {
		if err := n.Unread(t.Context(), []uint64{7, 8}, c.channels, &out, true); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out.Missing, c.missing) || c.missing == nil && out.AsOf != w.last() {
			t.Errorf("channels %q: missing %v as of %d, want %v", c.channels, out.Missing, out.AsOf, c.missing)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
