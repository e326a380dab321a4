package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tiny is enough to see that every line comes about.
var tiny = sizes{
	rounds: 1, round: 100 * time.Millisecond, backlog: 5120, pace: 1000,
	posts: 1000, authors: 1000, users: 10, rows: 2000, members: 1000,
}

// A load is this program again, with other arguments, and so is an echo.
func TestMain(m *testing.M) {
	beChild(os.Args)
	os.Exit(m.Run())
}

// Every measurement runs, at a size that says nothing.
func TestEveryLine(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the program")
	}
	b, err := newBench(tiny, "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if b.redis == "" && os.Getenv("CI") == "true" {
		t.Error(errRedis)
	}
	good := b.run()
	t.Log("\n" + b.table.text(b.machine()))
	if !good {
		t.Fatal("a measurement failed")
	}
	for _, l := range b.table.lines {
		if len(l.ours) == 0 || l.ours.median() < 0 {
			t.Errorf("%s: no figure", l.what)
		}
	}
	if want := 29; len(b.table.lines) != want {
		t.Errorf("%d lines, want %d", len(b.table.lines), want)
	}
}

func TestOnly(t *testing.T) {
	b, err := newBench(tiny, "polls,packs", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if len(b.wanted) != 2 || !b.wanted["polls"] || !b.wanted["packs"] {
		t.Errorf("%v", b.wanted)
	}
	if _, err := newBench(tiny, "polls,speed", t.Output()); err == nil || !strings.Contains(err.Error(), "multiget") {
		t.Errorf("an unknown name: %v", err)
	}
}

// After the run nothing is left, and nothing can be started.
func TestNothingIsLeft(t *testing.T) {
	b, err := newBench(tiny, "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	p := b.children.start(filepath.Join(b.dir, "log"), "sleep", "60")
	b.close()
	if p.ended() == nil {
		t.Error("a child still runs")
	}
	if caught(func() { b.children.start(filepath.Join(t.TempDir(), "log"), "sleep", "60") }) == nil {
		t.Error("a child was started after the end")
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("the directory is still there")
	}
}

func TestPosts(t *testing.T) {
	seen, wide := map[uint64]bool{}, 0
	for i := range uint64(100_000) {
		id := postID(i)
		if seen[id] || id == 0 {
			t.Fatalf("post %d has id %d, which is taken", i, id)
		}
		seen[id] = true
		if slices.Min([]int64{countsOf(i)[0], countsOf(i)[1], countsOf(i)[2]}) < 1 {
			t.Fatalf("post %d counts %v", i, countsOf(i))
		}
		if countsOf(i)[2] > 255 {
			wide++
		}
	}
	if wide < 100 || wide > 400 {
		t.Errorf("%d of 100,000 like counts do not fit into 8 bits; some 200 are meant to", wide)
	}
	for _, f := range []followers{many, few} {
		all := f.followed(3, normal.authors)
		slices.Sort(all)
		if len(slices.Compact(all)) != f.follow || all[f.follow-1] >= uint64(normal.authors) {
			t.Errorf("a user who follows %d follows %v", f.follow, all)
		}
	}
}

func TestSample(t *testing.T) {
	s := sample{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := s.median() + (sample{1, 2}).median(); got != 4.5 {
		t.Errorf("medians of five and of two: %v together", got)
	}
	if got := (sample{6, 8, 9}).over(sample{2, 4}); !slices.Equal(got, sample{3, 2}) {
		t.Errorf("ratios %v", got)
	}
	if got := number(sample{}.median()) + number(sample{}.quantile(1)); got != "––" {
		t.Errorf("of nothing: %s", got)
	}
	for v, want := range map[float64]string{
		0: "0", 0.7: "0.700", 0.0123: "0.0123", 4: "4.00", 47.25: "47.2", 123.4: "123", 1234: "1,230",
		999_999: "1,000,000", 12_345_678: "12,300,000", 1e-9: "0.000000",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		line
		want string
	}{
		"no target":       {line{ours: sample{1}}, "–"},
		"no figure":       {line{target: atLeast(1)}, "–"},
		"no rival":        {line{ours: sample{1}, target: ratioAtLeast(1)}, "–"},
		"fast enough":     {line{ours: sample{5, 1, 6}, target: atLeast(5)}, "yes"},
		"too slow":        {line{ours: sample{5, 1, 4}, target: atLeast(5)}, "no"},
		"small enough":    {line{ours: sample{5}, target: atMost(5)}, "yes"},
		"too large":       {line{ours: sample{5.1}, target: atMost(5)}, "no"},
		"ratio holds":     {line{ours: sample{4, 9}, theirs: sample{1, 3}, target: ratioAtLeast(3.5)}, "yes"},
		"ratio does not":  {line{ours: sample{4, 9}, theirs: sample{1, 3}, target: ratioAtLeast(3.6)}, "no"},
		"the median does": {line{ours: sample{1, 50, 60}, target: atMost(50)}, "yes"},
	} {
		if got := c.verdict(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	b := &bench{wanted: map[string]bool{}}
	b.table.add(
		line{what: "ingest", unit: "events/s", ours: sample{300_000, 330_000}, beside: "bare", theirs: sample{400_000, 400_000}, target: ratioAtLeast(0.7)},
		line{what: "memory", unit: "bytes", ours: sample{20}, target: atMost(20)},
		line{what: "feed", failed: true})
	b.table.note("feed failed: %v", errors.New("no luck"))
	const want = `two cores

| what   | Tidemark         | rounds          | beside it | figure           | ratio | target     | holds |
| ---    | --:              | --:             | ---       | --:              | --:   | --:        | ---   |
| ingest | 315,000 events/s | 300,000–330,000 | bare      | 400,000 events/s | 0.787 | ≥ 0.7 ×    | yes   |
| memory | 20.0 bytes       | –               | –         | –                | –     | ≤ 20 bytes | yes   |
| feed   | failed           | –               | see below | –                | –     | –          | –     |

- feed failed: no luck
`
	if got := b.table.text("two cores"); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// Each caller waits for its answer before it asks again, and its connection is closed.
func TestCallFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, most, asking atomic.Int64
		got := callFor(4, time.Second, func() (call, func()) {
			open.Add(1)
			return func(*rand.Rand) error {
				now := asking.Add(1)
				most.Store(max(most.Load(), now))
				time.Sleep(10 * time.Millisecond)
				asking.Add(-1)
				return nil
			}, func() { open.Add(-1) }
		})
		if got != 400 || most.Load() != 4 || open.Load() != 0 {
			t.Errorf("%v a second, %d at once, %d connections are open; want 400, 4 and 0", got, most.Load(), open.Load())
		}
		no := errors.New("no")
		err := caught(func() {
			callFor(2, time.Second, func() (call, func()) {
				n := 0
				return func(*rand.Rand) error {
					if n++; n > 5 {
						return no
					}
					return nil
				}, func() {}
			})
		})
		if !errors.Is(err, no) {
			t.Errorf("a call fails and the error is %v", err)
		}
	})
}

// A call that takes long does not hold up the next ones, and counts from when it was due.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		got := pace(100, time.Second, func(i int, _ time.Time, _ *rand.Rand) error {
			if i == 10 {
				time.Sleep(500 * time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		slices.Sort(got)
		if len(got) != 100 || got[98] != 1 || got[99] != 501 {
			t.Errorf("%v", got)
		}
		if took := time.Since(begun); took != 991*time.Millisecond {
			t.Errorf("100 calls at 100 a second took %v", took)
		}
	})
}
