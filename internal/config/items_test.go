package config

import (
	"strings"
	"testing"
)

// docs/contract.md: "A kind of unread is a column of the counter `unread`. With `items: N` in its
// declaration (1 to 100,000) …", "A plain column has no `once`."
func TestItemsOfColumns(t *testing.T) {
	long := strings.Repeat("x", 58)
	for text, want := range map[string]string{
		"counters: {unread: {like: {items: 100000}}}\nrules: {}":                                                          "",
		"counters: {unread: {like: {items: 100001}}}\nrules: {}":                                                          "counters.unread.like.items: 100001",
		"counters: {post: {like: {items: 5}}}\nrules: {}":                                                                 "counters.post.like.items: is for columns of unread",
		"counters: {unread: {like: {signed: true}}}\nrules: {}":                                                           "counters.unread.like.signed: is for other counters",
		"counters: {unread: {" + long + ": {items: 5}}}\nrules: {}":                                                       "has 58 letters; a column that keeps items may have 57",
		"counters: {unread: {" + long[1:] + ": {items: 5}, " + long + ": {}}}\nrules: {}":                                 "",
		"unread: {retention: 1500ms}":                                                                                     "unread.retention: 1.5s is not a whole number of seconds",
		"counters: {unread: {like: {items: 5}}}\nrules: {like: [{add: unread.like, key: author, once: actor, keep: 1h}]}": "unread.like keeps items: unread.retention says for how long",
		"counters: {unread: {like: {}}}\nrules: {like: [{add: unread.like, key: author, once: actor}]}":                   "it is a plain number; give the column items",
		"counters: {unread: {like: {items: 5}}}\nrules:\n  like: [{add: unread.like, key: author, once: [actor, post]}]\n" +
			"  mention: [{add: unread.like, key: target, once: [post, actor]}]": "rules count what is in unread.like once for different fields",
	} {
		_, err := Parse("c", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want %s", text, err, want)
		}
	}
}
