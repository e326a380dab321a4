package query

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

func testSchema(t testing.TB) *pipeline.Schema {
	t.Helper()
	schema, err := pipeline.NewSchema([]string{"post", "user"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "repost", Suffix: "cntrn", Bits: 16, Max: 63},
		{Counter: 0, Name: "comment", Suffix: "cntcm", Bits: 16, Max: 63},
		{Counter: 0, Name: "like", Suffix: "cntan", Bits: 8, Max: 63, Default: 5},
		{Counter: 0, Name: "old", Bits: 8, Max: 63, Hidden: true},
		{Counter: 1, Name: "post", Suffix: "cntup", Bits: 16, Max: 63},
	})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// parser is a Service as far as parsing needs one.
func parser(t testing.TB) *Service {
	t.Helper()
	return &Service{catalog: newCatalog(testSchema(t)), limits: Limits{}.withDefaults()}
}

func parsed(s *Service, body string) (*call, *failure) {
	c := &call{body: []byte(body), wait: wait{timeout: -1}}
	return c, s.parseGet(c)
}

func FuzzGetRequest(f *testing.F) {
	for _, seed := range []string{
		`{"counter":"post","ids":["42",43],"columns":["like"]}`,
		`{"ids":[18446744073709551615,"18446744073709551616"],"columns":["cntcm"]}`,
		` { "ids" : [ 1 , "\u0032" , 0003 ] , "counter" : "us\u0065r" , "x" : {"y":[1,{}]} } `,
		`{"counter":"post","ids":[1e3]}`, `{"counter":"post","ids":[-1,0.5]}`, `{"ids":null}`, `[]`, ``, "\x00",
		`{"counter":"post","ids":[1],"min_position":"1024","timeout_ms":5,"columns":[]}`,
	} {
		f.Add([]byte(seed))
	}
	s := parser(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &call{body: body, wait: wait{timeout: -1}}
		if c.get.parse(c, s.limits.IDs) != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was accepted and is not JSON", body)
		}
		if slices.Contains(c.get.ids, 0) {
			t.Fatalf("%q gave the id 0", body)
		}
		// What was accepted, written again, is the same request.
		var again strings.Builder
		fmt.Fprintf(&again, `{"counter":%q,"min_position":"%d","ids":[`, "post", c.wait.position)
		for i, id := range c.get.ids {
			if i > 0 {
				again.WriteByte(',')
			}
			if i%2 == 0 {
				again.WriteString(strconv.FormatUint(id, 10))
			} else {
				again.WriteString(strconv.Quote(strconv.FormatUint(id, 10)))
			}
		}
		again.WriteString(`]}`)
		c2, f := parsed(s, again.String())
		if f != nil {
			t.Fatalf("%s: %s", again.String(), f.message)
		}
		if !slices.Equal(c.get.ids, c2.get.ids) || c.wait.position != c2.wait.position {
			t.Fatalf("%q gave ids %v, written again %v", body, c.get.ids, c2.get.ids)
		}
	})
}

// The scanner's verdict on JSON is encoding/json's, on requests and on ruins
// of requests.
func TestParseAcceptsJSONOnly(t *testing.T) {
	s := parser(t)
	whole := `{"counter":"post","a":[1,{"b":null}],"ids":["42",43, 44],"c":-1.5e+3,"d":true,"e":"\u00e9é","columns":["like"]}`
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(whole)
		for range rapid.IntRange(0, 3).Draw(t, "cuts") {
			i := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				body = slices.Delete(body, i, i+1)
			case 1:
				body[i] = rapid.SampledFrom([]byte("{}[],:\"\\ 019-+.eEnulltruef\x00\xff\n")).Draw(t, "byte")
			case 2:
				body = slices.Insert(body, i, rapid.SampledFrom([]byte("{}[],:\"\\ 019-.e")).Draw(t, "byte"))
			}
		}
		_, f := parsed(s, string(body))
		if f == nil && !json.Valid(body) {
			t.Fatalf("%q was accepted", body)
		}
		if f != nil && strings.Contains(f.message, "is not the JSON object") {
			var object map[string]json.RawMessage
			if json.Unmarshal(body, &object) == nil && strings.ToValidUTF8(string(body), "") == string(body) {
				t.Fatalf("%q was refused: %s", body, f.message)
			}
		}
	})
}

