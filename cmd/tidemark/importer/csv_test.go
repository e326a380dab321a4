package importer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func rowsOf(text string) ([]string, Bad) {
	t := &table{from: bufio.NewReaderSize(strings.NewReader(text), readBytes)}
	out, err := io.ReadAll(iotest.OneByteReader(t))
	if err != nil {
		panic(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), t.bad
}

// "`counter,id,column,value`, header optional"; bad lines are named with their
// number and what is wrong, and leave a blank line, so that numbers stay.
func TestCSV(t *testing.T) {
	set := func(counter string, id uint64, column string, value int64) string {
		return fmt.Sprintf(`{"type":"adjust","counter":%q,"id":%d,"column":%q,"set":%d}`, counter, id, column, value)
	}
	for text, want := range map[string]string{
		"post,42,like,3":                       set("post", 42, "like", 3),
		"post,42,like,3\r\n":                   set("post", 42, "like", 3),
		"\xef\xbb\xbfpost,42,like,3":           set("post", 42, "like", 3),
		" post ,\t42, like , 3 ":               set("post", 42, "like", 3),
		`"post","42","like","3"`:               set("post", 42, "like", 3),
		`"po""st" , "42" ,like,3`:              set(`po"st`, 42, "like", 3),
		"post,18446744073709551615,like,0":     set("post", 1<<64-1, "like", 0),
		"post,1,like,9223372036854775807":      set("post", 1, "like", 1<<63-1),
		"counter,id,column,value\npost,1,a,2":  "\n" + set("post", 1, "a", 2),
		"\"Counter\", ID,COLUMN,value\r\n\r\n": "\n",
		"":                                     "", "\n\n": "\n",
	} {
		if got, bad := rowsOf(text); strings.Join(got, "\n") != want || bad.Lines != 0 {
			t.Errorf("%q: %q, %v", text, got, bad)
		}
	}
	for row, why := range map[string]string{
		"post":                              "1 field; a line is counter,id,column,value",
		"post,42,like":                      "3 fields; a line is counter,id,column,value",
		"post,42,like,3,":                   "more than 4 fields; a line is counter,id,column,value",
		"post;42;like;3":                    "1 field; a line is counter,id,column,value",
		"post,0,like,3":                     "0 is not an id",
		"post,-1,like,3":                    `id "-1" is not a whole number of 64 bits`,
		"post,,like,3":                      `id "" is not a whole number of 64 bits`,
		"post,+1,like,3":                    `id "+1" is not a whole number of 64 bits`,
		"post,18446744073709551616,like,3":  `id "18446744073709551616" is not a whole number of 64 bits`,
		"post,1,like,":                      `value "" is not a whole number`,
		"post,1,like,1.5":                   `value "1.5" is not a whole number`,
		"post,1,like,1e3":                   `value "1e3" is not a whole number`,
		"post,1,like,NaN":                   `value "NaN" is not a whole number`,
		"post,1,like,+3":                    `value "+3" is not a whole number`,
		"post,1,like,-3":                    `value "-3" is negative`,
		"post,1,like,-9223372036854775809":  `value "-9223372036854775809" is negative`,
		"post,1,like,9223372036854775808":   `value "9223372036854775808" is too large: at most 9223372036854775807`,
		",1,like,3":                         "the counter is missing",
		"post,1,,3":                         "the column is missing",
		`post,1,"like,3`:                    "a quotation mark is not closed on the same line",
		`post,1,"like"x,3`:                  "field 3 goes on after its quotation mark",
		"po\xffst,1,like,3":                 "not UTF-8",
		"counter,id,column,value":           `id "id" is not a whole number of 64 bits`, // on line 2
		"post,1,like," + repeat("1", 10000): "longer than 4096 bytes",
		"x" + repeat("x", 3*readBytes):      "longer than 4096 bytes",
	} {
		got, bad := rowsOf("post,1,like,1\n" + row + "\npost,2,like,2")
		want := Bad{1, []BadLine{{2, why}}}
		if !reflect.DeepEqual(bad, want) || strings.Join(got, "\n") != set("post", 1, "like", 1)+"\n\n"+set("post", 2, "like", 2) {
			t.Errorf("%.60q: %v %.200q", row, bad, got)
		}
	}
	got, bad := rowsOf(repeat("nothing\n", 1000) + "post,1,like,1")
	if bad.Lines != 1000 || len(bad.Examples) != badShownMax || bad.Examples[9].Line != 10 || len(got) != 1001 {
		t.Errorf("%d %v", len(got), bad)
	}
}

// What encoding/csv writes is read as it was, whatever is in it.
func TestCSVTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "é", `"`, ",", " ", "x_1", "\\", "{", "'"}
	for range 2000 {
		var word [2]string
		for i := range word {
			word[i] = "w"
			for range random.IntN(6) {
				word[i] += letters[random.IntN(len(letters))]
			}
			word[i] += "w" // blanks at the ends do not count
		}
		id, value := random.Uint64()>>random.IntN(64)|1, int64(random.Uint64()>>1)>>random.IntN(63)
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		_ = w.Write([]string{word[0], strconv.FormatUint(id, 10), word[1], strconv.FormatInt(value, 10)})
		w.Flush()
		want := fmt.Sprintf(`{"type":"adjust","counter":%s,"id":%d,"column":%s,"set":%d}`, quoted(word[0]), id, quoted(word[1]), value)
		if got, bad := rowsOf(b.String()); bad.Lines != 0 || got[0] != want {
			t.Fatalf("%q: %q, %v", b.String(), got, bad)
		}
	}
}

