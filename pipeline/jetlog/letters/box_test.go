package letters_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

// keep keeps a letter of each reason, at messages 1, 2, …
func (b *bench) keepLetters(reasons ...pipeline.Reason) {
	b.Helper()
	var letters []pipeline.DeadLetter
	for i, reason := range reasons {
		letters = append(letters, pipeline.DeadLetter{
			Position: pipeline.At(uint64(i+1), i%1024), Reason: reason, Detail: fmt.Sprint("wrong ", i+1),
			Header: map[string][]string{"Tidemark-Import": {"x"}}, Data: fmt.Appendf(nil, "body %d", i+1),
		})
	}
	b.must(b.deadLetters().Keep(b.ctx, letters))
}

func (b *bench) letterBox() *letters.Box {
	b.Helper()
	box, err := letters.OpenBox(b.ctx, b.js.Conn())
	b.must(err)
	return box
}

func TestLetterBox(t *testing.T) {
	b := newBench(t)
	var reasons []pipeline.Reason
	for i := range 2500 { // more than one batch
		reason := pipeline.ReasonJSON
		if i == 3 || i == 2000 {
			reason = pipeline.ReasonSelf
		}
		reasons = append(reasons, reason)
	}
	b.keepLetters(reasons...)
	box := b.letterBox()

	var visited []uint64
	b.must(box.Visit(b.ctx, 3, "", func(l *letters.Letter) error {
		visited = append(visited, l.Sequence)
		if l.Position != pipeline.At(l.Sequence, int(l.Sequence-1)%1024) || l.Error != fmt.Sprint("wrong ", l.Sequence) || l.Carried("Tidemark-Import") != "x" {
			t.Errorf("%+v", l)
		}
		return nil
	}))
	if len(visited) != 2498 || visited[0] != 3 || !slices.IsSorted(visited) {
		t.Errorf("%d visited, from %d", len(visited), visited[0])
	}
	enough := errors.New("enough")
	if err := box.Visit(b.ctx, 1, "", func(*letters.Letter) error { return enough }); err != enough {
		t.Error(err)
	}

	for _, c := range []struct {
		reason string
		most   int
		want   []uint64
		more   bool
	}{
		{"", 2, []uint64{2500, 2499}, true},
		{"self", 1, []uint64{2001}, true},
		{"self", 2, []uint64{2001, 4}, false},
		{"self", 9, []uint64{2001, 4}, false},
		{"pack", 9, nil, false},
	} {
		letters, more, err := box.Newest(b.ctx, c.reason, c.most)
		b.must(err)
		var got []uint64
		for _, l := range letters {
			got = append(got, l.Sequence)
		}
		if !slices.Equal(got, c.want) || more != c.more {
			t.Errorf("%+v: %v, %t", c, got, more)
		}
	}

	l, err := box.Get(b.ctx, 4)
	b.must(err)
	if l.Reason != "self" || string(l.Body) != "body 4" || l.Time.IsZero() {
		t.Errorf("%+v", l)
	}
	if _, err := box.Get(b.ctx, 2501); !errors.Is(err, letters.ErrNoLetter) {
		t.Error(err)
	}
}

func TestLetterBoxOfPurgedLetters(t *testing.T) {
	b := newBench(t)
	box := b.letterBox()
	state := func(first, last uint64) {
		t.Helper()
		if s, err := box.State(b.ctx); err != nil || s.First != first || s.Last != last || s.Created.IsZero() {
			t.Errorf("%+v, %v", s, err)
		}
		count := uint64(0)
		b.must(box.Visit(b.ctx, 1, "", func(*letters.Letter) error { count++; return nil }))
		if newest, more, err := box.Newest(b.ctx, "", 100); err != nil || more || uint64(len(newest)) != count {
			t.Errorf("%d and %d letters, more %t, %v", len(newest), count, more, err)
		}
	}
	state(1, 0)
	b.keepLetters("json", "json", "json", "json")
	state(1, 4)
	stream := b.stream(jetlog.DeadLetterStream)
	b.must(stream.DeleteMsg(b.ctx, 2))
	state(1, 4)
	b.must(stream.Purge(b.ctx))
	state(5, 4)
	if newest, _, err := box.Newest(b.ctx, "", 2); err != nil || len(newest) != 0 {
		t.Errorf("%v, %v", newest, err)
	}
}

// A client library takes a message without a body and with a header Status for an answer of
// the server: no letter is one, whatever headers its event had.
func TestLettersOfEventsWithStatus(t *testing.T) {
	b := newBench(t)
	var all []pipeline.DeadLetter
	for i, status := range []string{"404", "408", "409", "503", "100", "", "x"} {
		all = append(all, pipeline.DeadLetter{
			Position: pipeline.At(uint64(i+1), 0), Reason: pipeline.ReasonJSON, Detail: "not JSON",
			Header: map[string][]string{"Status": {status}, "status": {status}, "Description": {"No Messages"}},
		})
	}
	b.must(b.deadLetters().Keep(b.ctx, all))
	box := b.letterBox()
	newest, more, err := box.Newest(b.ctx, "", 100)
	if b.must(err); len(newest) != len(all) || more {
		t.Errorf("%d of %d letters, more: %t", len(newest), len(all), more)
	}
	for _, l := range newest {
		if l.Carried("Status") == "" && l.Sequence < 6 || l.Header.Get("Status") != "" || l.Header.Get("status") != "" {
			t.Errorf("letter %d has the headers %v", l.Sequence, l.Header)
		}
	}
	found, err := box.Since(b.ctx, pipeline.At(1, 0))
	if b.must(err); len(found) != len(all) {
		t.Errorf("%d of %d letters are found", len(found), len(all))
	}
}
