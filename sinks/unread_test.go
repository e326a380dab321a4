package sinks_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

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
	win.Sections[shards] = []byte{3 | 30<<2, 7} // an unknown operation
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 1, Window: pipeline.AppendWindow(nil, win)}}})
	var out query.Unreads
	for end := time.Now().Add(hangs); n.Err() == nil || out.AsOf != w.last(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("stopped by %v, as of %d", n.Err(), out.AsOf)
		}
		if err := n.Unread(t.Context(), []uint64{7, 8}, []string{}, &out, true); err != nil {
			t.Fatal(err)
		}
	}

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

// Reading the disk ends with its context, and what could not be read for that
// is not said to be missing.
func TestColdReadsEndWithTheirContext(t *testing.T) {
	const shards = 2
	store := openStore(t, t.TempDir(), shards)
	o := options(shards)
	n, w := newNode(t, store, o), newWorld(shards)
	w.window(1000, []int{0}, []change{{cell{0, 7}, pipeline.Add(1)}})
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = 1 // so that nothing is loaded
	n = newNode(t, store, o)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var (
		rows  query.Rows
		users query.Unreads
		page  query.UserPage
		feed  query.FeedPage
	)
	for name, err := range map[string]error{
		"rows":      n.Rows(ended, 0, []pipeline.Column{0}, []uint64{7}, &rows, true),
		"unread":    n.Unread(ended, []uint64{7}, nil, &users, true),
		"following": n.Following(ended, 7, 0, 10, &page, true),
		"followers": n.Followers(ended, 7, 0, 10, &page, true),
		"feed":      n.Feed(ended, 7, 0, 10, &feed, true),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.Rows(t.Context(), 0, []pipeline.Column{0}, []uint64{7}, &rows, true); err != nil || len(rows.Missing) > 0 || rows.Values[0] != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
