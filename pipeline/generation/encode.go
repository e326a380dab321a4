package generation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// BytesMax bounds an encoded Set: what two generations count by, and the rest.
const BytesMax = Slots*ConfigBytesMax + 8*WhyBytesMax

// ErrMalformed says that something is no Set that Encode has made.
var ErrMalformed = errors.New("generation: what is noted of the generations is malformed")

// Encode gives the JSON of s, which must be without Fault.
func (s Set) Encode() ([]byte, error) {
	if err := s.Fault(); err != nil {
		return nil, fmt.Errorf("generation: encode: %w", err)
	}
	text, err := s.text()
	if err == nil && len(text) > BytesMax {
		err = fmt.Errorf("it has %d bytes, %d at most", len(text), BytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("generation: encode: %w", err)
	}
	return text, nil
}

// text is the JSON of s. Characters stay as they are: escaped as for HTML, a
// configuration could grow beyond its bound.
func (s Set) text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// Decode reads what Encode has made, and refuses what has a Fault: the error says
// what, and wraps ErrMalformed.
func Decode(text []byte) (Set, error) {
	var s Set
	err := fmt.Errorf("it has %d bytes, %d at most", len(text), BytesMax)
	if len(text) <= BytesMax {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = s.Fault()
	}
	if err != nil {
		return Set{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, nil
}

// Equal says whether both say the same.
func (s Set) Equal(other Set) bool {
	if s.Epoch != other.Epoch {
		return false
	}
	a, err1 := s.text()
	b, err2 := other.text()
	return err1 == nil && err2 == nil && bytes.Equal(a, b)
}

// cut is why, as far as it is noted.
func cut(why string) string {
	why = strings.ToValidUTF8(why, "\uFFFD")
	if len(why) <= WhyBytesMax {
		return why
	}
	const more = "…"
	end := WhyBytesMax - len(more)
	for !utf8.RuneStart(why[end]) {
		end--
	}
	return why[:end] + more
}
