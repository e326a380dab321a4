package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Each caller waits for its answer before it asks again; what they take is
// counted, and their connections are closed.
func TestCallFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, most, asking atomic.Int64
		got, err := callFor(t.Context(), 4, time.Second, func() (call, io.Closer, error) {
			open.Add(1)
			return func(context.Context, *rand.Rand) error {
				now := asking.Add(1)
				most.Store(max(most.Load(), now))
				time.Sleep(10 * time.Millisecond)
				asking.Add(-1)
				return nil
			}, closer(func() { open.Add(-1) }), nil
		})
		if err != nil || got.perSecond != 400 || len(got.took) != 400 {
			t.Errorf("%v a second, %d calls, %v; want 400", got.perSecond, len(got.took), err)
		}
		if p := got.took.quantile(0.9999); p != 10 {
			t.Errorf("a call took %v ms, want 10", p)
		}
		if most.Load() != 4 || open.Load() != 0 {
			t.Errorf("%d called at once, %d connections are open; want 4 and 0", most.Load(), open.Load())
		}
		failing := errors.New("no")
		_, err = callFor(t.Context(), 2, time.Second, func() (call, io.Closer, error) {
			n := 0
			return func(context.Context, *rand.Rand) error {
				if n++; n > 3 {
					return failing
				}
				return nil
			}, closer(func() {}), nil
		})
		if !errors.Is(err, failing) {
			t.Errorf("a call fails and the error is %v", err)
		}
	})
}

// A call that takes long does not hold up the next ones, and counts from when
// it was due.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		got, err := pace(t.Context(), 100, time.Second, func(_ context.Context, i int, _ uint64) error {
			if i == 10 {
				time.Sleep(500 * time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		slices.Sort(got)
		if err != nil || len(got) != 100 || got[98] != 1 || got[99] != 501 {
			t.Errorf("%v, %v", got, err)
		}
		if took := time.Since(begun); took != 991*time.Millisecond {
			t.Errorf("100 calls at 100 a second took %v", took)
		}
	})
}

func TestPollers(t *testing.T) {
	for _, group := range allPollers {
		for _, authors := range []int{tiny.polled, short.polled, large.polled} {
			seen := map[int]bool{}
			for _, a := range group.followed(3, authors) {
				if seen[a] || a < 0 || a >= authors {
					t.Fatalf("of %d authors, %d is followed twice or is none", authors, a)
				}
				seen[a] = true
			}
			if len(seen) != group.follow {
				t.Errorf("%d are followed, want %d", len(seen), group.follow)
			}
		}
	}
	if n := allPollers[0].unread(3, short.polled); n != followees/newOf {
		t.Errorf("%d posts are new, want %d", n, followees/newOf)
	}
	if short.pollers > 1<<40 || allPollers[1].first-allPollers[0].first < uint64(large.pollers) {
		t.Error("the groups share users")
	}
}
