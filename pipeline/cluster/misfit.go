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
// when they can: the same number of shards, the same counters and rules, and
// of each format a version that both read. A process without a
// configuration of its own takes that of the others.
//
// Where each two of several members have a version in common, all of them have one:
// versions are ranges (Helly's theorem).
func Misfit(a, b *Member) error {
	switch {
	case a.Shards != 0 && b.Shards != 0 && a.Shards != b.Shards:
		return fmt.Errorf("cluster: node %s has %d shards, node %s has %d: all nodes must have the same number (shards)", a.Node, a.Shards, b.Node, b.Shards)
	case a.Fingerprint != 0 && b.Fingerprint != 0 && a.Fingerprint != b.Fingerprint:
		if a.Counters != b.Counters {
			return fmt.Errorf("cluster: node %s counts %s; node %s counts %s: all nodes must have the same counters and rules", a.Node, a.Counters, b.Node, b.Counters)
		}
		return fmt.Errorf("cluster: node %s and node %s count the same columns by other rules (fingerprints %v and %v): all nodes must have the same rules", a.Node, b.Node, a.Fingerprint, b.Fingerprint)
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
