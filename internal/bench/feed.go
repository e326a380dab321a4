package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"time"
)

const (
	followees = 500
	// feedUsers is how many users take turns.
	feedUsers = 2000
)

// feed runs the benchmark beside the code on one core, and reads its figure.
// Beside it: what one core gathers of a dense array, a compare for each
// followee, which is the least that the answer takes.
func (b *bench) feed(ctx context.Context) error {
	b.say("feed: %d followees of %s authors", followees, number(float64(b.size.authors)))
	name := fmt.Sprintf("BenchmarkFeedUnread/authors=%d", b.size.authors)
	c := exec.CommandContext(ctx, goCommand(), "test", "-run", "^$", "-bench", "^BenchmarkFeedUnread$/^authors="+strconv.Itoa(b.size.authors)+"$",
		"-cpu", "1", "-benchtime", b.size.feedTime, "-count", strconv.Itoa(b.size.rounds), product+"/sinks")
	printed, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test -bench %s: %w\n%s", name, err, printed)
	}
	out := line{
		what: fmt.Sprintf("feed unread, 500 followees of %s authors, a core", number(float64(b.size.authors))), unit: "users/s",
		ours: benchmarked(printed, name, "users/s"), beside: "a gather of 500 dense entries", target: atLeast(100_000),
	}
	if len(out.ours) != b.size.rounds {
		return fmt.Errorf("go test -bench %s: %d figures of %d\n%s", name, len(out.ours), b.size.rounds, printed)
	}
	out.theirs = gather(b.size.authors, b.size.rounds)
	b.say("feed: %s users a second", number(out.ours.median()))
	b.table.add(out)
	return nil
}

// benchmarked are the figures with a unit in what `go test -bench` printed of
// a benchmark.
func benchmarked(printed []byte, name, unit string) (s sample) {
	pattern := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(?:-\d+)?\s.*?\s([\d.e+]+) ` + regexp.QuoteMeta(unit) + `\b`)
	for _, m := range pattern.FindAllSubmatch(printed, -1) {
		if v, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
			s = append(s, v)
		}
	}
	return s
}

// gather compares entries drawn at random, for users a second.
func gather(authors, rounds int) (s sample) {
	r := rand.New(rand.NewPCG(1, 2))
	newest := make([]uint64, authors)
	for i := range newest {
		newest[i] = r.Uint64()
	}
	follows := make([]uint32, feedUsers*followees)
	for i := range follows {
		follows[i] = uint32(r.IntN(authors))
	}
	unread := 0
	for range rounds {
		asked := 0
		begun := time.Now()
		for ; time.Since(begun) < time.Second/2; asked++ {
			from := asked % feedUsers * followees
			mark := uint64(asked) << 32
			for _, author := range follows[from : from+followees] {
				if newest[author] > mark {
					unread++
				}
			}
		}
		s = append(s, float64(asked)/time.Since(begun).Seconds())
	}
	runtime.KeepAlive(unread)
	return s
}
