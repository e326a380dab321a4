package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/query"
)

// The log against a list of everything, sorted when it is asked.
func TestSlowLogAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Slow{
			Threshold: time.Duration(rapid.IntRange(0, 30).Draw(t, "threshold")) * time.Microsecond,
			Entries:   rapid.IntRange(1, 9).Draw(t, "entries"),
		}
		l := newSlowLog(o)
		var all []query.SlowRequest
		for i := range rapid.IntRange(0, 60).Draw(t, "requests") {
			if rapid.IntRange(0, 30).Draw(t, "reset") == 0 {
				checkSlow(t, o, all, l.take(true))
				all = nil
			}
			total := rapid.Int64Range(0, 40).Draw(t, "total")
			r := query.SlowRequest{IDs: i, TotalUS: total, PositionUS: rapid.Int64Range(0, total).Draw(t, "position")}
			k := clock{total: time.Duration(total) * time.Microsecond}
			k.spent[stagePosition] = time.Duration(r.PositionUS) * time.Microsecond
			all = append(all, r)
			if l.wants(&k) {
				if over := l.isOver(&k); over != isOver(o, &r) {
					t.Fatalf("%+v is over %v: %v", r, o.Threshold, over)
				}
				l.add(&r, l.isOver(&k))
			}
		}
		checkSlow(t, o, all, l.take(false))
	})
}

// isOver: what was waited for the position does not count.
func isOver(o Slow, r *query.SlowRequest) bool {
	return o.Threshold > 0 && r.TotalUS-r.PositionUS > o.Threshold.Microseconds()
}

func checkSlow(t *rapid.T, o Slow, all []query.SlowRequest, got query.SlowLog) {
	slowest := slices.Clone(all)
	slices.SortStableFunc(slowest, func(a, b query.SlowRequest) int { return cmp.Compare(b.TotalUS, a.TotalUS) })
	slowest = slowest[:min(len(slowest), o.Entries)]
	var latest []query.SlowRequest
	for _, r := range slices.Backward(all) {
		if isOver(o, &r) {
			latest = append(latest, r)
		}
	}
	over := len(latest)
	latest = latest[:min(len(latest), o.Entries)]
	if !slices.Equal(got.Slowest, slowest) || !slices.Equal(got.Latest, latest) || got.OverThreshold != uint64(over) {
		t.Fatalf("%d over; slowest %v, want %v; latest %v, want %v", got.OverThreshold, got.Slowest, slowest, got.Latest, latest)
	}
}

// docs/run.md: "… 60 seconds, with how many were `left_out`"
func TestSlowLinesArePaced(t *testing.T) {
	var pace linePace
	start := time.Now()
	var lines []string
	slow := func(second float64) {
		if line, leftOut := pace.line(start.Add(time.Duration(second * float64(time.Second)))); line {
			lines = append(lines, fmt.Sprintf("%v:%d", second, leftOut))
		}
	}
	for i := range 2400 { // four minutes of bulk work
		slow(float64(i) / 10)
	}
	slow(299.8)
	slow(359.8) // quiet for a minute: from the beginning
	slow(360.8)
	if got, want := fmt.Sprint(lines), "[0:0 1:9 3:19 7:39 15:79 31:159 63:319 123:599 183:599 299.8:569 359.8:0 360.8:0]"; got != want {
		t.Errorf("lines %v, want %v", got, want)
	}
}

func TestClipTo(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"1234":                      "1234",
		"12345":                     "1234…",
		"12\n4\x7f":                 "12 4…",
		"123äß":                     "123…",
		"12äß":                      "12ä…",
		"\xff2\xff4":                "\ufffd2\ufffd4",
		"1\xff\xff\xff\xff\xff\xff": "1…",
	} {
		if got := clipTo([]byte(text), 4); got != want {
			t.Errorf("%q is clipped to %q, want %q", text, got, want)
		}
	}
	if got := clipTo([]byte(strings.Repeat("x", 4000)), slowRequestMax); got != strings.Repeat("x", 512)+"…" {
		t.Errorf("%d bytes", len(got))
	}
}

// The stages add up to the total, whatever the disk is said to have taken.
func TestStagesAddUp(t *testing.T) {
	for _, disk := range []time.Duration{-time.Hour, 0, time.Microsecond, time.Hour} {
		var k clock
		k.begin()
		k.lap(stageParse)
		k.start = k.start.Add(-2 * time.Millisecond) // which pass
		k.read(stageMemory, disk)
		k.lap(stageTurn)
		k.read(stageMemory, 0)
		k.lap(stageWrite)
		var sum time.Duration
		for _, spent := range k.spent {
			sum += spent
			if spent < 0 {
				t.Errorf("disk %v: %v", disk, k.spent)
			}
		}
		if sum != k.total || k.spent[stageMemory]+k.spent[stageDisk] < 2*time.Millisecond {
			t.Errorf("disk %v: %v add up to %v, the total is %v", disk, k.spent, sum, k.total)
		}
	}
}

// A crowd does not wait for the time of the next look at the log, unless looks fail.
func TestLookSooner(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			looks := 0
			e := newLogEnd(ctx, func(context.Context) (uint64, error) {
				looks++
				return 7, nil
			}, func(f func()) bool { go f(); return true })
			e.next, e.failed = time.Now().Add(time.Hour), fails
			for range lookSooner {
				e.await(7, func(error) {})
			}
			synctest.Wait()
			if sooner := looks == 1; sooner == fails {
				t.Errorf("the looks before fail: %v, and there are %d", fails, looks)
			}
			cancel()
		})
	}
}
