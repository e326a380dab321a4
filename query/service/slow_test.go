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
)

// The log against a list of everything, sorted when it is asked.
func TestSlowLogAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Slow{
			Threshold: time.Duration(rapid.IntRange(0, 30).Draw(t, "threshold")),
			Entries:   rapid.IntRange(1, 9).Draw(t, "entries"),
		}
		l := newSlowLog(o)
		var all []*slowEntry
		for i := range rapid.IntRange(0, 60).Draw(t, "requests") {
			if rapid.IntRange(0, 30).Draw(t, "reset") == 0 {
				checkSlow(t, o, all, l.take(true))
				all = nil
			}
			e := &slowEntry{ids: i, clock: clock{total: time.Duration(rapid.IntRange(0, 40).Draw(t, "total"))}}
			e.clock.spent[stagePosition] = time.Duration(rapid.IntRange(0, int(e.clock.total)).Draw(t, "position"))
			all = append(all, e)
			if l.wants(&e.clock) {
				over, _, _ := l.add(e)
				if over != isOver(o, e) {
					t.Fatalf("%v, %v of it for the position, is over %v: %v", e.clock.total, e.clock.spent[stagePosition], o.Threshold, over)
				}
			}
		}
		checkSlow(t, o, all, l.take(false))
	})
}

// isOver: what was waited for the position does not count.
func isOver(o Slow, e *slowEntry) bool {
	return o.Threshold > 0 && e.clock.total-e.clock.spent[stagePosition] > o.Threshold
}

func checkSlow(t *rapid.T, o Slow, all []*slowEntry, got slowView) {
	slowest := slices.Clone(all)
	slices.SortStableFunc(slowest, func(a, b *slowEntry) int { return cmp.Compare(b.clock.total, a.clock.total) })
	slowest = slowest[:min(len(slowest), o.Entries)]
	var latest []*slowEntry
	for _, e := range slices.Backward(all) {
		if isOver(o, e) {
			latest = append(latest, e)
		}
	}
	over := len(latest)
	latest = latest[:min(len(latest), o.Entries)]
	if !slices.Equal(got.slowest, slowest) || !slices.Equal(got.latest, latest) || got.over != uint64(over) {
		t.Fatalf("%d over; slowest %v, want %v; latest %v, want %v", got.over, got.slowest, slowest, got.latest, latest)
	}
}

// docs/run.md: "… 60 seconds, with how many were `left_out`"
func TestSlowLinesArePaced(t *testing.T) {
	l := newSlowLog(Slow{Threshold: 1, Entries: 4})
	start := time.Now()
	lines := map[string][]string{}
	slow := func(endpoint string, second float64) {
		at := start.Add(time.Duration(second * float64(time.Second)))
		if _, line, leftOut := l.add(&slowEntry{endpoint: endpoint, clock: clock{start: at, total: time.Millisecond}}); line {
			lines[endpoint] = append(lines[endpoint], fmt.Sprintf("%v:%d", second, leftOut))
		}
	}
	for i := range 2400 { // four minutes of bulk work
		slow("unread", float64(i)/10)
	}
	slow("get", 120) // another endpoint's are not hidden by them
	slow("get", 120.5)
	slow("unread", 299.8)
	slow("unread", 359.8) // quiet for a minute: from the beginning
	slow("unread", 360.8)
	if got, want := fmt.Sprint(lines), "map[get:[120:0] unread:[0:0 1:9 3:19 7:39 15:79 31:159 63:319 123:599 183:599 299.8:569 359.8:0 360.8:0]]"; got != want {
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
