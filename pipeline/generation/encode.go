package generation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline"
)

// BytesMax bounds an encoded Set: what two generations count by, and the rest.
const BytesMax = Slots*ConfigBytesMax + 8*WhyBytesMax

// ErrMalformed says that something is no Set that Encode has made.
var ErrMalformed = errors.New("generation: what is noted of the generations is malformed")

// ErrVersion says of what is malformed that a later version of the program wrote it. To
// a member it is malformed all the same: nobody writes what a member does not read.
var ErrVersion = fmt.Errorf("%w: its version is not known", ErrMalformed)

// written is a Set as it stands in the bucket.
type written struct {
	Version int `json:"version"` // of pipeline.FormatRecord; none: 1
	Set
}

// Encode gives the JSON of s, which must be without Fault, in the oldest version of
// pipeline.FormatRecord.
func (s Set) Encode() ([]byte, error) { return s.EncodeIn(pipeline.FormatRecord.Oldest) }

// EncodeIn is Encode in another version.
func (s Set) EncodeIn(version int) ([]byte, error) {
	if err := s.Fault(); err != nil {
		return nil, fmt.Errorf("generation: encode: %w", err)
	}
	text, err := text(written{version, s})
	if err == nil && len(text) > BytesMax {
		err = fmt.Errorf("it has %d bytes, %d at most", len(text), BytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("generation: encode: %w", err)
	}
	return text, nil
}

// text is JSON. Characters stay as they are: escaped as for HTML, a configuration
// could grow beyond its bound.
func text(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// Decode reads what Encode has made, and refuses what has a Fault: the error says
// what, and wraps ErrMalformed.
func Decode(text []byte) (Set, error) {
	var s written
	err := fmt.Errorf("it has %d bytes, %d at most", len(text), BytesMax)
	if len(text) <= BytesMax {
		err = versionFault(text)
	}
	if errors.Is(err, ErrVersion) {
		return Set{}, err
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = s.Fault()
	}
	if s.Version = cmp.Or(s.Version, 1); err == nil && s.Version < pipeline.FormatRecord.Oldest {
		err = fmt.Errorf("the record has version %d, and this program reads versions from %d on", s.Version, pipeline.FormatRecord.Oldest)
	}
	if err != nil {
		return Set{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s.Set, nil
}

// versionFault looks at the version alone: all else may have another form.
func versionFault(text []byte) error {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if f := pipeline.FormatRecord; v.Version > f.Newest {
		return fmt.Errorf("%w: the record has version %d, and this program reads versions %d to %d: upgrade this node (docs/nodes.md, Rolling upgrade)", ErrVersion, v.Version, f.Oldest, f.Newest)
	}
	return nil
}

// Equal says whether both say the same.
func (s Set) Equal(other Set) bool {
	if s.Epoch != other.Epoch {
		return false
	}
	a, err1 := text(s)
	b, err2 := text(other)
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
