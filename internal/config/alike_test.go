package config

import (
	"slices"
	"strings"
	"testing"
)

// base is what the tests of this file change.
const base = `
counters:
  post: {like: {bits: 8}, comment: {bits: 16, suffix: cntcm}}
  level: {score: {bits: 16, default: 5}, plain: {bits: 16}}
  unread: {like: {bits: 8}}
rules:
  like: [{add: post.like, key: post}, {add: unread.like, key: author, unless: self}]
  comment: [{add: post.comment, key: post}]
  play: [{add: level.score, key: player}, {add: level.plain, key: player}]
channels: {games: {kind: dot}, news: {}}
`

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What two configurations count alike, and what the other counts differently.
func TestChanges(t *testing.T) {
	all := []string{"post.like", "post.comment", "level.score", "level.plain", "unread.like"}
	for _, test := range []struct {
		from, to string // replaced in base, or added to it
		words    string
		not      string // of all columns, those that are not counted alike
	}{
		{"", "", "", ""},
		{"", "windows: {events: 77}", "", ""},
		{"", "shards: 16", "shards 64 → 16", ""},
		{"like: {bits: 8}, comment", "like: {bits: 8}, view: {bits: 32}, comment", "adds column post.view", ""},
		{"  unread:", "  view: {page: {}, visit: {}}\n  unread:", "adds counter view (view.page, view.visit)", ""},
		{", plain: {bits: 16}", "", "", "level.score level.plain"}, // its rule with it
		{"{bits: 8}, comment", "{bits: 9}, comment", "post.like: bits 8 → 9", ""},
		{"default: 5", "default: 6", "level.score: default 5 → 6", "level.score"},
		{"suffix: cntcm", "suffix: c", "post.comment: suffix cntcm → c", ""},
		{"{add: post.like, key: post}", "{add: post.like, key: post, once: actor}", "changes the rules for like", "post.like"},
		{"{add: post.comment, key: post}", "{add: post.comment, key: post, once: actor, keep: 1h}", "changes the rules for comment", "post.comment"},
		// An event counts whole or not at all: what another rule asks for decides of all.
		{"{add: level.plain, key: player}", "{add: level.plain, key: player, once: round}", "changes the rules for play", "level.score level.plain"},
		{"{add: level.plain, key: player}", "{add: level.plain, key: game}", "changes the rules for play", "level.score level.plain"},
		{"[{add: post.like, key: post}", "[{add: post.like, key: post}, {add: level.plain, key: actor}", "changes the rules for like", "level.score level.plain"},
		{"comment: [{add: post.comment, key: post}]", "comment: [{add: post.comment, key: post}, {add: post.comment, key: post}]", "changes the rules for comment", "post.comment"},
		{"  play:", "  view: [{add: post.like, key: post}]\n  play:", "adds rules for view", "post.like"},
		{"  comment: [{add: post.comment, key: post}]\n", "", "drops the rules for comment", "post.comment"},
		{
			"[{add: level.score, key: player}, {add: level.plain, key: player}]", "[{add: level.plain, key: player}, {add: level.score, key: player}]",
			"another order of counters, columns, rules or channels", "",
		},
		{"games: {kind: dot}, news: {}", "news: {}, games: {kind: dot}", "another order of counters, columns, rules or channels", ""},
		{"games: {kind: dot}", "fun: {kind: dot}", "no longer lists channel games; lists channel fun (dot)", ""},
		{"", "channels_open: false", "channels_open true → false", "unread.like"},
		{"", "limits: {notices: 7}", "limits.notices 100000 → 7", ""},
		{"", "feed: {posts_per_author: 500}", "feed.posts_per_author 1000 → 500; feed.posts_kept 4000 → 2000", ""},
		{"", "feed: {posts_kept: 4000}", "", ""}, // what it is anyway
		{"", "inactive_after: 10d", "inactive_after 30d → 10d", "unread.like"},
		{"unread: {like: {bits: 8}}", "unread: {like: {bits: 8}, play: {bits: 8}}", "adds column unread.play", "unread.like"},
	} {
		text := base + test.to + "\n"
		if test.from != "" {
			if !strings.Contains(base, test.from) {
				t.Fatalf("base has no %s", test.from)
			}
			text = strings.Replace(base, test.from, test.to, 1)
		}
		if test.from == ", plain: {bits: 16}" {
			text = strings.Replace(text, ", {add: level.plain, key: player}", "", 1)
			test.words = "drops column level.plain; changes the rules for play"
		}
		from, to := parse(t, base), parse(t, text)
		words, err := Changes(from, to)
		if got := strings.Join(words, "; "); err != nil || got != test.words {
			t.Errorf("%q for %q: %v %q, want %q", test.to, test.from, err, got, test.words)
		}
		back, err := Changes(to, from)
		if err != nil || (len(back) == 0) != (len(words) == 0) {
			t.Errorf("%q for %q, back: %v %q", test.to, test.from, err, back)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(strings.Fields(test.not), c) })
		slices.Sort(want)
		for _, got := range [][]string{Alike(from, to), Alike(to, from)} {
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%q for %q: alike are %v, want %v", test.to, test.from, got, want)
			}
		}
	}
}
