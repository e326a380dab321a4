package pipeline

import (
	"fmt"
	"slices"
)

// Column is the index of a column in a [Schema]: the same number in rules,
// windows, shards and answers of one process. On the wire and on disk columns
// go by name.
type Column uint16

// Schema is what this process counts: the counters of the configuration with
// their columns. It does not change after NewSchema.
type Schema struct {
	Counters []Counter
	Columns  []ColumnSpec // all columns, counter by counter

	byName   map[string]Column // "post.like"
	bySuffix map[string]Column // "cntan"
	counters map[string]int
	sets     []Column
}

// Counter is a family of rows keyed by one kind of id, "post" or "user".
type Counter struct {
	Name  string
	First Column // its columns are Schema.Columns[First : First+Count]
	Count int
}

// ColumnSpec describes one column.
type ColumnSpec struct {
	Counter int    // index in Schema.Counters
	Name    string // within its counter: "like"
	Suffix  string // a name of its own over all counters, or ""
	Bits    int    // width in the packed row at first
	Max     int    // width up to which it grows, 63 at most
	Default int64  // answered for a row that does not exist
	Signed  bool   // a sum below zero is answered as it is, and not as 0

	// Hidden columns are kept and applied but not shown: they were counted
	// under an earlier configuration, or they are Tidemark's own.
	Hidden bool
	// Ordered columns change with the follow graph or with a set as well as by
	// rules, so their changes are not merged but kept in log order. NewSchema sets it.
	Ordered bool
	// Set is of a column whose rules say `once`, or that keeps items.
	Set SetSpec
}

// HasSet says that the column has a set, and no list.
func (c *ColumnSpec) HasSet() bool { return c.Set.Members != NoMembers && c.Set.Items == 0 }

// ExistsColumn is the hidden column that distinguishes a row of zeros from no row, in
// counters that answer a default other than 0.
const ExistsColumn = "exists"

// orderedColumns are those that the follow graph maintains.
var orderedColumns = []string{
	"user.following", "user.follower", "user.friend", "unread.follower",
	"user." + ExistsColumn, "unread." + ExistsColumn,
}

// NoColumn stands for a column that a schema does not have.
const NoColumn = ^Column(0)

// FullName is the column's name over all counters: "post.like".
func (s *Schema) FullName(c Column) string {
	spec := &s.Columns[c]
	return s.Counters[spec.Counter].Name + "." + spec.Name
}

// NewSchema indexes counters whose names, column names and suffixes the
// configuration has already validated; columns come counter by counter.
func NewSchema(names []string, columns []ColumnSpec) (*Schema, error) {
	s := &Schema{
		Columns:  slices.Clone(columns),
		byName:   make(map[string]Column, len(columns)),
		bySuffix: make(map[string]Column),
		counters: make(map[string]int, len(names)),
	}
	for i, name := range names {
		if _, dup := s.counters[name]; dup {
			return nil, fmt.Errorf("pipeline: counter %q is defined twice", name)
		}
		s.counters[name] = i
		s.Counters = append(s.Counters, Counter{Name: name})
	}
	last := 0
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Counter < last || c.Counter >= len(names) {
			return nil, fmt.Errorf("pipeline: column %q is out of its counter's order", c.Name)
		}
		last = c.Counter
		counter := &s.Counters[c.Counter]
		if counter.Count == 0 {
			counter.First = Column(i)
		}
		counter.Count++
		full := counter.Name + "." + c.Name
		if _, dup := s.byName[full]; dup {
			return nil, fmt.Errorf("pipeline: column %q is defined twice", full)
		}
		s.byName[full] = Column(i)
		c.Ordered = slices.Contains(orderedColumns, full) || c.Set.Members != NoMembers
		if c.Set.Members != NoMembers {
			s.sets = append(s.sets, Column(i))
		}
		if c.Suffix == "" {
			continue
		}
		if _, dup := s.bySuffix[c.Suffix]; dup {
			return nil, fmt.Errorf("pipeline: suffix %q is given twice", c.Suffix)
		}
		s.bySuffix[c.Suffix] = Column(i)
	}
	if len(s.sets) > SetsMax {
		return nil, fmt.Errorf("pipeline: %d columns have a set or keep items, at most %d may", len(s.sets), SetsMax)
	}
	for _, set := range s.sets {
		// A row's deletion must fall between the same two members as that of its set.
		counter := s.Counters[s.Columns[set].Counter].Name
		if exists, ok := s.byName[counter+"."+ExistsColumn]; ok {
			s.Columns[exists].Ordered = true
		}
	}
	return s, nil
}

// Sets are the columns that have a set or a list, ascending. The caller must not change them.
func (s *Schema) Sets() []Column { return s.sets }

// Counter finds a counter by name.
func (s *Schema) Counter(name string) (index int, ok bool) {
	index, ok = s.counters[name]
	return index, ok
}

// Find is the column with a full name ("post.like").
func (s *Schema) Find(full string) (Column, bool) {
	c, ok := s.byName[full]
	return c, ok
}

// Suffix is the column with a suffix ("cntan").
func (s *Schema) Suffix(suffix string) (Column, bool) {
	c, ok := s.bySuffix[suffix]
	return c, ok
}

// In is a visible column of one counter, by its name or its suffix.
func (s *Schema) In(counter int, name string) (Column, bool) {
	c, ok := s.byName[s.Counters[counter].Name+"."+name]
	if !ok {
		c, ok = s.bySuffix[name]
	}
	if !ok || s.Columns[c].Counter != counter || s.Columns[c].Hidden {
		return 0, false
	}
	return c, true
}

// Visible lists the columns of one counter that answers show, in the
// configuration's order.
func (s *Schema) Visible(counter int) []Column {
	c := s.Counters[counter]
	var out []Column
	for i := c.First; i < c.First+Column(c.Count); i++ {
		if !s.Columns[i].Hidden {
			out = append(out, i)
		}
	}
	return out
}
