package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/query/client"
)

// id is a user, a post, or whatever else a counter is keyed by.
type id uint64

// UnmarshalText is called by kong.
func (i *id) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not an id: ids are whole numbers from 1 to 18446744073709551615", text)
	}
	*i = id(n)
	return nil
}

// amount is a number that may be negative; see arguments.
type amount int64

// UnmarshalText is called by kong.
func (a *amount) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(hyphens.Replace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of 64 bits", text)
	}
	*a = amount(n)
	return nil
}

// cell is one count of one row: 42.cntcm by the column's suffix, or
// 42.post.comment by counter and column.
type cell struct {
	id      id
	counter string // "" when a suffix says it
	column  string // name or suffix
}

// UnmarshalText is called by kong.
func (c *cell) UnmarshalText(text []byte) error {
	number, words, found := strings.Cut(string(text), ".")
	if !found || words == "" {
		return fmt.Errorf("%q is not a count: say ID.SUFFIX, like 42.cntcm, or ID.COUNTER.COLUMN, like 42.post.comment", text)
	}
	if err := c.id.UnmarshalText([]byte(number)); err != nil {
		return err
	}
	c.counter, c.column, found = strings.Cut(words, ".")
	if !found {
		c.counter, c.column = "", words
	}
	if found && c.counter == "" || c.column == "" || strings.Contains(c.column, ".") {
		return fmt.Errorf("%q is not a count: say ID.SUFFIX, like 42.cntcm, or ID.COUNTER.COLUMN, like 42.post.comment", text)
	}
	return nil
}

// column is a cell's place in the running node's schema.
type column struct{ counter, name string }

// resolve asks the node, never a configuration that happens to lie here: the
// node may have another.
func (c cell) resolve(ctx context.Context, node *client.Client) (column, error) {
	schema, err := node.Schema(ctx)
	if err != nil {
		return column{}, err
	}
	if c.counter != "" {
		counter, err := counterOf(schema, c.counter)
		if err != nil {
			return column{}, err
		}
		for _, bySuffix := range []bool{false, true} {
			for _, spec := range counter.Columns {
				if spec.Name == c.column && !bySuffix || spec.Suffix == c.column && bySuffix {
					return column{c.counter, spec.Name}, nil
				}
			}
		}
		return column{}, fmt.Errorf("counter %s has no column %q; there are: %s", c.counter, c.column, columnNames(counter))
	}
	return bySuffix(schema, c)
}

func bySuffix(schema client.Schema, c cell) (column, error) {
	var suffixes, named []string
	for _, counter := range slices.Sorted(maps.Keys(schema.Counters)) {
		for _, spec := range schema.Counters[counter].Columns {
			switch {
			case spec.Suffix == c.column:
				return column{counter, spec.Name}, nil
			case spec.Name == c.column:
				named = append(named, fmt.Sprintf("%d.%s.%s", c.id, counter, spec.Name))
			}
			if spec.Suffix != "" {
				suffixes = append(suffixes, spec.Suffix)
			}
		}
	}
	if len(named) > 0 {
		return column{}, fmt.Errorf("%q is a column's name, not a suffix: say %s", c.column, strings.Join(named, " or "))
	}
	return column{}, fmt.Errorf("suffix %q is unknown; there are: %s", c.column, strings.Join(suffixes, ", "))
}

func counterOf(schema client.Schema, name string) (client.CounterSchema, error) {
	counter, known := schema.Counters[name]
	if !known {
		return counter, fmt.Errorf("counter %q is unknown; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(schema.Counters)), ", "))
	}
	return counter, nil
}

func columnNames(counter client.CounterSchema) string {
	var names []string
	for _, spec := range counter.Columns {
		name := spec.Name
		if spec.Suffix != "" {
			name += " (" + spec.Suffix + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
