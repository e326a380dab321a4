package wire_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// What is asked and answered of sets is what arrives, whatever the shape of their members.
func TestSetsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		member := func(what string) pipeline.Member {
			return pipeline.Member{A: max(uint64(position(t, what)), 1), B: rapid.SampledFrom([]uint64{0, 9, 1<<64 - 1}).Draw(t, what+"'s second")}
		}
		limit := rapid.SampledFrom([]int{wire.MessageMin, 1 << 20}).Draw(t, "limit")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		names := wire.AppendNames(nil, wire.Names{Counter: name.Draw(t, "counter"), Columns: []string{name.Draw(t, "column")}})

		page, paged := wire.MembersAsk{Names: names, ID: member("id").A, After: member("after"), Limit: rapid.IntRange(1, wire.LimitMax).Draw(t, "members")}, wire.MembersAsk{}
		same(t, paged.Decode(page.Append(nil), wire.Version), fmt.Sprint(paged), fmt.Sprint(page))
		wide := rapid.Bool().Draw(t, "wide")
		members := query.MemberPage{Members: make([]pipeline.Member, page.Limit), More: rapid.Bool().Draw(t, "more")}
		for i := range members.Members {
			m := &members.Members[i]
			m.A = max(r.Uint64()>>r.IntN(64), 1)
			if wide && r.IntN(2) == 0 {
				m.B = max(r.Uint64()>>r.IntN(64), 1)
			}
		}
		slices.SortFunc(members.Members, pipeline.Member.Compare)
		var out query.MemberPage
		err := wire.DecodeMemberPage(pieces(t, limit, func(p *wire.Pieces) {
			p.MemberPage(&members)
			p.End(tail)
		}), page.Limit, &out)
		if err != nil || !slices.Equal(out.Members, members.Members) || out.More != members.More || out.AsOf != tail.AsOf || out.Cost != tail.Cost {
			t.Fatalf("%v\n%v\n%v", err, out, members)
		}
	})
}

// drawSets are members to look for in some of so many columns.
func drawSets(t *rapid.T, columns int) (sets []pipeline.MemberOf) {
	if columns == 0 {
		return nil
	}
	for range rapid.IntRange(0, 5).Draw(t, "members") {
		sets = append(sets, pipeline.MemberOf{
			Column: pipeline.Column(rapid.IntRange(0, columns-1).Draw(t, "column")),
			Member: pipeline.Member{A: max(uint64(position(t, "member")), 1), B: rapid.SampledFrom([]uint64{0, 9, 1<<64 - 1}).Draw(t, "second")},
		})
	}
	return sets
}

func FuzzSets(f *testing.F) {
	names := wire.AppendNames(nil, wire.Names{Counter: "post", Columns: []string{"like"}})
	f.Add((&wire.RowsAsk{Names: names, Sets: []pipeline.MemberOf{{Member: pipeline.Member{A: 7, B: 1 << 63}}}, IDs: []uint64{1, 2, 1 << 40}}).Append(nil))
	f.Add((&wire.MembersAsk{Names: names, ID: 42, After: pipeline.Member{A: 7}, Limit: 100}).Append(nil))
	for _, answer := range []func(*wire.Pieces){
		func(p *wire.Pieces) {
			p.Rows(&query.Rows{Exist: make([]bool, 3), Has: []bool{true, false, true, true, false, false}, Missing: []int{1}}, 1)
		},
		func(p *wire.Pieces) {
			p.MemberPage(&query.MemberPage{Members: []pipeline.Member{{A: 1}, {A: 1, B: 2}}, More: true})
		},
	} {
		p := &wire.Pieces{Limit: 1 << 20}
		answer(p)
		p.End(tail)
		f.Add(p.Buf)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for version := range wire.Version + 2 {
			var rows wire.RowsAsk
			if rows.Decode(wire.RowsHas, body, version) == nil {
				again(t, rows.IDs, body)
			}
			var page wire.MembersAsk
			if page.Decode(body, version) == nil && (page.ID == 0 || page.Limit < 1 || page.Limit > wire.LimitMax) {
				t.Fatalf("%+v", page)
			}
		}
		in := [][]byte{body}
		rows := query.Rows{Sets: make([]pipeline.MemberOf, 2)}
		rows.Reset(3, 1)
		if _, missing, err := wire.DecodeRows(in, []int32{2, 0, 1}, 1, &rows); err == nil && len(missing) > 0 && slices.Max(missing) > 2 {
			t.Fatal(missing)
		}
		var out query.MemberPage
		if wire.DecodeMemberPage(in, 3, &out) == nil && (len(out.Members) > 3 || slices.ContainsFunc(out.Members, func(m pipeline.Member) bool { return m.A == 0 })) {
			t.Fatal(out)
		}
	})
}
