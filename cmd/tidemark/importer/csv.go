package importer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// rowBytesMax bounds a line of CSV.
	rowBytesMax = 4 << 10
	// rowsAhead is about how many bytes of events are made at once.
	rowsAhead = 32 << 10
	// badShownMax is how many bad lines are named, the first ones.
	badShownMax = 10
)

// csvColumns is what a line of CSV holds, and its header.
var csvColumns = [...]string{"counter", "id", "column", "value"}

// Bad are the lines of a CSV file that are not counter,id,column,value. They
// are left out.
type Bad struct {
	Lines    uint64
	Examples []BadLine // the first ones
}

// BadLine is one of them.
type BadLine struct {
	Line  uint64 // in the file, from 1
	Error string // one sentence
}

// table makes events of lines of CSV: each line becomes the adjust event that
// sets its cell, and the header and bad lines become blank ones. So line n of
// the events is line n of the file, and all that holds for a file of events
// holds for one of CSV: what an import is named after, how it goes on, which
// line a dead letter is of.
type table struct {
	from *bufio.Reader
	line uint64 // the last one read
	out  []byte // events that nobody has read yet
	err  error  // of from
	bad  Bad
}

// Read implements [io.Reader].
func (t *table) Read(p []byte) (int, error) {
	for len(t.out) == 0 && t.err == nil {
		t.fill()
	}
	if len(t.out) == 0 {
		return 0, t.err
	}
	n := copy(p, t.out)
	t.out = t.out[n:]
	return n, nil
}

// fill takes the lines that are at hand, one at least.
func (t *table) fill() {
	t.out = t.out[:0]
	for {
		row, err := t.next()
		if err != nil && !errors.Is(err, errTooLong) {
			t.err = err
			return
		}
		t.line++
		if err == nil {
			err = t.event(row)
		}
		if err != nil {
			t.refuse(err)
		}
		t.out = append(t.out, '\n')
		if len(t.out) >= rowsAhead || t.from.Buffered() == 0 {
			return
		}
	}
}

var errTooLong = errors.New("too long")

// next is a line without its end; errTooLong when it is passed over.
func (t *table) next() ([]byte, error) {
	row, err := t.from.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		for err == bufio.ErrBufferFull {
			_, err = t.from.ReadSlice('\n')
		}
		if err == nil || err == io.EOF {
			err = errTooLong
		}
		return nil, err
	}
	if err == io.EOF && len(row) > 0 {
		err = nil
	}
	if err == nil && len(row) > rowBytesMax {
		err = errTooLong
	}
	return bytes.TrimSuffix(row, newline), err
}

func (t *table) refuse(err error) {
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("longer than %d bytes", rowBytesMax)
	}
	if t.bad.Lines++; len(t.bad.Examples) < badShownMax {
		t.bad.Examples = append(t.bad.Examples, BadLine{t.line, err.Error()})
	}
}

// event appends what a line says; nothing for a blank one and the header.
func (t *table) event(row []byte) error {
	if t.line == 1 {
		row = bytes.TrimPrefix(row, byteOrder)
	}
	if blank(row) {
		return nil
	}
	if !utf8.Valid(row) {
		return errors.New("not UTF-8")
	}
	fields, err := splitRow(string(row))
	if err != nil {
		return err
	}
	if t.line == 1 && isHeader(fields) {
		return nil
	}
	id, err := CellID(fields[1])
	if err != nil {
		return err
	}
	value, err := CellValue(fields[3])
	if err != nil {
		return err
	}
	for i, name := range []string{fields[0], fields[2]} {
		if name == "" {
			return fmt.Errorf("the %s is missing", csvColumns[2*i])
		}
	}
	t.out = fmt.Appendf(t.out, `{"type":"adjust","counter":%s,"id":%d,"column":%s,"set":%d}`, quoted(fields[0]), id, quoted(fields[2]), value)
	return nil
}

// fewFields is what is wrong with a line that has n fields.
func fewFields(n int) error {
	fields := "fields"
	if n == 1 {
		fields = "field"
	}
	return fmt.Errorf("%d %s; a line is %s", n, fields, strings.Join(csvColumns[:], ","))
}

func isHeader(fields [4]string) bool {
	for i, name := range csvColumns {
		if !strings.EqualFold(fields[i], name) {
			return false
		}
	}
	return true
}

// splitRow parts a line at its commas. A field may stand in quotation marks, in
// which "" is one of them; blanks around it do not count.
func splitRow(row string) (fields [4]string, err error) {
	for i := range fields {
		row = strings.TrimLeft(row, " \t")
		if strings.HasPrefix(row, `"`) {
			if fields[i], row, err = unquote(row); err != nil {
				return fields, err
			}
			row = strings.TrimLeft(row, " \t\r")
		} else {
			end := strings.IndexByte(row, ',')
			if end < 0 {
				end = len(row)
			}
			fields[i], row = strings.TrimRight(row[:end], " \t\r"), row[end:]
		}
		switch last := i == len(fields)-1; {
		case row == "" && last:
		case row == "":
			return fields, fewFields(i + 1)
		case row[0] != ',':
			return fields, fmt.Errorf("field %d goes on after its quotation mark", i+1)
		case last:
			return fields, fmt.Errorf("more than %d fields; a line is %s", len(fields), strings.Join(csvColumns[:], ","))
		default:
			row = row[1:]
		}
	}
	return fields, nil
}

func unquote(row string) (field, rest string, err error) {
	for rest = row[1:]; ; {
		part, after, found := strings.Cut(rest, `"`)
		if !found {
			return "", "", errors.New("a quotation mark is not closed on the same line")
		}
		field, rest = field+part, after
		if !strings.HasPrefix(rest, `"`) {
			return field, rest, nil
		}
		field, rest = field+`"`, rest[1:]
	}
}

// CellID reads the id of a row that is imported.
func CellID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || text[0] == '+':
		return 0, fmt.Errorf("id %s is not a whole number of 64 bits", shown(text))
	case id == 0:
		return 0, errors.New("0 is not an id")
	}
	return id, nil
}

// CellValue reads a count that is imported: what an answer can say, so nothing
// negative.
func CellValue(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && text[0] != '-':
		return 0, fmt.Errorf("value %s is too large: at most %d", shown(text), math.MaxInt64)
	case errors.Is(err, strconv.ErrRange) || err == nil && value < 0:
		return 0, fmt.Errorf("value %s is negative", shown(text))
	case err != nil || text[0] == '+':
		return 0, fmt.Errorf("value %s is not a whole number", shown(text))
	}
	return value, nil
}

// shown quotes a beginning of somebody's text.
func shown(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.Quote(text[:most]) + "…"
	}
	return strconv.Quote(text)
}

// quoted is a JSON string.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings can be written
	}
	return b
}
