package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Fault is one mistake in a configuration file, or in a variable of the environment.
type Fault struct {
	File string // or the variable's name
	Line int    // from 1
	Key  string // dotted, "nats.tls.cert"; "" when the file as a whole is wrong
	What string // what is wrong, and what is allowed
}

func (f Fault) String() string {
	if f.Key == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.What)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Key, f.What)
}

// Faults are all mistakes in a file, by line. As an error it prints one a line.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// faultsMax bounds what a file that is nothing but mistakes can bring up.
const faultsMax = 200

func (d *decoder) fault(line int, key, format string, args ...any) {
	d.unsound[key] = true
	if len(d.faults) < faultsMax {
		what := fmt.Sprintf(format, args...)
		if secret, is := d.secrets[key]; is {
			what = strings.NewReplacer(quote(secret), "its content", strconv.Quote(secret), "its content").Replace(what)
		}
		d.faults = append(d.faults, Fault{File: d.source(key), Line: line, Key: printable(key, 256), What: printable(what, 2048)})
	}
}

// printable keeps a fault on its line, whatever stands in the file's keys.
func printable(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func (d *decoder) sorted() Faults {
	rank := func(f Fault) string {
		if f.File == d.file {
			return "" // before the variables
		}
		return f.File
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(rank(a), rank(b)), cmp.Compare(a.Line, b.Line))
	})
	return d.faults
}

// quote shows a text from the file, shortened.
func quote(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// Instead says what is allowed where word is not.
func Instead(word string, allowed []string) string { return instead(word, allowed) }

// instead says what is allowed where word is not: the nearest, if one is near,
// else all of them.
func instead(word string, allowed []string) string {
	if near := nearest(word, allowed); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(allowed) == 0 {
		return "none is allowed here"
	}
	const most = 24
	if len(allowed) > most {
		return fmt.Sprintf("allowed: %s and %d more", strings.Join(allowed[:most], ", "), len(allowed)-most)
	}
	return "allowed: " + strings.Join(allowed, ", ")
}

// nearest is the allowed word that is a slip of the finger away from word: a
// third of its letters at most.
func nearest(word string, allowed []string) string {
	best, least := "", min(len(word)/3, 3)+1
	if len(word) > 64 {
		return ""
	}
	for _, a := range allowed {
		if n := distance(word, a); n < least {
			best, least = a, n
		}
	}
	return best
}

// distance is Levenshtein's, one row at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
