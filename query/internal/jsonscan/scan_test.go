package jsonscan

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Uint against strconv, on numbers of every length and on near misses.
func TestUintAgainstStrconv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[0-9]{1,22}`),
			rapid.StringMatching(`[0-9]{0,20}[/:aA.eE+ -][0-9]{0,9}`),
			rapid.Map(rapid.Uint64(), func(u uint64) string { return strconv.FormatUint(u, 10) }),
		).Draw(t, "text")
		want, err := strconv.ParseUint(text, 10, 64)
		var s Scanner
		s.Reset(fmt.Appendf(nil, `["%s"]`, text))
		s.Array()
		if !s.Element() {
			t.Fatal("no element")
		}
		got, raw, ok := s.Uint()
		if ok != (err == nil) || ok && got != want || string(raw) != `"`+text+`"` {
			t.Fatalf("%q: %d %v, raw %s; want %d, %v", text, got, ok, raw, want, err)
		}
		if at, n := s.Digits(); n > 0 && `["`+text[:n]+`"]` != fmt.Sprintf(`["%d"]`, got) || n > 0 && at != 2 {
			t.Fatalf("%q: digits at %d, %d long", text, at, n)
		}
		if s.Element() || s.End() != nil {
			t.Fatalf("%q: not at the end: %v", text, s.Err())
		}
	})
}

func TestIntAgainstStrconv(t *testing.T) {
	for _, want := range []int64{0, 1, -1, 9, 10, math.MaxInt64, math.MinInt64, 999999999999999999, 1000000000000000000} {
		var s Scanner
		s.Reset(fmt.Appendf(nil, ` %d `, want))
		if got, _, ok := s.Int(); !ok || got != want || s.End() != nil {
			t.Errorf("%d: %d %v %v", want, got, ok, s.Err())
		}
	}
}

// A text that is not JSON ends every loop and says where.
func TestErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]string{
		``:               `it ends after 0 bytes where an object was expected`,
		`[1]`:            `byte 0 is '[' where an object was expected`,
		`{"a":1`:         `it ends after 6 bytes where a comma or } was expected`,
		`{"a":01}`:       `byte 6 is '1' where a comma or } was expected`,
		`{"a":1,}`:       `byte 7 is '}' where a string was expected`,
		`{"a" 1}`:        `byte 5 is '1' where a colon was expected`,
		`{"a":[1,]} `:    `byte 7 is ',' where a well-formed JSON value was expected`,
		`{"a":nul}`:      `byte 5 is 'n' where a JSON value was expected`,
		`{"a":"b` + "\n": `byte 7 is '\n' where a printable character was expected`,
		`{} {}`:          `byte 3 is '{' where the end was expected`,
		"{}\x00":         `byte 2 is '\x00' where a JSON value was expected`,
		`{"a":1.}`:       `byte 7 is '}' where a digit was expected`,
	} {
		var s Scanner
		s.Reset([]byte(text))
		for s.Object(); s.Member(); {
			s.Key()
			s.Value()
		}
		if err := s.End(); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
