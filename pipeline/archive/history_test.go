package archive

import (
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
