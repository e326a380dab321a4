package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// table is the result.
type table struct {
	lines []line
	notes []string // under the table
}

// line is one target: what was measured, and what beside it.
type line struct {
	what   string
	unit   string // "events/s", "ms", "bytes"
	ours   sample // a value for each round; the figure is their median
	among  sample // what the figure was chosen of, where that is not ours
	beside string // what else was measured, in the same unit
	theirs sample // empty: nothing
	target target
	failed bool   // the reason is among the notes
	lack   string // why there is nothing beside it
}

// target is a bound for the figure, or for the ratio.
type target struct {
	ratio  bool
	atMost bool
	bound  float64
}

func ratioAtLeast(bound float64) target { return target{ratio: true, bound: bound} }
func ratioAtMost(bound float64) target  { return target{ratio: true, atMost: true, bound: bound} }
func atLeast(bound float64) target      { return target{bound: bound} }
func atMost(bound float64) target       { return target{atMost: true, bound: bound} }

func (t target) text(unit string) string {
	bound := number(t.bound)
	if strings.Contains(bound, ".") {
		bound = strings.TrimRight(strings.TrimRight(bound, "0"), ".")
	}
	switch {
	case t == target{}:
		return "–"
	case t.ratio && t.atMost:
		return "≤ " + bound + " ×"
	case t.ratio:
		return "≥ " + bound + " ×"
	case t.atMost:
		return "≤ " + bound + " " + unit
	}
	return "≥ " + bound + " " + unit
}

// verdict says whether the line's median holds what the target asks.
func (l line) verdict() string {
	value := l.ours.median()
	if l.target.ratio {
		value = l.ratio()
	}
	switch {
	case l.target == target{} || math.IsNaN(value):
		return "–"
	case l.target.atMost && value <= l.target.bound, !l.target.atMost && value >= l.target.bound:
		return "yes"
	}
	return "no"
}

// ratio is the median of the rounds' ratios.
func (l line) ratio() float64 { return l.ours.over(l.theirs).median() }

// spread is the least and the greatest round.
func (l line) spread() string {
	all := l.ours
	if l.among != nil {
		all = l.among
	}
	if len(all) < 2 {
		return "–"
	}
	return number(slices.Min(all)) + "–" + number(slices.Max(all))
}

func (t *table) add(l line) { t.lines = append(t.lines, l) }

// fail adds a line without a figure, and the reason under the table.
func (t *table) fail(what string, err error) {
	t.add(line{what: what, failed: true})
	t.note("%s failed: %s", what, strings.Join(strings.Fields(err.Error()), " "))
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

var head = []string{"what", "Tidemark", "rounds", "beside it", "figure", "ratio", "target", "holds"}

// left are the columns of text.
var left = []bool{true, false, false, true, false, false, false, true}

func (l line) cells() []string {
	if l.failed {
		return []string{l.what, "failed", "–", "see below", "–", "–", l.target.text(l.unit), "–"}
	}
	beside, theirs, ratio := cmp.Or(l.beside, "–"), "–", "–"
	switch {
	case l.lack != "":
		beside += ": " + l.lack
	case len(l.theirs) > 0:
		theirs = number(l.theirs.median()) + " " + l.unit
		ratio = number(l.ratio())
	}
	return []string{
		l.what, number(l.ours.median()) + " " + l.unit, l.spread(), beside, theirs, ratio,
		l.target.text(l.unit), l.verdict(),
	}
}

// text is the table in lines that are aligned.
func (t *table) text(about string) string {
	rows := [][]string{head}
	for _, l := range t.lines {
		rows = append(rows, l.cells())
	}
	widths := make([]int, len(head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", about)
	for _, row := range rows {
		var text strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if left[i] {
				text.WriteString(cell + pad + "  ")
			} else {
				text.WriteString(pad + cell + "  ")
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(text.String(), " "))
	}
	t.appendNotes(&b, "")
	return b.String()
}

// markdown is the table for docs/performance.md.
func (t *table) markdown(about string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| %s |\n|", about, strings.Join(head, " | "))
	for _, text := range left {
		b.WriteString(map[bool]string{true: "---|", false: "--:|"}[text])
	}
	b.WriteByte('\n')
	for _, l := range t.lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(l.cells(), " | "))
	}
	t.appendNotes(&b, "- ")
	return b.String()
}

func (t *table) appendNotes(b *strings.Builder, bullet string) {
	if len(t.notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range t.notes {
		fmt.Fprintln(b, bullet+note)
	}
}
