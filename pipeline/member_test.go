package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A token that spells an id is that id, and no other token is taken for one.
func TestTokenMember(t *testing.T) {
	for token, id := range map[string]uint64{"1": 1, "42": 42, "18446744073709551615": 1<<64 - 1} {
		if got := TokenMember([]byte(token)); got != (Member{A: id}) {
			t.Errorf("%s is %+v", token, got)
		}
	}
	seen := map[Member]string{}
	for _, token := range []string{
		"", "0", "042", "+42", "-42", "4 2", "4_2", "0x2a", "42.0", "٤٢", "18446744073709551616", "111111111111111111111",
		"viewer-42", "e3b0c442", strings.Repeat("x", TokenBytesMax),
	} {
		got := TokenMember([]byte(token))
		if got.A == 0 || got.B == 0 || got != TokenMember([]byte(token)) || seen[got] != "" {
			t.Errorf("%q is %+v, as is %q", token, got, seen[got])
		}
		seen[got] = token
	}
	// Other versions read the digest: it must not change.
	if got, want := fmt.Sprintf("%+v", TokenMember([]byte("viewer-42"))), "{A:14785606310927352786 B:12842935446471632907}"; got != want {
		t.Errorf("viewer-42 is %s, want %s", got, want)
	}
}

// Operations on sets come out as they went in; several may have one position.
func TestSetOperationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Position(rapid.Uint64Range(0, 1<<60).Draw(t, "from"))
		at := from + 1
		var want []Operation
		var section []byte
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			o := Operation{
				Op: rapid.SampledFrom([]Op{OpAdd, OpTake, OpEmpty}).Draw(t, "op"), ID: rapid.Uint64().Draw(t, "id"),
				Column: rapid.IntRange(0, 1000).Draw(t, "column"),
			}
			if o.Op != OpEmpty {
				at += Position(rapid.Uint64Range(0, 2).Draw(t, "later"))
				o.Position = at
				o.Member = Member{rapid.Uint64Range(1, 1<<64-1).Draw(t, "a"), rapid.Uint64().Draw(t, "b")}
				o.By = value(-Limit).Draw(t, "by")
			}
			want = append(want, o)
			section = AppendOperation(section, from, &o)
		}
		r := ReadSection(section, from)
		for _, o := range want {
			c, ok := r.Next()
			if got := fmt.Sprintf("%+v", r.Operation); !ok || c.Op != o.Op || c.ID != o.ID || got != fmt.Sprintf("%+v", o) {
				t.Fatalf("%s, %v; want %+v", got, r.Err(), o)
			}
		}
		if _, ok := r.Next(); ok || r.Err() != nil {
			t.Fatalf("more than was written, or %v", r.Err())
		}
	})
}

// What no router has written is refused.
func TestSetOperationMalformed(t *testing.T) {
	follow := AppendOperation(nil, 10, &Operation{Op: OpFollow, ID: 1, Other: 2, Position: 12})
	for want, section := range map[string][]byte{
		"position 10 comes before 10":        AppendOperation(nil, 10, &Operation{Op: OpAdd, ID: 1, Member: Member{A: 1}, By: 1, Position: 10}),
		"position 11 comes before 12":        AppendOperation(follow, 10, &Operation{Op: OpAdd, ID: 1, Member: Member{A: 1}, By: 1, Position: 11}),
		"position 12 does not come after 12": append(AppendOperation(nil, 10, &Operation{Op: OpAdd, ID: 1, Member: Member{A: 1}, By: 1, Position: 12}), follow...),
		"is no amount":                       AppendOperation(nil, 10, &Operation{Op: OpAdd, ID: 1, Member: Member{A: 1}, By: -Limit - 1, Position: 12}),
		"has a member":                       {byte(OpEmpty)<<2 | formOp, 1, 1},
	} {
		r := ReadSection(section, 10)
		for ok := true; ok; {
			_, ok = r.Next()
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v, want %q", section, err, want)
		}
	}
}

// A column with a set keeps its log order, and so does the one that says whether the row exists.
func TestSchemaSets(t *testing.T) {
	columns := []ColumnSpec{
		{Name: ExistsColumn, Hidden: true},
		{Name: "like", Set: SetSpec{Members: MembersIDs}},
		{Name: "comment"},
		{Counter: 1, Name: "sold"},
		{Counter: 1, Name: ExistsColumn, Hidden: true},
	}
	schema, err := NewSchema([]string{"post", "shop"}, columns)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, false, false} {
		if got := schema.Columns[i].Ordered; got != want {
			t.Errorf("%s is ordered: %v, want %v", schema.FullName(Column(i)), got, want)
		}
	}
	if got := fmt.Sprint(schema.Sets()); got != "[1]" {
		t.Errorf("the sets are %s", got)
	}
	var many []ColumnSpec
	for i := range SetsMax + 1 {
		many = append(many, ColumnSpec{Name: fmt.Sprint("c", i), Set: SetSpec{Members: MembersTokens, Keep: 60}})
	}
	if _, err := NewSchema([]string{"post"}, many[1:]); err != nil {
		t.Error(err)
	}
	if _, err := NewSchema([]string{"post"}, many); err == nil || !strings.Contains(err.Error(), "201 columns have a set or keep items, at most 200 may") {
		t.Errorf("%d sets: %v", len(many), err)
	}
}
