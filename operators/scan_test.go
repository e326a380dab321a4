package operators

import (
	"bytes"
	"testing"
)

// usual are events as producers write them: scan must know these by itself.
var usual = []string{
	`{"type":"like","actor":1,"post":2,"author":3,"at":1700000000000}`,
	`{"type":"post","actor":1,"post":18446744073709551615,"repost_of":"3","author":4}`,
	` { "actor" : 1 , "delete" : true , "post" : null , "x" : "" } ` + "\r",
	`{"actor":-1,"text":"dogs 🐶 and ümlauts","by":-0}`,
	`{}`,
	`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8}`,
}

// strange are others, which scan may leave to the tokenizer.
var strange = []string{
	`{"actor":1,"actor":2}`, `{"x":1,"x":2}`, `{"x":null,"x":null}`, `{"actor":01}`, `{"actor":1.0}`, `{"actor":1e3}`, `{"actor":-}`,
	`{"a\u0063tor":1}`, `{"actor":"\u0031"}`, `{"actor":[1]}`, `{"actor":{}}`, `{"actor":truest}`, `{"actor":tru}`, `{"actor":1}{}`,
	`{"actor":1,}`, `{,}`, `{"actor"}`, `{"actor":}`, `{"actor":1`, `{"actor":"1`, `[]`, `1`, ``, ` `, `{`, `{"x":"` + "\xff" + `"}`,
	`{"` + "\xff" + `":1}`, "{\"x\":\"\t\"}", "\ufeff{}", `{"":1,"":2}`,
	`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}`,
}

func newTestObject() *object { return newObject(newWords(fixedFields[:]), len(fixedFields)) }

func TestScanKnowsUsualEvents(t *testing.T) {
	for _, line := range usual {
		if !newTestObject().scan([]byte(line)) {
			t.Errorf("left to the tokenizer: %s", line)
		}
	}
}

// FuzzScan: what scan takes apart, the tokenizer takes apart in the same way, and
// both decide the same of a line that a byte was put into.
func FuzzScan(f *testing.F) {
	for _, line := range append(usual, strange...) {
		f.Add([]byte(line), uint(3), byte('"'))
	}
	a, b := newTestObject(), newTestObject()
	check := func(t *testing.T, line []byte) {
		clear(a.fields)
		if !a.scan(line) {
			return
		}
		clear(b.fields)
		if fault := b.tokenize(line); fault != nil {
			t.Fatalf("scan takes %q, which is refused: %s", line, fault.detail)
		}
		for slot := range a.fields {
			x, y := a.fields[slot], b.fields[slot]
			if !bytes.Equal(x, y) || (x == nil) != (y == nil) {
				t.Fatalf("%q: %s is %q for scan and %q for the tokenizer", line, fixedFields[slot], x, y)
			}
		}
	}
	f.Fuzz(func(t *testing.T, line []byte, at uint, c byte) {
		check(t, line)
		if len(line) > 0 {
			changed := bytes.Clone(line)
			changed[at%uint(len(line))] = c
			check(t, changed)
		}
	})
}
