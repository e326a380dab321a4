package client_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	postLike pipeline.Column = 2
	itemFan  pipeline.Column = 10 + iota - 1
	itemLiked
	itemView
)

// docs/contract.md: "each row has `"has":{"like":true}` for the columns that are sets of that shape"
func TestGetMember(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	if _, err := r.client.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{42}}); err != nil { // the binary form is known from now on
		t.Fatal(err)
	}
	r.reader.Set(0, postLike, 42, 3)
	r.reader.AddMembers(postLike, 42, client.Member{A: 7})
	r.reader.AddMembers(itemLiked, 5, client.Member{A: 50, B: 7})
	r.reader.AddMembers(itemView, 5, pipeline.TokenMember([]byte(`s"1`)))
	r.reader.StopShardOf(43)
	r.reader.Apply(2048)
	got, err := r.client.GetMany(ctx, client.GetRequest{Counter: "post", IDs: []uint64{43, 42, 44}, Columns: []string{"like", "comment"}, Member: client.Member{A: 7}})
	want := client.GetReply{
		Columns: []string{"like", "comment"}, Sets: []string{"like"}, AsOf: 2048, Degraded: true, Missing: []uint64{43},
		Rows: []client.Row{{ID: 43}, {ID: 42, Values: []int64{3, 0}, Has: []bool{true}}, {ID: 44, Values: []int64{0, 0}, Has: []bool{false}}},
	}
	if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("%v\ngot  %#v\nwant %#v", err, got, want)
	}
	for i, want := range []string{"false false", "true true", "false true"} {
		if has, ok := got.Has(i, "like"); fmt.Sprint(has, ok) != want {
			t.Errorf("row %d: %v %v", i, has, ok)
		}
	}
	for _, c := range []struct {
		r    client.GetRequest
		want string
	}{
		{client.GetRequest{Member: client.Member{A: 50, B: 7}}, "[liked] [true]"},
		{client.GetRequest{Member: client.Member{A: 7, B: 50}}, "[liked] [false]"},
		{client.GetRequest{Token: `s"1`}, "[view] [true]"},
		{client.GetRequest{Token: "7"}, "[fan view] [false false]"},
		{client.GetRequest{}, "[] []"},
	} {
		c.r.Counter, c.r.IDs = "item", []uint64{5}
		got, err := r.client.Get(ctx, c.r)
		if err != nil || fmt.Sprint(got.Sets, got.Rows[0].Has) != c.want {
			t.Errorf("%+v: %+v %v", c.r, got, err)
		}
	}
	if _, err := r.client.Get(ctx, client.GetRequest{Counter: "item", Member: client.Member{A: 7}, Token: "x"}); err == nil {
		t.Error("a member and a token are taken together")
	}
	if _, err := r.client.Get(ctx, client.GetRequest{Counter: "post", Member: client.Member{A: 7, B: 8}}); !has(err, 400, "like of ids") {
		t.Error(err)
	}
}

func TestMembers(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	var all []client.Member
	for i := range uint64(12_000) {
		all = append(all, client.Member{A: 1 + i/3, B: 1<<63 + i%3})
	}
	r.reader.AddMembers(itemLiked, 5, all...)
	r.reader.AddMembers(itemFan, 5, client.Member{A: 9}, client.Member{A: 7})
	r.reader.Apply(2048)
	got, err := r.client.Members(ctx, client.MembersRequest{Column: "item.fan", ID: 5, Limit: 1})
	if want := (client.MembersReply{Members: []client.Member{{A: 7}}, Next: client.Member{A: 7}, AsOf: 2048}); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v %v", got, err)
	}
	got, err = r.client.Members(ctx, client.MembersRequest{Column: "item.fan", ID: 5, After: got.Next})
	if err != nil || fmt.Sprint(got.Members, got.Next) != "[{9 0}] {0 0}" {
		t.Errorf("%+v %v", got, err)
	}
	var list []client.Member
	for m, err := range r.client.AllMembers(ctx, "item.liked", 5) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	if !slices.Equal(list, all) {
		t.Errorf("%d members, not %d", len(list), len(all))
	}
	if _, err := r.client.Members(ctx, client.MembersRequest{Column: "item.view", ID: 5}); !has(err, 400, "cannot be listed") {
		t.Error(err)
	}
	if _, err := r.client.Members(ctx, client.MembersRequest{Column: "post.smile", ID: 5}); !has(err, 404, "smile") {
		t.Error(err)
	}
	r.reader.StopShardOf(5)
	if got, err = r.client.Members(ctx, client.MembersRequest{Column: "item.fan", ID: 5}); err != nil || !got.Degraded || fmt.Sprint(got.Missing) != "[5]" {
		t.Errorf("%+v %v", got, err)
	}
	for _, err := range r.client.AllMembers(ctx, "item.liked", 5, client.Within(time.Second)) {
		if !has(err, 503, "the set item.liked of 5") {
			t.Error(err)
		}
	}
}

func TestPage(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.reader.Set(0, postLike, 42, 3)
	r.reader.AddMembers(postLike, 42, client.Member{A: 7})
	r.reader.Apply(2048)
	got, err := r.client.Page(ctx, client.PageRequest{IDs: []uint64{42, 43}, Viewer: 7, MinPosition: 2048})
	if err != nil || fmt.Sprint(got.Columns, got.Sets, got.Rows, got.AsOf) != "[repost comment like] [like] [{42 [0 0 3] [true]} {43 [0 0 0] [false]}] 2048" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = r.client.Page(ctx, client.PageRequest{IDs: []uint64{42}}); err != nil || fmt.Sprint(got.Sets, got.Rows) != "[] [{42 [0 0 3] []}]" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := r.client.Page(ctx, client.PageRequest{IDs: make([]uint64, 501)}); !has(err, 400, "ids[0]") {
		t.Error(err)
	}
	schema, err := r.client.Schema(ctx)
	if err != nil || fmt.Sprint(schema.Counters["item"].Columns[2]) != "{view  8 63 0 false tokens 86400 0}" {
		t.Errorf("%+v %v", schema, err)
	}
}
