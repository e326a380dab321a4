package cluster

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Misfit says why two members cannot work together, naming both sides; nil
// when they can: the same number of shards, the same counters and rules, and
// wires of which each understands the other's. A process without a
// configuration of its own takes that of the others.
func Misfit(a, b *Member) error {
	switch {
	case a.Shards != 0 && b.Shards != 0 && a.Shards != b.Shards:
		return fmt.Errorf("cluster: node %s has %d shards, node %s has %d: all nodes must have the same number (shards)", a.Node, a.Shards, b.Node, b.Shards)
	case a.Fingerprint != 0 && b.Fingerprint != 0 && a.Fingerprint != b.Fingerprint:
		if a.Counters != b.Counters {
			return fmt.Errorf("cluster: node %s counts %s; node %s counts %s: all nodes must have the same counters and rules", a.Node, a.Counters, b.Node, b.Counters)
		}
		return fmt.Errorf("cluster: node %s and node %s count the same columns by other rules (fingerprints %v and %v): all nodes must have the same rules", a.Node, b.Node, a.Fingerprint, b.Fingerprint)
	case a.Wire < b.WireMin:
		return tooOld(a, b)
	case b.Wire < a.WireMin:
		return tooOld(b, a)
	}
	return nil
}

func tooOld(a, b *Member) error {
	return fmt.Errorf("cluster: node %s (version %s) speaks version %d of the wire between nodes, node %s (version %s) understands %d to %d: bring %s up to date",
		a.Node, a.Version, a.Wire, b.Node, b.Version, b.WireMin, b.Wire, a.Node)
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
