package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// ErrNoEvents: none of the first lines is an event.
var ErrNoEvents = errors.New("importer: nothing was published, since this does not begin with events")

// looksMax is how many lines are looked at: one event among them is enough.
const looksMax = 8

// magics are how files begin that are no text.
var magics = []struct{ begins, kind string }{
	{"\x1f\x8b", "gzip within gzip: unpack it once"},
	{"\x28\xb5\x2f\xfd", "zstd: zstdcat FILE | tidemark import -"},
	{"BZh", "bzip2: bzcat FILE | tidemark import -"},
	{"\xfd7zXZ", "xz: xzcat FILE | tidemark import -"},
	{"PK\x03\x04", "a zip archive: unpack it first"},
	{"PAR1", "a Parquet file"},
	{"SQLite format 3", "an SQLite database"},
	{"\xff\xfe", "UTF-16: an event is UTF-8"},
	{"\xfe\xff", "UTF-16: an event is UTF-8"},
}

// lookAt says what text is if none of its first lines is an event; nil: one is, or the
// only line is longer than what is there of it.
func lookAt(text []byte) error {
	lines := firstLines(text)
	array := len(lines) > 0 && lines[0][0] == '['
	cut := len(text) == prefixBytesMax && len(lines) == 1 && lines[0][0] == '{'
	if !array && slices.ContainsFunc(lines, isEvent) || cut {
		return nil
	}
	return fmt.Errorf("%w: %s (--force imports it all the same)", ErrNoEvents, looksLike(lines))
}

// lookAtCounts says what text is if none of its first lines is a count.
func lookAtCounts(text []byte) error {
	lines := firstLines(text)
	like := "it is empty"
	for i, line := range lines {
		err := (&table{line: uint64(i) + 1}).event(line)
		if err == nil {
			return nil
		}
		if i == 0 {
			like = fmt.Sprintf("line 1 is %s: %v", shown(string(line)), err)
		}
	}
	if slices.ContainsFunc(lines, isEvent) {
		like = "it looks like events: import it without --format csv"
	}
	return fmt.Errorf("%w (of CSV: with lines of counter,id,column,value): %s (--force imports it all the same)", ErrNoEvents, like)
}

// firstLines are those that are not blank, looksMax at most.
func firstLines(text []byte) (lines [][]byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
		if len(lines) == looksMax {
			break
		}
	}
	return lines
}

// isEvent is true of what can be an event: an object that names its type.
func isEvent(line []byte) bool {
	var event struct{ Type *string }
	return json.Unmarshal(line, &event) == nil && event.Type != nil
}

// looksLike is what lines without an event are.
func looksLike(lines [][]byte) string {
	if len(lines) == 0 {
		return "it is empty"
	}
	first := lines[0]
	for _, m := range magics {
		if bytes.HasPrefix(first, []byte(m.begins)) {
			return "it looks like " + m.kind
		}
	}
	switch {
	case !utf8.Valid(first) || bytes.IndexByte(first, 0) >= 0:
		return "it looks binary"
	case first[0] == '[':
		return "it looks like a JSON array; an event is one line: jq -c '.[]' FILE | tidemark import -"
	case json.Valid(first) && first[0] == '{':
		return fmt.Sprintf("its lines are JSON objects without a type, like %s", shown(string(first)))
	case first[0] == '{':
		return "it looks like JSON of several lines; an event is one line: jq -c . FILE | tidemark import -"
	case bytes.Count(first, []byte{','}) == len(csvColumns)-1:
		return "it looks like CSV of counts (counter,id,column,value): import it with --format csv"
	case bytes.IndexByte(first, ',') > 0:
		return "it looks like CSV; an event is one JSON object a line, and CSV of counts (counter,id,column,value) is imported with --format csv"
	}
	return fmt.Sprintf("line 1 is not a JSON object: %s", shown(string(first)))
}
