package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Misfit says why two members cannot work together, naming both sides; nil
// when they can: they are of one generation, which has one number of shards, one
// set of counters, rules and bounds, and of each format there is a version that both
// read. A process without counts of its own takes what the others count.
//
// Where each two of several members have a version in common, all of them have one:
// versions are ranges (Helly's theorem).
func Misfit(a, b *Member) error {
	switch {
	case a.Shards != 0 && b.Shards != 0 && a.Shards != b.Shards:
		return fmt.Errorf("cluster: node %s has %d shards, node %s has %d: they are of different generations; 'tidemark rebuild --status' says which one serves", a.Node, a.Shards, b.Node, b.Shards)
	case a.Fingerprint != 0 && b.Fingerprint != 0 && a.Fingerprint != b.Fingerprint:
		return fmt.Errorf("cluster: node %s counts %s (fingerprint %v); node %s counts %s (%v): they are of different generations; 'tidemark rebuild --status' says which one serves",
			a.Node, a.Counters, a.Fingerprint, b.Node, b.Counters, b.Fingerprint)
	}
	return formatMisfit(a, b)
}

// formatMisfit names the first format, by name, of which two members read no common
// version.
func formatMisfit(a, b *Member) error {
	names := slices.Sorted(maps.Keys(a.Formats))
	for name := range b.Formats {
		if _, both := a.Formats[name]; !both {
			names = append(names, name)
		}
	}
	for _, name := range names {
		switch x, y := a.Formats[name], b.Formats[name]; {
		case x[1] < y[0]:
			return tooOld(name, a, b)
		case y[1] < x[0]:
			return tooOld(name, b, a)
		}
	}
	return nil
}

// tooOld is for a member that reads no version of a format that the newer one writes.
func tooOld(format string, old, newer *Member) error {
	x, y := old.Formats[format], newer.Formats[format]
	return fmt.Errorf("cluster: node %s (version %s) reads %s of versions %d to %d, node %s (version %s) of versions %d to %d: they cannot work together. "+
		"Upgrade node %s, or start node %s with a version between the two first (docs/nodes.md, Rolling upgrade)",
		old.Node, old.Version, format, x[0], x[1], newer.Node, newer.Version, y[0], y[1], old.Node, newer.Node)
}

// Summary is what a schema counts, on one line for people, for
// Member.Counters: "post(repost comment like) user(post)". What is too long ends
// with "…".
func Summary(s *pipeline.Schema) string {
	var b strings.Builder
	for i, counter := range s.Counters {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(counter.Name + "(")
		for j, c := range s.Visible(i) {
			if j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(s.Columns[c].Name)
		}
		b.WriteByte(')')
	}
	const more = "…"
	text := b.String()
	if len(text) <= CountersMax {
		return text
	}
	end := CountersMax - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
