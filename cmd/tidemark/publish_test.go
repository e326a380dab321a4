package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestPublish(t *testing.T) {
	n := newPlace(t).start(t)
	n.want("published, at position 1024", "publish", "like", "actor=7", "post=42", "author=9")
	n.want("counted, at position 2048", "publish", "like", "actor=8", "post=42", "author=9", "--wait")
	n.want("2", "get", "42.cntan")
	n.want("counted, at position 3072", "publish", "--wait", "like", "actor=8", "post=42", "author=9", "delete=true")
	n.want("1", "get", "42.cntan")
	n.want(`{"position":"4096","seq":4}`, "publish", "follow", "actor=7", "target=9", "--wait", "--json")

	// docs/contract.md: "Unknown fields are ignored", whatever they hold.
	n.want("counted, at position 5120", "publish", "comment", "actor=8", "post=42", "author=7", "--wait", "--force",
		"mood=fine", `tags=["a",1]`, `more={"a":{}}`, `text="x"`, "at=1700000000000", "ratio=2.5")
	n.want("counted, at position 6144", "publish", "message", "actor=8", "target=18446744073709551615", "--wait")
	n.want("counted, at position 7168", "publish", "notice", "channel=2026", "notice=1", "--wait") // a name of digits
	n.want("counted, at position 8192", "publish", "read", "actor=7", "what=comment,feed", "seen=comment=3", "--wait")
	n.want("counted, at position 9216", "publish", "adjust", "counter=post", "id=42", "column=like", "add=-5", "--wait")

	// docs/contract.md: "`Nats-Msg-Id` gives JetStream's own duplicate suppression."
	n.want("published, at position 10240", "publish", "message", "actor=8", "target=7", "--id", "m1")
	n.want("published before, at position 10240", "publish", "message", "actor=8", "target=7", "--id", "m1")
	n.want("published before, at position 10240", "publish", "message", "actor=8", "target=7", "--id", "m1", "--wait")
	n.want("user  feed  comment  follower  like  mention  message  repost  2026\n"+
		"   7     0        0         0     0        0        1       0     0", "unread", "7")

	// What the service would refuse is said at once, and not published.
	for args, why := range map[string]string{
		"like actor=7 post=42":                              "(id): author is missing",
		"like actor=7 post=42 author=0":                     "(id): author: 0 is not an id",
		"like actor=-7 post=42 author=9":                    "(id): actor: -7 is not an unsigned 64-bit integer",
		"follow actor=7 target=7":                           "(self): user 7 follows themself",
		"follow actor=7 target=8 delete=1":                  "(field): delete: 1 is not true or false",
		"notice channel=BIG notice=1":                       `(field): channel: "BIG" is not a name`,
		"read actor=7 what=pokes":                           "(unknown): what: pokes is not something unread",
		"read actor=7 what=":                                "(unknown): what: ",
		"adjust counter=pots id=1 column=like add=1":        "(unknown): counter pots is not configured",
		"adjust counter=post id=1 column=likes add=1":       "(unknown): column likes is not in counter post",
		"adjust counter=post id=1 column=like add=1 set=1":  "(field): exactly one of add, set and del is wanted",
		`like actor={"a":1,"a":2} post=1 author=2`:          "(json): not JSON: ",
		"message actor=7 target=18446744073709551616":       "(id): target: 18446744073709551616 is not an unsigned 64-bit integer",
		"post actor=7 post=1 repost_of=3 delete=true":       "(id): author is missing",
		"adjust counter=post id=1 column=like add=1.5":      "(field): add: ",
		"adjust counter=post id=1 column=cntan add=1 del=x": "(field): del: ",
	} {
		n.do(append([]string{"publish"}, strings.Fields(args)...)...).fails(t, 2, "this would be refused "+why)
	}
	// A type that no rule counts, and a field that nothing reads, are most often a slip.
	n.do("publish", "lke", "actor=7", "post=42", "author=9").fails(t, 2, `no rule counts events of type lke: did you mean "like"? (--force publishes it all the same)`)
	n.do("publish", "poke", "actor=1").fails(t, 2, "no rule counts events of type poke: allowed: adjust, comment, ")
	n.do("publish", "like", "actor=7", "post=42", "author=9", "athor=9").fails(t, 2, `nothing reads the field athor of a like: did you mean "author"? (--force`)
	n.do("publish", "like", "actor=7", "post=42", "author=9", "mood=fine").fails(t, 2, "nothing reads the field mood of a like: allowed: actor, at, author, delete, post, type")
	n.want("published, at position 11264", "publish", "poke", "actor=1", "--force")
	n.do("publish", "--force", "poke", "actor=1", "--wait").fails(t, 1, "at position 12288 and was refused (type): no rule knows the type poke", "deadletters show 2")
	n.do("publish", "poke", "actor=1", "--id", "p1", "--force")
	n.do("publish", "poke", "actor=1", "--id", "p1", "--wait", "--force").fails(t, 1, "at position 13312 and was refused", "deadletters show 3")

	if err := n.connect(t).DeleteStream("EVENTS"); err != nil {
		t.Fatal(err)
	}
	n.do("publish", "like", "actor=7", "post=42", "author=9").fails(t, 1, "its stream EVENTS is gone")
}

