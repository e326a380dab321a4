package node

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Members write no record that one of them does not read: what one of them sees is forged,
// and is replaced. A node that starts cannot know that, leaves it, and says what to do.
func TestRecordOfALaterVersion(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	known := a.rebuilds.set()
	later, err := known.EncodeIn(pipeline.FormatRecord.Newest + 1)
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		if _, err := f.Bucket().Put(t.Context(), recordKey, later); err != nil {
			t.Fatal(err)
		}
	}
	put()
	f.Until("a member replaces it", func() bool { return f.record().Equal(known) })

	f.Stop(a)
	put()
	f.waiting(f.Plain("a"), "the record has version 2, and this program reads versions 1 to 1: upgrade this node")()
	if e, err := f.Bucket().Get(t.Context(), recordKey); err != nil || string(e.Value()) != string(later) {
		t.Errorf("it is replaced: %v", err)
	}
	if err := Repair(f.Plain("a"), RepairOptions{Record: true, Logger: f.Logger()}); err != nil {
		t.Fatal(err)
	}
	f.Start("a")
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
}
