package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// sample is one figure, a value for each round; or each probe.
type sample []float64

// quantile is the smallest value that q of all (0 to 1) do not exceed; NaN of nothing.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(s))))-1)]
}

// median is the middle, or the mean of both.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(s)-1)/2] + sorted[len(s)/2]) / 2
}

// over divides round by round.
func (s sample) over(beside sample) (ratios sample) {
	for i := range min(len(s), len(beside)) {
		ratios = append(ratios, s[i]/beside[i])
	}
	return ratios
}

// last is the newest value, for progress.
func (s sample) last() string {
	if len(s) == 0 {
		return "–"
	}
	return number(s[len(s)-1])
}

// number writes a figure for people: three digits that count, thousands apart.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	decimals := 0
	if v != 0 {
		digits := 1 + int(math.Floor(math.Log10(math.Abs(v))))
		decimals = min(max(3-digits, 0), 6)
		if digits > 3 {
			unit := math.Pow10(digits - 3)
			v = math.Round(v/unit) * unit
		}
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

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
	beside string // what else was measured, in the same unit
	theirs sample // empty: nothing
	target target
	failed bool // the reason is among the notes
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
	if t == (target{}) {
		return "–"
	}
	text := "≥ " + strconv.FormatFloat(t.bound, 'f', -1, 64)
	if t.atMost {
		text = "≤ " + strconv.FormatFloat(t.bound, 'f', -1, 64)
	}
	if t.ratio {
		return text + " ×"
	}
	return text + " " + unit
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

func (t *table) add(lines ...line) { t.lines = append(t.lines, lines...) }

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (l line) cells() []string {
	if l.failed {
		return []string{l.what, "failed", "–", "see below", "–", "–", "–", "–"}
	}
	spread, theirs := "–", "–"
	if len(l.ours) > 1 {
		spread = number(slices.Min(l.ours)) + "–" + number(slices.Max(l.ours))
	}
	if len(l.theirs) > 0 {
		theirs = number(l.theirs.median()) + " " + l.unit
	}
	return []string{
		l.what, number(l.ours.median()) + " " + l.unit, spread, cmp.Or(l.beside, "–"), theirs, number(l.ratio()),
		l.target.text(l.unit), l.verdict(),
	}
}

// text is the table in Markdown, with its columns aligned.
func (t *table) text(about string) string {
	rows := [][]string{
		{"what", "Tidemark", "rounds", "beside it", "figure", "ratio", "target", "holds"},
		{"---", "--:", "--:", "---", "--:", "--:", "--:", "---"},
	}
	for _, l := range t.lines {
		rows = append(rows, l.cells())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", about)
	for _, row := range rows {
		for i, cell := range row {
			width := 0
			for _, other := range rows {
				width = max(width, utf8.RuneCountInString(other[i]))
			}
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", width-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
	}
	b.WriteByte('\n')
	for _, note := range t.notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	return b.String()
}
