package config

import (
	"strings"
	"testing"
)

func TestDrops(t *testing.T) {
	for _, test := range []struct{ from, to, words string }{
		{"", "shards: 16", ""},
		{"like: {bits: 8}, comment", "like: {bits: 8}, view: {bits: 32}, comment", ""},
		{"games: {kind: dot}, news: {}", "news: {}, games: {kind: dot}", ""},
		{"[{add: level.score, key: player}, {add: level.plain, key: player}]", "[{add: level.plain, key: player}, {add: level.score, key: player}]", ""},
		{"  comment: [{add: post.comment, key: post}]\n", "", "the rule of comment that adds to post.comment (key post)"},
		{"{add: level.plain, key: player}", "{add: level.plain, key: player, unless: draw}", "the rule of play that adds to level.plain (key player)"},
		{"{add: post.like, key: post}", "{add: post.like, key: post, once: actor}", "the rule of like that adds to post.like (key post)"},
	} {
		from, to := parse(t, base), parse(t, strings.Replace(base, test.from, test.to, 1))
		if test.from == "" {
			to = parse(t, base+test.to+"\n")
		}
		if got := strings.Join(Drops(from, to), "; "); got != test.words {
			t.Errorf("%q for %q drops %q, want %q", test.to, test.from, got, test.words)
		}
		if got := Drops(to, to); got != nil {
			t.Errorf("%q for %q drops %q of itself", test.to, test.from, got)
		}
	}
	twice := parse(t, strings.Replace(base, "comment: [{add: post.comment, key: post}]", "comment: [{add: post.comment, key: post}, {add: post.comment, key: post}]", 1))
	if got := strings.Join(Drops(twice, parse(t, base)), "; "); got != "the rule of comment that adds to post.comment (key post)" {
		t.Errorf("of a rule that is there twice, and then once: %q", got)
	}
	little := parse(t, "counters: {post: {comment: {}}}\nrules: {comment: [{add: post.comment, key: post}]}\n")
	got := strings.Join(Drops(parse(t, base), little), "; ")
	for _, want := range []string{"column post.like", "counter level", "counter unread", "the rule of like that adds to post.like"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
