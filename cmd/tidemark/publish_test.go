package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestPublish(t *testing.T) {
	n := shared(t)
	last := n.eventsEnd(t)
	at := func(said string) string { // of the next message of EVENTS
		last++
		return fmt.Sprint(said, last<<10)
	}
	n.want(at("published, at position "), "publish", "like", "actor=7", "post=1742", "author=1709")
	n.want(at("counted, at position "), "publish", "like", "actor=8", "post=1742", "author=1709", "--wait")
	n.want("2", "get", "1742.cntan")
	n.want(at("counted, at position "), "publish", "--wait", "like", "actor=8", "post=1742", "author=1709", "delete=true")
	n.want("1", "get", "1742.cntan")
	last++
	n.want(fmt.Sprintf(`{"position":"%d","seq":%d}`, last<<10, last), "publish", "follow", "actor=1707", "target=9", "--wait", "--json")

	// docs/contract.md: "Unknown fields are ignored", whatever they hold.
	n.want(at("counted, at position "), "publish", "comment", "actor=8", "post=1742", "author=1707", "--wait", "--force",
		"mood=fine", `tags=["a",1]`, `more={"a":{}}`, `text="x"`, "at=1700000000000", "ratio=2.5")
	for _, event := range []string{
		"message actor=8 target=18446744073709551615", "notice channel=2026 notice=1", // a name of digits
		"read actor=1707 what=comment,feed seen=comment=3", "adjust counter=post id=1742 column=like add=-5",
		"notice channel=2026 notice=1 delete=true",
	} {
		n.want(at("counted, at position "), append([]string{"publish", "--wait"}, strings.Fields(event)...)...)
	}

	// docs/contract.md: "`Nats-Msg-Id` gives JetStream's own duplicate suppression."
	message := []string{"publish", "message", "actor=8", "target=1707", "--id", "m1"}
	n.want(at("published, at position "), message...)
	last--
	n.want(at("published before, at position "), message...)
	last--
	n.want(at("published before, at position "), append(message, "--wait")...)
	n.want("user  feed  comment  follower  like  mention  message  repost  system\n"+
		"1707     0        0         0     0        0        1       0       0", "unread", "1707", "--channels", "system")

	// What the service would refuse is said at once, and not published.
	for args, why := range map[string]string{
		"like actor=7 post=42":                             "(id): author is missing",
		"like actor=-7 post=42 author=9":                   "(id): actor: -7 is not an unsigned 64-bit integer",
		"follow actor=7 target=7":                          "(self): user 7 follows themself",
		"follow actor=7 target=8 delete=1":                 "(field): delete: 1 is not true or false",
		"notice channel=BIG notice=1":                      `(field): channel: "BIG" is not a name`,
		"read actor=7 what=pokes":                          "(unknown): what: pokes is not something unread",
		"adjust counter=post id=1 column=likes add=1":      "(unknown): column likes is not in counter post",
		"adjust counter=post id=1 column=like add=1 set=1": "(field): exactly one of add, set and del is wanted",
		`like actor={"a":1,"a":2} post=1 author=2`:         "(json): not JSON: ",
		"post actor=7 post=1 repost_of=3 delete=true":      "(id): author is missing",
		"adjust counter=post id=1 column=like add=1.5":     "(field): add: ",
	} {
		n.do(append([]string{"publish"}, strings.Fields(args)...)...).fails(t, 2, "this would be refused "+why)
	}
	// A type that no rule counts, and a field that nothing reads, are most often a slip.
	n.do("publish", "lke", "actor=7", "post=42", "author=9").fails(t, 2, `no rule counts events of type lke: did you mean "like"? (--force publishes it all the same)`)
	n.do("publish", "poke", "actor=1").fails(t, 2, "no rule counts events of type poke: allowed: adjust, comment, ")
	n.do("publish", "like", "actor=7", "post=42", "author=9", "athor=9").fails(t, 2, `nothing reads the field athor of a like: did you mean "author"? (--force`)
	n.do("publish", "like", "actor=7", "post=42", "author=9", "mood=fine").fails(t, 2, "nothing reads the field mood of a like: allowed: actor, at, author, delete, post, type")
	n.want(at("published, at position "), "publish", "poke", "actor=1", "--force")
	n.do("publish", "--force", "poke", "actor=1", "--wait", "--id", "p1").fails(t, 1, at("at position ")+" and was refused (type): no rule knows the type poke", "deadletters show ")
	n.do("publish", "poke", "actor=1", "--id", "p1", "--wait", "--force").fails(t, 1, fmt.Sprint("at position ", last<<10, " and was refused"))
}
