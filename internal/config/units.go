package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// The units a size may be written in.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var sizeUnits = []struct {
	name string
	unit Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}}

// String is the size in the largest unit that divides it, as files state it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.unit == 0 {
			return strconv.FormatInt(int64(s/u.unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func parseSize(text string) (Size, bool) {
	number, unit := text, Size(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = strings.TrimRight(n, " "), u.unit
			break
		}
	}
	n, err := parseInt(number)
	if err != nil || n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
		return 0, false
	}
	return Size(n) * unit, true
}

// parseInt reads a decimal number; underscores may part its digits, as in YAML.
func parseInt(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
}

const day = 24 * time.Hour

// parseDuration reads Go's durations with days before them: 30d, 1d12h.
func parseDuration(text string) (time.Duration, bool) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	n, err := strconv.ParseInt(days, 10, 64)
	if err != nil || n > math.MaxInt64/int64(day) || n < math.MinInt64/int64(day) {
		return 0, false
	}
	whole := time.Duration(n) * day
	if rest == "" {
		return whole, true
	}
	part, err := time.ParseDuration(rest)
	if err != nil || n < 0 || part < 0 || part > math.MaxInt64-whole {
		return 0, false
	}
	return whole + part, true
}

// FormatDuration is the shortest form that ParseDuration reads back: 7d, 36h, 1m30s.
func FormatDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if d == 0 {
		return "0"
	}
	return text
}

// ParseDuration reads a duration as files state it: 90s, 12h, 7d, 1d12h.
func ParseDuration(text string) (d time.Duration, ok bool) { return parseDuration(text) }
