package cold

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A merge rests however small it is: many of them must not take a core, and
// Close must not wait for all that are due.
func TestSmallMergesRest(t *testing.T) {
	s, _ := byHand(t, t.TempDir(), nil)
	defer closeStore(t, s)
	for at := range pipeline.Position(RunsWanted + 1) {
		checkpoint(t, s, 0, at+1, func(to Sink) { to.Row(0, uint64(at+1), []int64{1}) })
	}
	rests := 0
	if did, err := s.MergeOnce(func(time.Duration) bool { rests++; return false }); did || !errors.Is(err, errStopped) || rests != 1 {
		t.Errorf("%v, %v after %d rests", did, err, rests)
	}
	if n := s.Stack(0).runs(); n != RunsWanted+1 {
		t.Errorf("%d runs", n)
	}
	if did, err := s.MergeOnce(func(time.Duration) bool { rests++; return true }); !did || err != nil || rests != 2 {
		t.Errorf("%v, %v after %d rests", did, err, rests)
	}
}

// Verifying takes a small part of one core.
func TestVerifyRests(t *testing.T) {
	s, _ := byHand(t, t.TempDir(), nil)
	defer closeStore(t, s)
	checkpoint(t, s, 0, 1, func(to Sink) {
		for id := range uint64(500_000) {
			to.Row(0, id+1, []int64{int64(id + 1)})
		}
	})
	rested := time.Duration(0)
	s.pause = func(d time.Duration) { rested += d }
	begun := time.Now()
	s.Verify(func() bool { return true }, func(d Damage) { t.Error(d) })
	took := time.Since(begun)
	// A piece may be long where others have the processor; its rest is bounded.
	if most := took * 11; rested < took/2 || rested > most {
		t.Errorf("after %v of work it rested %v, want %v at least and %v at most", took, rested, took/2, most)
	}
}
