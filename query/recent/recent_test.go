package recent_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/recent"
)

// Beside the outboxes themselves, which posts come to and go from: what is known is what
// is there, however much of it was listed, in whatever order, and whatever was forgotten;
// and much of it is known.
func TestTwin(t *testing.T) {
	known, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		o := recent.New(rapid.SampledFrom([]int{0, 700, 1 << 20}).Draw(t, "bytes"))
		posts, changed := map[uint64][]pipeline.Position{}, map[uint64]pipeline.Position{} // newest first
		at, epoch, now := pipeline.Position(1), uint64(1), time.Unix(1e9, 0)
		author := rapid.Uint64Range(1, 3)
		list := func(id uint64, from pipeline.Position, most int) recent.Outbox {
			b := recent.Outbox{From: from, To: at}
			for _, p := range posts[id] {
				if p > from {
					b.Posts = append(b.Posts, p)
				}
			}
			if len(b.Posts) > most {
				b.From, b.Posts, b.Cut = b.Posts[most], b.Posts[:most], true
			}
			return b
		}
		type late struct {
			id    uint64
			box   recent.Outbox
			epoch uint64
		}
		var answers []late
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := author.Draw(t, "author")
			switch rapid.IntRange(0, 12).Draw(t, "step") {
			case 5, 6:
				for range rapid.SampledFrom([]int{1, 2, 50}).Draw(t, "posts") {
					at++
					posts[id], changed[id] = slices.Insert(posts[id], 0, at), at
				}
			case 7:
				at++
				if n := len(posts[id]); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "deleted")
					posts[id], changed[id] = slices.Delete(posts[id], i, i+1), at
				}
			case 8:
				at += 10
			case 9:
				epoch += uint64(rapid.IntRange(0, 1).Draw(t, "epoch"))
				now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "seconds")) * time.Second)
			case 0, 1, 2, 3, 4: // an answer may come late
				from := rapid.SampledFrom([]pipeline.Position{0, 1, at / 2, at}).Draw(t, "from")
				answers = append(answers, late{id, list(id, from, rapid.SampledFrom([]int{1, 1000}).Draw(t, "most")), epoch})
				if rapid.IntRange(0, 3).Draw(t, "late") == 3 {
					continue
				}
				fallthrough
			default:
				for _, l := range answers {
					o.Put(l.id, l.box, l.epoch, now)
				}
				answers = nil
			}
			var asks []recent.Ask
			for id := uint64(1); id <= 3; id++ {
				is := changed[id]
				asks = append(asks, recent.Ask{
					Author: id, After: pipeline.Position(rapid.Uint64Range(0, uint64(at)).Draw(t, "after")),
					Changed: is + rapid.SampledFrom([]pipeline.Position{0, (at - is) / 2, at - is}).Draw(t, "more"),
				})
			}
			unknown := o.Answer(asks, epoch, now)
			for _, a := range asks {
				all++
				if !a.Known {
					if unknown--; a.Posts != 0 {
						t.Fatalf("%+v", a)
					}
					continue
				}
				known++
				box := list(a.Author, 0, 1000)
				if want, _ := box.After(a.After); a.Posts != want || a.Cut {
					t.Fatalf("author %d: %d posts after %d, of %v", a.Author, a.Posts, a.After, posts[a.Author])
				}
			}
			if unknown != 0 {
				t.Fatalf("%d more are said to be unknown", unknown)
			}
		}
	})
	least := 300
	if testing.Short() { // a fifth is drawn
		least = 60
	}
	if known < least || known*20 < all {
		t.Errorf("%d of %d are known", known, all)
	}
}

// "Everything that can grow has a bound with a name": a million
// authors, and one with a million posts.
func TestBytes(t *testing.T) {
	const bytes = 1 << 20
	o, now := recent.New(bytes), time.Now()
	for id := range uint64(1_000_000) {
		o.Put(id+1, recent.Outbox{To: 9, Posts: []pipeline.Position{8, 7}}, 1, now)
		if id%1000 == 0 && o.Bytes() > bytes {
			t.Fatalf("%d bytes", o.Bytes())
		}
	}
	if o.Bytes() < bytes/4 {
		t.Errorf("%d bytes of %d", o.Bytes(), bytes)
	}
	many := make([]pipeline.Position, 1_000_000)
	for i := range many {
		many[i] = pipeline.Position(2_000_000 - i)
	}
	o.Put(5, recent.Outbox{To: 2_000_000, Posts: many}, 1, now)
	asks := []recent.Ask{
		{Author: 5, After: many[recent.PostsMax], Changed: 2_000_000},
		{Author: 5, After: many[recent.PostsMax] - 1, Changed: 2_000_000},
		{Author: 5, After: 1, Changed: 2_000_001},
		{Author: 5, After: many[recent.PostsMax], Changed: 2_000_001},
	}
	o.Answer(asks, 1, now)
	if !asks[0].Known || asks[0].Posts != recent.PostsMax || asks[1].Known || !asks[1].Cut || asks[2].Known || !asks[2].Cut || asks[3].Known || asks[3].Cut {
		t.Errorf("%+v", asks)
	}
}

// What is known for longer than Age is asked for anew; so is what others answered.
func TestForgets(t *testing.T) {
	o, now := recent.New(1<<20), time.Unix(1e9, 0)
	box := recent.Outbox{To: 9, Posts: []pipeline.Position{8}}
	knows := func(epoch uint64, now time.Time) bool {
		return o.Answer([]recent.Ask{{Author: 1, Changed: 8}}, epoch, now) == 0
	}
	o.Put(1, box, 3, now)
	switch {
	case !knows(3, now), !knows(3, now.Add(recent.Age-time.Second)):
		t.Error("it is forgotten")
	case knows(3, now.Add(recent.Age)), knows(4, now), knows(2, now):
		t.Error("it is not forgotten")
	}
	o.Put(2, box, 4, now)
	if o.Put(1, box, 3, now); knows(3, now) || knows(4, now) {
		t.Error("an answer of those who answered before is remembered")
	}
}
