package node

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// "max_age configured by the operator is no such purge."
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
