package counting

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// A max_age that the operator has configured is no such purge.
func TestFront(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		first uint64
		at    time.Duration // the first message's age at the look
		lost  uint64
	}
	for name, c := range map[string]struct {
		ageMax time.Duration
		looks  []look
	}{
		"nothing goes":                    {0, []look{{1, time.Hour, 0}, {1, time.Hour, 0}}},
		"nothing is there yet":            {0, []look{{0, 0, 0}, {1, 0, 0}, {1, time.Second, 0}}},
		"purged before the start":         {0, []look{{8, time.Hour, 7}, {8, time.Hour, 0}}},
		"purged meanwhile":                {0, []look{{1, time.Hour, 0}, {5, time.Minute, 4}, {6, time.Minute, 1}}},
		"it ages":                         {time.Hour, []look{{5, time.Hour, 0}, {9, time.Hour, 0}, {12, time.Hour, 0}}},
		"purged, of what would have aged": {time.Hour, []look{{5, time.Minute, 0}, {9, time.Second, 4}}},
	} {
		var f front
		total := uint64(0)
		for i, l := range c.looks {
			now := begun.Add(time.Duration(i) * time.Second)
			lost := f.see(jetlog.StreamState{First: l.first, FirstTime: now.Add(-l.at), Now: now}, c.ageMax)
			if total += l.lost; lost != l.lost || f.gone() != total {
				t.Errorf("%s: look %d: %d lost, %d in all, want %d, %d", name, i, lost, f.gone(), l.lost, total)
			}
		}
	}
}

// What is trimmed, and what a new EVENTS never had, is not lost; what goes beyond is.
func TestFrontTrimmed(t *testing.T) {
	var f front
	for i, c := range []struct {
		first, below, after, lost uint64
	}{{1, 0, 0, 0}, {5, 5, 0, 0}, {5, 9, 0, 0}, {9, 9, 0, 0}, {12, 9, 0, 3}} {
		now := jetlog.StreamState{First: c.first, Trimmed: jetlog.Trimmed{Below: c.below}, Continues: jetlog.Continues{After: c.after}}
		if lost := f.see(now, 0); lost != c.lost {
			t.Errorf("look %d: %d lost, want %d", i, lost, c.lost)
		}
	}
	if lost := new(front).see(jetlog.StreamState{First: 101, Continues: jetlog.Continues{After: 100}}, 0); lost != 0 {
		t.Errorf("it goes on after 100, and %d are lost", lost)
	}
}
