package config

import (
	"reflect"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

func TestDefaultSchema(t *testing.T) {
	s, err := Default().Schema()
	if err != nil {
		t.Fatal(err)
	}
	var ordered []string
	for i := range s.Columns {
		if c := pipeline.Column(i); s.Columns[c].Ordered {
			ordered = append(ordered, s.FullName(c))
		}
	}
	if want := []string{
		"post.comment", "post.like", "user.following", "user.follower", "user.friend", "user.liked",
		"unread.repost", "unread.comment", "unread.mention", "unread.like", "unread.follower", "unread.message",
	}; !slices.Equal(ordered, want) {
		t.Errorf("ordered columns are %v, want %v", ordered, want)
	}
	like, ok := s.Suffix("cntan")
	if !ok || s.FullName(like) != "post.like" || s.Columns[like].Bits != 8 {
		t.Errorf("suffix cntan is column %d, %v", like, ok)
	}
}

func TestSchemaKeepsTheFilesOrderAndHidesExists(t *testing.T) {
	c, err := Parse("c.yaml", []byte(`
counters:
  z: {b: {bits: 4, max: 9}, a: {bits: 3, default: 7, suffix: za}}
  a: {c: }
rules: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	want := []pipeline.ColumnSpec{
		{Counter: 0, Name: "b", Bits: 4, Max: 9},
		{Counter: 0, Name: "a", Bits: 3, Max: 63, Default: 7, Suffix: "za"},
		{Counter: 0, Name: "exists", Bits: 1, Max: 63, Hidden: true},
		{Counter: 1, Name: "c", Bits: 16, Max: 63},
	}
	if !reflect.DeepEqual(s.Columns, want) {
		t.Errorf("columns are %+v\nwant %+v", s.Columns, want)
	}
	if got := s.Visible(0); !slices.Equal(got, []pipeline.Column{0, 1}) {
		t.Errorf("visible columns of z are %v", got)
	}
}
