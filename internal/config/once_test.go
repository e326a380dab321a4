package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

const sets = `
counters:
  post: {like: {bits: 8}, view: {bits: 16, default: 3}, comment: }
  user: {liked: }
rules:
  like: [{add: post.like, key: post, once: actor}, {add: user.liked, key: author, once: [post, actor]}]
  love: [{add: post.like, key: page, once: [lover]}, {add: post.comment, key: lover}]
  view: [{add: post.view, key: post, once: token, keep: 24h}]
  look: [{add: post.view, key: post, once: session, keep: 1d}]
`

// docs/contract.md: "One field is an id if it is `actor`, `post`, `author`, `target` or
// `repost_of`, or the `key` of a rule of the same event type; any other is a token. Two
// fields are two ids."
func TestSetsOfTheSchema(t *testing.T) {
	c := parse(t, sets)
	s, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, column := range s.Sets() {
		set := s.Columns[column].Set
		got = append(got, fmt.Sprintf("%s %v %d", s.FullName(column), set.Members, set.Keep))
	}
	want := "post.like ids 0, post.view tokens 86400, user.liked pairs 0"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	if rule := c.Rules()["view"][0]; fmt.Sprint(rule.Once) != "[token]" || rule.Keep != 86400 {
		t.Errorf("%+v", rule)
	}
}

// docs/contract.md: "All rules of one column agree in the number and kind of the fields in
// `once`, and in `keep`"
func TestSetsMustAgree(t *testing.T) {
	for change, want := range map[string]string{
		"[lover]":        "",
		"post":           "",
		"[post, page]":   "c:7: rules.love[0].once: post.like is counted once for a pair of ids here, and once for an id in line 6; all rules of a column agree in once and keep",
		"heart":          "post.like is counted once for a token here, and once for an id in line 6",
		"post, keep: 1m": "post.like is counted once for an id in 1m here, and once for an id in line 6",
		"post, keep: 0":  "",
		"nothing":        "c:7: rules.love[0]: post.like is counted every time here, and once for an id in line 6",
	} {
		text := strings.Replace(sets, "once: [lover]", "once: "+change, 1)
		if change == "nothing" {
			text = strings.Replace(sets, ", once: [lover]", "", 1)
		}
		_, err := Parse("c", []byte(text))
		var faults Faults
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", change, err)
		case want != "" && (!errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}

// The number of sets is bounded.
func TestSetsMax(t *testing.T) {
	var columns, rules []string
	for i := range pipeline.SetsMax + 1 {
		columns = append(columns, fmt.Sprintf("c%d: ", i))
		rules = append(rules, fmt.Sprintf("  e%d: [{add: page.c%d, key: page, once: actor}]", i, i))
	}
	head := "windows: {bytes: 2MiB}\ncounters: {page: {" + strings.Join(columns, ", ") + "}}\nrules:\n"
	if _, err := Parse("c", []byte(head+strings.Join(rules[1:], "\n"))); err != nil {
		t.Error(err)
	}
	want := "c:3: rules: 201 columns are counted once or keep items; allowed: 200"
	if _, err := Parse("c", []byte(head+strings.Join(rules, "\n"))); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