// A file of CSV is imported like one of events: interrupted and run again each
// count is set once, in the file's order, and the numbers of bad lines are of
// the whole file.
func TestCSVGoesOn(t *testing.T) {
	b := newBench(t)
	var text strings.Builder
	var want []string
	fmt.Fprintln(&text, "counter,id,column,value")
	for i := range 5000 {
		if i%1000 == 500 {
			fmt.Fprintln(&text, "post,x,like,1")
		}
		fmt.Fprintf(&text, "post,%d,like,%d\n", i+1, i)
		want = append(want, fmt.Sprintf(`{"type":"adjust","counter":"post","id":%d,"column":"like","set":%d}`, i+1, i))
	}
	o := Options{CSV: true, Pack: 1024}
	cut := text.String()[:text.Len()/2]
	cut = cut[:strings.LastIndexByte(cut, '\n')+1]
	if _, err := b.run(cut, o); err != nil { // the file while it is still written
		t.Fatal(err)
	}
	r, err := b.run(text.String(), o)
	if err != nil || r.Skipped == 0 || r.Skipped+r.Lines != 5000 || r.Bad == nil || r.Bad.Lines != 5 || r.Bad.Examples[4] != (BadLine{4506, `id "x" is not a whole number of 64 bits`}) {
		t.Errorf("%+v %v %v", r, r.Bad, err)
	}
	b.want(want)
	path := write(t, t.TempDir()+"/counts.csv.gz", zip(text.String()))
	if r, err := Run(b.ctx, b.nc, path, nil, o); err != nil || !r.Already || r.Bad.Lines != 5 {
		t.Errorf("%+v %v", r, err)
	}
	// The same text is no file of events, and was not imported as one.
	if r, err := b.run(text.String(), Options{}); err != nil || r.Already {
		t.Errorf("%+v %v", r, err)
	}

	known, begun, err := Imported(b.ctx, b.nc, r.Import)
	if err != nil || !begun || !known.Already || known.Last != r.Last || known.Skipped != 5000 {
		t.Errorf("%+v %v %v", known, begun, err)
	}
	if _, begun, err := Imported(b.ctx, b.nc, "another"); begun || err != nil {
		t.Errorf("%v %v", begun, err)
	}
}