// Of rules of one's own.
func TestPublishCustom(t *testing.T) {
	p := newPlace(t)
	p.configure(t, "counters:\n  video: {views: {bits: 16, suffix: cntv}}\nrules:\n  view: [{add: video.views, key: video}]\n")
	n := p.start(t)
	n.want("counted, at position 1024", "publish", "view", "video=5", "by=3", "--wait")
	n.want("3", "get", "5.cntv")
	n.do("publish", "view", "by=3", "--wait").fails(t, 1, "refused (id): video is missing")
	n.do("publish", "view", "vide=5").fails(t, 2, `nothing reads the field vide of a view: did you mean "video"?`)
	// The node has no counters of posts: what its own decoder says.
	n.do("publish", "adjust", "counter=post", "id=1", "column=like", "add=1").fails(t, 2, "counter post is not configured")
}

func TestFollowingFollowers(t *testing.T) {
	t.Parallel()
	n := newPlace(t).start(t)
	var text, all strings.Builder
	for user := 1; user <= 25_000; user++ { // three pages
		fmt.Fprintf(&text, `{"type":"follow","actor":%d,"target":30000}`+"\n", user)
		fmt.Fprintln(&all, user)
	}
	text.WriteString(`{"type":"follow","actor":7,"target":9}` + "\n" + `{"type":"follow","actor":7,"target":8}` + "\n")
	if r := n.feed(text.String(), "import", "-", "--wait"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	n.want("8\n9\n30000", "following", "7")
	n.want("7", "followers", "9")
	if r := n.do("followers", "30000", "--limit", "100000"); r.code != 0 || r.out != all.String() || r.err != "" {
		t.Errorf("exit code %d, %d bytes of %d, %s", r.code, len(r.out), all.Len(), r.err)
	}
	if r := n.do("followers", "30000"); r.code != 0 || strings.Count(r.out, "\n") != 100 || r.err != "more: --after 100\n" {
		t.Errorf("%+v", r)
	}
	if r := n.do("followers", "30000", "--after", "100", "--limit", "2"); r.out != "101\n102\n" || r.err != "more: --after 102\n" {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"following 7 --limit 2":           `{"users":["8","9"],"next":"9"`,
		"following 7 --after 9":           `{"users":["30000"],"as_of"`,
		"following 4000000000":            `{"users":[],"as_of"`,
		"followers 30000 --after 24999":   `{"users":["25000"],"as_of"`,
		"followers 30000 --limit 1000000": `{"users":["1","2",`,
	} {
		if r := n.do(append(strings.Fields(args), "--json")...); r.code != 0 || !strings.HasPrefix(r.out, want) {
			t.Errorf("%s: exit code %d, %.200s", args, r.code, r.out)
		}
	}
	if got := document(t, n.do("followers", "30000", "--limit", "25000", "--json").out); len(got["users"].([]any)) != 25_000 || got["next"] != nil {
		t.Errorf("%d users, next %v", len(got["users"].([]any)), got["next"])
	}
	if r := n.do("following", "4000000000"); r != (result{}) {
		t.Errorf("%+v", r)
	}
}
