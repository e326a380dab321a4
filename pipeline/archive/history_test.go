package archive

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// An archive is read before the EVENTS that it is of, or before the one that goes on
// from that, and never before another: no sequence means two events.
func TestArchiveOfAnEventsBefore(t *testing.T) {
	then, now := created, created.Add(time.Second)
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Joins(Stream{Created: then, First: 21}); err == nil || !strings.Contains(err.Error(), "there is nothing") {
		t.Errorf("an empty one: %v", err)
	}
	all := new(memory)
	for i := range uint64(20) {
		all.messages = append(all.messages, pipeline.Message{Sequence: i + 1, Subject: "events.like", Data: []byte("{}")})
	}
	d = add(t, path, all, 20)
	for _, test := range []struct {
		state Stream
		why   string
	}{
		{Stream{Created: then, First: 21}, ""},
		{Stream{Created: then, First: 3}, ""},
		{Stream{Created: then, First: 22}, "messages 21 to 21 are in neither"},
		{Stream{Created: now, First: 21}, "is of the EVENTS created at"},
		{Stream{Created: now, First: 21, After: 20, Before: then}, ""},
		{Stream{Created: now, First: 19, After: 18, Before: then}, "is of the EVENTS created at"},
		{Stream{Created: now, First: 24, After: 23, Before: then}, "messages 21 to 23 are in neither"},
		{Stream{Created: now, First: 21, After: 20, Before: now}, "is of the EVENTS created at"},
	} {
		if err := d.Joins(test.state); test.why == "" && err != nil || test.why != "" && (err == nil || !strings.Contains(err.Error(), test.why)) {
			t.Errorf("%+v: %v, want %q", test.state, err, test.why)
		}
	}
}

// Where a disk has lost messages of EVENTS and the archive has them, they are read there.
func TestArchiveMendsADamagedStream(t *testing.T) {
	all := new(memory)
	for i := range uint64(30) {
		all.messages = append(all.messages, pipeline.Message{Sequence: i + 1, Subject: "events.like", Data: []byte("{}")})
	}
	path := t.TempDir()
	add(t, path, all, 20)
	for _, test := range []struct {
		damage pipeline.Hole
		first  uint64 // that is missing then; 0: none
	}{
		{pipeline.Hole{First: 5, Last: 7}, 0},
		{pipeline.Hole{First: 1, Last: 1}, 0},
		{pipeline.Hole{First: 20, Last: 20}, 0},
		{pipeline.Hole{First: 19, Last: 21}, 21},
		{pipeline.Hole{First: 25, Last: 25}, 25},
	} {
		h := &History{
			Archive: func() (*Directory, error) { return OpenDirectory(path) },
			State:   func(context.Context) (Stream, error) { return Stream{First: 1, Created: created}, nil },
		}
		source, err := h.Open(t.Context(), 0, func(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
			return &damagedSource{all.messages[from.Next()-1:], test.damage}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		next := uint64(1)
		for err == nil && next <= 30 {
			var messages []pipeline.Message
			messages, err = source.Next(t.Context())
			for _, m := range messages {
				if m.Sequence != next {
					t.Fatalf("%v: message %d comes for %d", test.damage, m.Sequence, next)
				}
				next++
			}
		}
		damage, is := errors.AsType[*pipeline.Hole](err)
		if test.first == 0 && err != nil || test.first > 0 && (!is || damage.First != test.first || next != test.first) {
			t.Errorf("%v: %d messages came, then %v", test.damage, next-1, err)
		}
	}
}

// damagedSource has messages of which some are missing.
type damagedSource struct {
	messages []pipeline.Message
	damage   pipeline.Hole
}

func (s *damagedSource) Next(context.Context) ([]pipeline.Message, error) {
	if first := s.messages[0].Sequence; first >= s.damage.First && first <= s.damage.Last {
		return nil, &pipeline.Hole{First: first, Last: s.damage.Last} // as a reader that begins there
	}
	run := s.messages[:1]
	s.messages = s.messages[1:]
	return run, nil
}

func (s *damagedSource) Close() error { return nil }
