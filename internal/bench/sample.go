package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// sample is one figure, a value for each round; or each probe.
type sample []float64

// quantile is the smallest value that q of all (0 to 1) do not exceed; NaN of
// nothing.
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
	for at := len(whole) - 3; at > 0 && whole[at-1] != '-'; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}