// Every reply, read by encoding/json, is what the plain rules give.
func TestReplyAgainstPlainRules(t *testing.T) {
	s := parser(t)
	rapid.Check(t, func(t *rapid.T) {
		var body strings.Builder
		for _, id := range rapid.SliceOfN(rapid.Uint64Min(1), 0, 20).Draw(t, "ids") {
			form := rapid.SampledFrom([]string{`,%d`, `,"%d"`, ` , "00%d"`, `,"\u0030%d"`}).Draw(t, "form")
			fmt.Fprintf(&body, form, id)
		}
		c, f := parsed(s, `{"counter":"post","ids":[`+strings.Replace(body.String(), ",", "", 1)+`]}`)
		if f != nil {
			t.Fatal(f.message)
		}
		g := &c.get
		g.rows.Reset(len(g.ids), len(g.words))
		g.rows.AsOf = pipeline.Position(rapid.Uint64().Draw(t, "as_of"))
		for i := range g.rows.Values {
			g.rows.Values[i] = rapid.Int64().Draw(t, "value")
		}
		missing := map[string]bool{}
		for i, id := range g.ids {
			g.rows.Exist[i] = rapid.Bool().Draw(t, "exists")
			if rapid.IntRange(0, 5).Draw(t, "missing") == 0 {
				g.rows.Missing = append(g.rows.Missing, i)
				missing[strconv.FormatUint(id, 10)] = true
			}
		}
		var reply struct {
			Rows     []map[string]any `json:"rows"`
			AsOf     string           `json:"as_of"`
			Degraded bool             `json:"degraded"`
			Missing  []string         `json:"missing"`
		}
		d := json.NewDecoder(strings.NewReader(string(g.appendReply(nil, c.body))))
		d.UseNumber()
		if err := d.Decode(&reply); err != nil {
			t.Fatal(err)
		}
		if len(reply.Rows) != len(g.ids) || reply.AsOf != g.rows.AsOf.String() {
			t.Fatalf("%d rows as of %s", len(reply.Rows), reply.AsOf)
		}
		if reply.Degraded != (len(missing) > 0) || len(reply.Missing) != len(missing) {
			t.Fatalf("degraded %v, missing %v, want %v", reply.Degraded, reply.Missing, missing)
		}
		for i, row := range reply.Rows {
			want := map[string]any{"id": strconv.FormatUint(g.ids[i], 10)}
			if !slices.Contains(g.rows.Missing, i) {
				for j, name := range []string{"repost", "comment", "like"} {
					value := max(g.rows.Values[i*3+j], 0)
					if !g.rows.Exist[i] {
						value = []int64{0, 0, 5}[j]
					}
					want[name] = json.Number(strconv.FormatInt(value, 10))
				}
			}
			if fmt.Sprint(row) != fmt.Sprint(want) {
				t.Fatalf("row %d is %v, want %v", i, row, want)
			}
		}
	})
}

func TestNothingIsAllocatedForAnID(t *testing.T) {
	s := parser(t)
	c := &call{body: benchBody(500, true)}
	work := func() {
		c.out = c.out[:0]
		if f := s.parseGet(c); f != nil {
			t.Fatal(f.message)
		}
		c.get.rows.Reset(len(c.get.ids), len(c.get.words))
		c.out = c.get.appendReply(c.out, c.body)
	}
	work()
	if n := testing.AllocsPerRun(100, work); n > 0 {
		t.Errorf("%v allocations a request of 500 ids", n)
	}
}

func benchBody(n int, quoted bool) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	body := []byte(`{"counter":"post","ids":[`)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		id := strconv.FormatUint(r.Uint64()>>4|1, 10) // 17 to 19 digits, as snowflake ids have
		if quoted {
			id = strconv.Quote(id)
		}
		body = append(body, id...)
	}
	return append(body, `],"columns":["like"]}`...)
}

func BenchmarkGet(b *testing.B) {
	s := parser(b)
	for _, n := range []int{1, 500, 10_000} {
		c := &call{body: benchBody(n, true)}
		perID := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/id")
		}
		b.Run(fmt.Sprintf("parse/ids=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f := s.parseGet(c); f != nil {
					b.Fatal(f.message)
				}
			}
			perID(b)
		})
		if f := s.parseGet(c); f != nil {
			b.Fatal(f.message)
		}
		c.get.rows.Reset(n, len(c.get.words))
		for i := range n {
			c.get.rows.Exist[i] = true
			c.get.rows.Values[i] = int64(i % 1000)
		}
		b.Run(fmt.Sprintf("reply/ids=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.out = c.get.appendReply(c.out[:0], c.body)
			}
			perID(b)
		})
	}
}
