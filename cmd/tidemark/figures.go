package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// counterTable takes the figures that a store gives of each counter out of
// figures, and makes a line of each counter's; nil when there are none. What
// the store does not tell is "-".
func counterTable(figures map[string]any) *table {
	lines := takeOut(figures, []string{"counter"},
		"rows", "row_bytes", "row_load", "row_gets_total", "row_sets_total", "row_hits_total", "row_misses_total",
		"row_cold_reads_total", "row_errors_total", "row_evictions_total", "row_probe_mean", "row_probe_longest")
	if len(lines) == 0 {
		return nil
	}
	out := &table{left: []bool{true}}
	out.add("COUNTER", "ROWS", "BYTES", "BYTES/ROW", "LOAD", "GETS", "SETS", "HITS", "MISSES", "COLD", "ERRORS", "EVICTED", "PROBE")
	for _, counter := range slices.Sorted(maps.Keys(lines)) {
		l := lines[counter]
		out.add(counter, l.text("rows"), l.size("row_bytes"), l.bytesPerRow(), l.fraction("row_load"),
			l.text("row_gets_total"), l.text("row_sets_total"), l.text("row_hits_total"), l.text("row_misses_total"),
			l.text("row_cold_reads_total"), l.text("row_errors_total"), l.text("row_evictions_total"), l.probe())
	}
	return out
}

// columnTable does the same for columns. A column of zeros is left out, unless
// all are wanted.
func columnTable(figures map[string]any, all bool) *table {
	lines := takeOut(figures, []string{"counter", "column"}, "column_sets_total", "column_escapes", "column_saturated_total")
	out := &table{left: []bool{true}}
	out.add("COUNTER.COLUMN", "SETS", "ESCAPES", "SATURATED")
	for _, column := range slices.Sorted(maps.Keys(lines)) {
		if l := lines[column]; all || !l.zero() {
			out.add(column, l.text("column_sets_total"), l.text("column_escapes"), l.text("column_saturated_total"))
		}
	}
	if len(out.rows) == 1 {
		return nil
	}
	return out
}

// line is one counter's or column's figures, by their names without tidemark_.
type line map[string]any

// takeOut moves the figures that have these names and just these labels into
// lines; a line is called by its labels' values, with a dot in between.
func takeOut(figures map[string]any, labels []string, names ...string) map[string]line {
	lines := map[string]line{}
	for figure, value := range figures {
		name, list := split(figure)
		name, isOwn := strings.CutPrefix(name, own)
		if !isOwn || !slices.Contains(names, name) {
			continue
		}
		called, ok := labelValues(list, labels)
		if !ok {
			continue
		}
		if lines[called] == nil {
			lines[called] = line{}
		}
		lines[called][name] = value
		delete(figures, figure)
	}
	return lines
}

// labelValues reads "column=like, counter=post" in the order of names.
func labelValues(list string, names []string) (joined string, ok bool) {
	pairs := strings.Split(list, ", ")
	values := make([]string, len(names))
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		i := slices.Index(names, name)
		if i < 0 || value == "" {
			return "", false
		}
		values[i] = value
	}
	return strings.Join(values, "."), len(pairs) == len(names) && !slices.Contains(values, "")
}

func (l line) zero() bool {
	for _, value := range l {
		if readable(value) != "0" {
			return false
		}
	}
	return true
}

// number is a figure that may not be there.
func (l line) number(name string) (n float64, ok bool) {
	value, ok := l[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	return n, err == nil
}

const untold = "-"

func (l line) text(name string) string {
	value, ok := l[name]
	if !ok {
		return untold
	}
	return readable(value)
}

func (l line) fraction(name string) string {
	n, ok := l.number(name)
	if !ok {
		return untold
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}

// loadToTell is how full tables must be for their bytes to say something of a
// row: below it they are free places, those of the least size there is or of
// rows that were evicted.
const loadToTell = 0.25

func (l line) bytesPerRow() string {
	bytes, known := l.number("row_bytes")
	rows, counted := l.number("rows")
	load, loadKnown := l.number("row_load")
	if !known || !counted || rows == 0 || loadKnown && load < loadToTell {
		return untold
	}
	return strconv.FormatFloat(bytes/rows, 'f', 1, 64)
}

func (l line) size(name string) string {
	n, ok := l.number(name)
	if !ok {
		return untold
	}
	return sizeText(n)
}

// sizeText is a number of bytes as people read it.
func sizeText(n float64) string {
	units := []string{"", "KiB", "MiB", "GiB"}
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	if units[0] == "" {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + units[0]
}

// bytesText is a size in a sentence.
func bytesText(n uint64) string {
	if n < 1024 {
		return count(int(n), "byte")
	}
	return sizeText(float64(n))
}

// probe is "mean/longest".
func (l line) probe() string {
	mean, longest := l.fraction("row_probe_mean"), l.text("row_probe_longest")
	if mean == untold && longest == untold {
		return untold
	}
	return mean + "/" + longest
}
