package operators

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-io/tidemark/pipeline"
)

// refusal is why an event is a dead letter.
type refusal struct {
	reason pipeline.Reason
	detail string
}

func refuse(reason pipeline.Reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// The fields of the fixed types. Fields that only rules name get the slots
// behind them.
const (
	fieldType = iota
	fieldDelete
	fieldActor
	fieldPost
	fieldRepostOf
	fieldAuthor
	fieldTarget
	fieldChannel
	fieldNotice
	fieldWhat
	fieldSeen
	fieldAsOf
	fieldItems
	fieldCounter
	fieldID
	fieldColumn
	fieldAdd
	fieldSet
	fieldDel
	fieldBy
	fieldsFixed
)

var fixedFields = [fieldsFixed]string{
	"type", "delete", "actor", "post", "repost_of", "author", "target", "channel", "notice",
	"what", "seen", "as_of", "items", "counter", "id", "column", "add", "set", "del", "by",
}

// object is one JSON object taken apart: the raw value of each known field,
// nil where the object has none or null.
type object struct {
	decoder *jsontext.Decoder
	buffer  bytes.Buffer
	fields  [][]byte
	names   *words // of fields, numbered by slot; shared
	list    []string
}

func newObject(names *words, slots int) *object {
	return &object{
		decoder: jsontext.NewDecoder(bytes.NewReader(nil)),
		fields:  make([][]byte, slots),
		names:   names,
	}
}

// halves lets half a surrogate pair pass ("\ud83d"): RFC 8259 does, and a text
// that was cut within an emoji has one at its end. Bytes that are not UTF-8 it
// would let pass too; tokenize looks for these itself.
var halves = []jsontext.Options{jsontext.AllowInvalidUTF8(true)}

// parse takes apart exactly one JSON object (RFC 8259, no duplicate names).
// The raw values alias line.
func (o *object) parse(line []byte) *refusal {
	clear(o.fields)
	if o.scan(line) {
		return nil
	}
	clear(o.fields)
	return o.tokenize(line)
}

// tokenize is parse of any line whatever.
func (o *object) tokenize(line []byte) *refusal {
	if !utf8.Valid(line) {
		return refuse(pipeline.ReasonJSON, "not JSON: not UTF-8")
	}
	o.buffer = *bytes.NewBuffer(line)
	d := o.decoder
	d.Reset(&o.buffer, halves...)
	if d.PeekKind() != '{' {
		if _, err := d.ReadToken(); err != nil {
			return notJSON(err)
		}
		return refuse(pipeline.ReasonJSON, "not a JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		slot, known := o.slot(name)
		value, err := d.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		if known && value.Kind() != 'n' {
			end := d.InputOffset()
			o.fields[slot] = line[end-int64(len(value)) : end : end]
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return refuse(pipeline.ReasonJSON, "more than one JSON value")
	}
	return nil
}

func notJSON(err error) *refusal {
	if errors.Is(err, io.EOF) {
		return refuse(pipeline.ReasonJSON, "not JSON: the body ends too early")
	}
	return refuse(pipeline.ReasonJSON, "not JSON: %v", err)
}

func (o *object) slot(quoted []byte) (int, bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return o.names.find(quoted[1 : len(quoted)-1])
	}
	name, err := jsontext.AppendUnquote(nil, quoted)
	slot, ok := o.names.find(name)
	return slot, ok && err == nil
}

// has is true when the field is there.
func (o *object) has(slot int) bool { return o.fields[slot] != nil }

// id reads an id: a JSON number or a decimal string, 0 when it is absent.
func (o *object) id(slot int) (uint64, bool) {
	raw := o.fields[slot]
	if raw == nil {
		return 0, true
	}
	return parseUint(unquoted(raw))
}

// integer reads a whole number within ±Limit, as a JSON number or a decimal string.
func (o *object) integer(slot int) (int64, bool) {
	raw := unquoted(o.fields[slot])
	negative := len(raw) > 1 && raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	u, ok := parseUint(raw)
	if !ok || u > pipeline.Limit {
		return 0, false
	}
	if negative {
		return -int64(u), true
	}
	return int64(u), true
}

// truth reads a boolean; absent is false.
func (o *object) truth(slot int) (value, ok bool) {
	switch string(o.fields[slot]) {
	case "true":
		return true, true
	case "false", "":
		return false, true
	}
	return false, false
}

// text reads a string.
func (o *object) text(slot int) (string, bool) {
	w := o.word(slot)
	return string(w), w != nil
}

// word is a string field's bytes, nil when it is not a string.
func (o *object) word(slot int) []byte {
	raw := o.fields[slot]
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return unquoted(raw)
}

// texts reads a list of at most `most` strings. The result is valid until the next call.
func (o *object) texts(slot, most int) ([]string, bool) {
	d := o.inner(slot, '[')
	if d == nil {
		return nil, false
	}
	o.list = o.list[:0]
	for d.PeekKind() == '"' && len(o.list) < most {
		token, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		o.list = append(o.list, token.String())
	}
	return o.list, d.PeekKind() == ']'
}

// positions appends a list of at most `most` positions, as JSON numbers or strings.
func (o *object) positions(slot, most int, dst []pipeline.Position) ([]pipeline.Position, bool) {
	d := o.inner(slot, '[')
	if d == nil {
		return dst, false
	}
	for n := 0; d.PeekKind() != ']' && n < most; n++ {
		value, err := d.ReadValue()
		if err != nil {
			return dst, false
		}
		p, ok := parseUint(unquoted(value))
		if !ok || value.Kind() != '0' && value.Kind() != '"' {
			return dst, false
		}
		dst = append(dst, pipeline.Position(p))
	}
	return dst, d.PeekKind() == ']'
}

// pairs calls visit for every member of an object field, until it returns false.
func (o *object) pairs(slot int, visit func(name string, value []byte) bool) bool {
	d := o.inner(slot, '{')
	if d == nil {
		return false
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return false
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil || !visit(key, value) {
			return false
		}
	}
	return true
}

// inner opens a field that holds a list or an object.
func (o *object) inner(slot int, kind jsontext.Kind) *jsontext.Decoder {
	raw := o.fields[slot]
	if len(raw) == 0 || raw[0] != byte(kind) {
		return nil
	}
	o.buffer = *bytes.NewBuffer(raw)
	o.decoder.Reset(&o.buffer)
	if _, err := o.decoder.ReadToken(); err != nil {
		return nil
	}
	return o.decoder
}

// unquoted is what a string says ("\u0031" says 1), and anything else as it stands.
func unquoted(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return raw
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // well-formed, it has been read once; half a surrogate pair becomes U+FFFD
	return text
}

// parseUint reads decimal digits and nothing else.
func parseUint(digits []byte) (uint64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	if len(digits) > 19 { // it might overflow
		u, err := strconv.ParseUint(string(digits), 10, 64)
		return u, err == nil && digits[0] != '+'
	}
	var u uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	return u, true
}

// nonZero is true when the field is there and neither 0, however it is
// written, nor false nor empty.
func (o *object) nonZero(slot int) bool {
	raw := unquoted(o.fields[slot])
	return len(raw) > 0 && string(raw) != "false" && !isZero(raw)
}

// isZero is true for what spells 0: 0, -0, 00, 0.0, 0e5. A word that only
// begins like one ("east", "-") does not.
func isZero(text []byte) bool {
	text = unsigned(text)
	zeros, points := 0, 0
	for i, c := range text {
		switch c {
		case '0':
			zeros++
		case '.':
			points++
		case 'e', 'E':
			exponent := unsigned(text[i+1:])
			return zeros > 0 && points <= 1 && len(exponent) > 0 && len(bytes.Trim(exponent, "0123456789")) == 0
		default:
			return false
		}
	}
	return zeros > 0 && points <= 1
}

// unsigned takes one sign off.
func unsigned(text []byte) []byte {
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		return text[1:]
	}
	return text
}
