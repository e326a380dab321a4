package config

import "gopkg.in/yaml.v3"

// valuesMax bounds the YAML values of a file with every alias replaced by what
// it names. The default file has some 400.
const valuesMax = 100_000

// unfolding counts what a document unfolds to, without unfolding it: an
// alias counts as the size of what it names, which is known by then, since YAML
// wants the anchor first.
type unfolding struct {
	decoder *decoder
	values  int                // so far
	sizes   map[*yaml.Node]int // of the anchored nodes that are counted
}

// bounded says whether the aliases of a document unfold to at most valuesMax
// values. If not, it reports the place.
func (d *decoder) bounded(root *yaml.Node) bool {
	u := unfolding{decoder: d, sizes: make(map[*yaml.Node]int)}
	return u.count(root)
}

// count adds a node. false: a fault is reported.
func (u *unfolding) count(n *yaml.Node) bool {
	before := u.values
	u.values++
	if n.Kind == yaml.AliasNode {
		size, known := u.sizes[n.Alias]
		if !known {
			u.decoder.fault(n.Line, "", "the alias *%s is inside what it names", n.Value)
			return false
		}
		u.values = before + size
	}
	if u.values > valuesMax {
		u.decoder.fault(n.Line, "", "the file has more than %d values up to here, aliases unfolded; name fewer, or smaller ones", valuesMax)
		return false
	}
	for _, child := range n.Content {
		if !u.count(child) {
			return false
		}
	}
	if n.Anchor != "" {
		u.sizes[n] = u.values - before
	}
	return true
}
