package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is what a run did.
type report struct {
	injected    map[string]int
	impossible  map[string]int // drawn at a moment when they could not be done
	left        []string       // kinds that cannot be done here, and why
	refused     int            // starts that were refused and tried again
	comparisons int
	asked       int64
	between     int // numbers of answers given meanwhile
	letters     int
	twice       int // letters of these that are there once more

	lines, troubles int
}

func newReport() *report {
	return &report{injected: map[string]int{}, impossible: map[string]int{}}
}

func (r *report) text(s *soak) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	result := "GOOD"
	if s.Failed() {
		result = "FAILED"
	}
	line("\nsoak: %s, seed %d, %v", result, s.seed, time.Since(s.begun).Round(time.Second))
	total := 0
	for _, n := range r.injected {
		total += n
	}
	line("\nfaults: %d", total)
	for _, kind := range slices.Sorted(maps.Keys(r.injected)) {
		line("  %5d  %s", r.injected[kind], kind)
	}
	for _, left := range r.left {
		line("  not done here: %s", left)
	}
	line("\nevents")
	line("  %9d  acknowledged, in %d messages", s.book.events.Load(), len(s.book.records)-1)
	line("  %9d  read back from EVENTS and counted, each once", s.truth.events)
	line("  %9d  refused, each in DEADLETTER; %d of its %d letters are there a second time", len(s.truth.refused), r.twice, r.letters)
	line("  %9d  lost in power cuts, counted or not, and none is counted in the end", s.truth.lost)
	line("  %9d  publishings again because no acknowledgement came; %d of them had been stored", s.book.retries.Load(), s.book.duplicates.Load())
	line("\ncompared with the twin: %d times each half of the nodes, %d answers about %d communities", r.comparisons, r.asked, len(s.book.communities))
	line("  %9d  numbers of answers given meanwhile are the twin's between their as_of and the last message stored when they came", r.between)
	line("  %9d  questions were answered meanwhile, %d of them degraded, none older than %v else; %d were not, beside faults",
		s.probes.answers, s.probes.degraded, freshness, s.probes.lost)
	line("nodes at the end: %d that hold, %d that only answer", len(s.nodes), len(s.thin))
	line("starts refused and tried again: %d", r.refused)
	if len(s.abuse.kinds) > 0 {
		line("\nabuse: %s", strings.Join(s.abuse.kinds, ", "))
		for _, l := range s.abuse.loads {
			line("  %9d  of %d %s", l.done.Load(), l.size, l.name)
		}
		line("  %9d  followees and %d posts are there at the end", s.abuse.crowd.Followees(hub), s.abuse.crowd.Listed(writer))
	}
	line("\nlines logged: %d, of trouble: %d", r.lines, r.troubles)
	return b.String()
}
