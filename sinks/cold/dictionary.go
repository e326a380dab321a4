package cold

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Dictionary gives counters, columns and sets their numbers on disk: a counter
// its index here, a column its index in its counter, a set its index here too.
// Names are only ever added.
type Dictionary []DictionaryCounter

// DictionaryCounter is a counter with every column it ever had, or the set of a
// column: its name is the column's full name, and it has no columns.
type DictionaryCounter struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
}

// countersMax is what a key has room for.
const countersMax = 255

// set says that it is a set: no counter has a dot in its name.
func (c *DictionaryCounter) set() bool { return strings.Contains(c.Name, ".") }

// extend adds the schema's names; changed says whether there were new ones.
func (d Dictionary) extend(schema *pipeline.Schema) (out Dictionary, changed bool, err error) {
	out = append(out, d...)
	for _, counter := range schema.Counters {
		at := out.find(counter.Name)
		if at < 0 {
			at = len(out)
			out = append(out, DictionaryCounter{Name: counter.Name})
			changed = true
		}
		for _, c := range schema.Columns[counter.First : counter.First+pipeline.Column(counter.Count)] {
			if slices.Index(out[at].Columns, c.Name) < 0 {
				out[at].Columns = append(out[at].Columns[:len(out[at].Columns):len(out[at].Columns)], c.Name)
				changed = true
			}
		}
	}
	for _, c := range schema.Sets() {
		if name := schema.FullName(c); out.find(name) < 0 {
			out = append(out, DictionaryCounter{Name: name})
			changed = true
		}
	}
	if len(out) > countersMax {
		return nil, false, fmt.Errorf("cold: %d counters and sets have been counted here, at most %d fit", len(out), countersMax)
	}
	return out, changed, nil
}

// merge is the schema with what earlier configurations counted added as
// hidden columns: a column taken out of the configuration by mistake loses
// nothing.
func (d Dictionary) merge(schema *pipeline.Schema) (*pipeline.Schema, error) {
	if twice := d.twice(); twice != "" {
		return nil, fmt.Errorf("%w: the dictionary has %q twice", ErrCorrupt, twice)
	}
	var names []string
	for _, c := range schema.Counters {
		names = append(names, c.Name)
	}
	for _, c := range d {
		if _, ok := schema.Counter(c.Name); !ok && !c.set() {
			names = append(names, c.Name)
		}
	}
	var columns []pipeline.ColumnSpec
	for i, name := range names {
		var known []string
		if i < len(schema.Counters) {
			c := schema.Counters[i]
			columns = append(columns, schema.Columns[c.First:c.First+pipeline.Column(c.Count)]...)
			for _, spec := range schema.Columns[c.First : c.First+pipeline.Column(c.Count)] {
				known = append(known, spec.Name)
			}
		}
		at := d.find(name)
		if at < 0 {
			continue
		}
		for _, column := range d[at].Columns {
			if slices.Index(known, column) < 0 {
				columns = append(columns, pipeline.ColumnSpec{Counter: i, Name: column, Bits: 16, Max: 63, Hidden: true})
			}
		}
	}
	return pipeline.NewSchema(names, columns)
}

// twice is a name that two numbers mean, or nothing.
func (d Dictionary) twice() string {
	for i, counter := range d {
		if d.find(counter.Name) != i {
			return counter.Name
		}
		for j, column := range counter.Columns {
			if slices.Index(counter.Columns, column) != j {
				return counter.Name + "." + column
			}
		}
	}
	return ""
}

func (d Dictionary) find(counter string) int {
	for i := range d {
		if d[i].Name == counter {
			return i
		}
	}
	return -1
}
