package config

import (
	"slices"
	"strings"
	"testing"
)

// docs/contract.md: "`extends: default` in a file adds its counters, columns, rules and
// channels to those of the program, instead of replacing whole sections. `config check` names
// what a file without it drops of the defaults."
func TestExtends(t *testing.T) {
	const mine = `
counters: {post: {view: {bits: 8}, like: {bits: 12}}, item: {sold: {bits: 8}}}
rules:
  view: [{add: post.view, key: post}]
  like: [{add: post.like, key: post, once: [actor, post]}, {add: item.sold, key: post}]
channels: {games: {kind: dot}}
`
	c, err := Parse("f", []byte("extends: default"+mine))
	if err != nil {
		t.Fatal(err)
	}
	var post []string
	for _, column := range c.Counters[0].Columns {
		post = append(post, column.Name)
		if column.Name == "like" && column.Bits != 12 {
			t.Errorf("like has %d bits", column.Bits)
		}
	}
	if !slices.Equal(post, []string{"repost", "comment", "like", "view"}) || len(c.Counters) != 4 || len(c.Channels) != 1 {
		t.Errorf("post has %q, %d counters", post, len(c.Counters))
	}
	rules := c.Rules()
	var adds []string
	for _, r := range rules["like"] {
		adds = append(adds, r.Add+" "+strings.Join(r.Once, ","))
	}
	if !slices.Equal(adds, []string{"post.like actor,post", "item.sold ", "user.liked post,actor", "unread.like actor,post"}) || len(rules["view"]) != 1 || len(rules["comment"]) != 3 {
		t.Errorf("rules of like: %q", adds)
	}
	if drops := Drops(Default(), c); !slices.Equal(drops, []string{"the rule of like that adds to post.like (key post, once actor)"}) { // it is another
		t.Errorf("drops %q", drops)
	}
	// Adopted, the file says all of it itself.
	serves := Default()
	counting, err := serves.Counting()
	if err != nil {
		t.Fatal(err)
	}
	text, words, err := Adopt("f", []byte("extends: default\nnode: a"+mine), nil, counting)
	if err != nil || len(words) == 0 || strings.Contains(string(text), "extends") || !strings.Contains(string(text), "node: a") {
		t.Errorf("%v %q\n%s", err, words, text)
	}

	if c, err = Parse("f", []byte(strings.ReplaceAll(mine, ", once: [actor, post]", ""))); err != nil {
		t.Fatal(err)
	}
	got := Drops(Default(), c)
	for _, want := range []string{
		"column post.repost", "column post.comment", "counter user", "counter unread", "the rule of post that adds to user.post (key actor)",
		"the rule of like that adds to unread.like (key author, unless self, once [actor, post])", "the rule of message that adds to unread.message (key target, unless self, once message)",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("drops %q, not %q", got, want)
		}
	}
	for text, says := range map[string]string{
		"extends: other": "f:1: extends: ",
		"counters: {unread: {like: {items: 5, bits: 8}, comment: {}}}\nextends: default":                 "f:1: counters: the default rules count unread.comment once, and there they are plain numbers; give these columns items",
		"extends: default\nrules: {view: [{add: post.like, key: post}]}":                                 "f:2: rules: post.like is counted every time here, and once for an id by the default rules",
		"extends: default\nrules: {view: [{add: post.vie, key: post}]}":                                  "f:2: rules.view[0].add: ",
		"extends: default\ncounters: {item: {n: {suffix: cntan}}}\nrules: {x: [{add: item.n, key: id}]}": "cntan",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}
