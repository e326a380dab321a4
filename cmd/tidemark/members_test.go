package main

import (
	"fmt"
	"strings"
	"testing"
)

// docs/contract.md: "Commands: `get COUNTER ID… [--member MEMBER]` · `members post.like ID` ·
// `page ID… --viewer USER`."
func TestMembersOfSets(t *testing.T) {
	n := shared(t)
	n.publish("like actor=7 post=1542 author=1509", "like actor=7 post=1542 author=1509", "like actor=8 post=1542 author=1509",
		"like actor=7 post=1543 author=1509", "follow actor=1807 target=1809", "follow actor=1807 target=1808")
	n.want("1808\n1809", "following", "1807")
	n.want("1807", "followers", "1809")
	n.want("  id  like  like?\n1542     2    yes\n1544     0     no", "get", "post", "1542", "1544", "--columns", "like", "--member", "7")
	liked := []string{"get", "user", "1509", "--columns", "liked", "--member"}
	n.want("  id  liked  liked?\n1509      3     yes", append(liked, "1542,7")...)
	n.want("  id  liked  liked?\n1509      3      no", append(liked, "7,1542")...)
	n.want("  id  repost  comment  like  like?\n1542       0        0     2    yes", "page", "1542", "--viewer", "8")
	n.want("  id  repost  comment  like\n1542       0        0     2", "page", "1542")
	n.want("7\n8", "members", "post.like", "1542")
	n.want("1542,7\n1542,8\n1543,7", "members", "user.liked", "1509")
	r := n.do("members", "user.liked", "1509", "--limit", "1", "--after", "1542,7")
	if r.code != 0 || r.out != "1542,8\n" || r.err != "more: --after 1542,8\n" {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"members user.liked 1509 --limit 2 --json": `{"members":[["1542","7"],["1542","8"]],"next":"1542,8","as_of":`,
		"members cntan 1542 --json":                `{"members":["7","8"],"as_of":`,
		"members post.like 1599 --json":            `{"members":[],"as_of":`,
		"page 1542 --viewer 7 --json":              `{"rows":[{"id":"1542","repost":0,"comment":0,"like":2,"has":{"like":true}}],"as_of":`,
		"get post 1544 --member 7 --json":          `{"rows":[{"id":"1544","repost":0,"comment":0,"like":0,"has":{"comment":false,"like":false}}],"as_of":`,
		"following 4000000000 --json":              `{"users":[],"as_of":`,
		"following 1807 --limit 1 --json":          `{"users":["1808"],"next":"1808","as_of":`,
		"following 1807 --after 1808 --json":       `{"users":["1809"],"as_of":`,
		"followers 1809 --limit 1000000 --json":    `{"users":["1807"],"as_of":`,
		"get post 1544 --columns like --json":      `{"rows":[{"id":"1544","like":0}],"as_of":`,
	} {
		if r := n.do(strings.Fields(args)...); r.code != 0 || !strings.HasPrefix(r.out, want) {
			t.Errorf("%s: %+v, not %s", args, r, want)
		}
	}
	n.publish("like actor=7 post=1542 author=1509 delete=true")
	n.want("8", "members", "post.like", "1542")
	n.do("members", "post.repost", "5").fails(t, 2, "no set to list")
	n.do("members", "post.smile", "5").fails(t, 1, "smile")
	n.do("get", "post", "42", "--member", "s-1").fails(t, 2, "like of ids")
}

// docs/contract.md: "`get COUNTER ID… [--member MEMBER]`", of what is counted once a token.
// The contract's limits are those of the file: "`limits.channels`, `limits.notices` (of one channel)
// bound what is kept, `channels_open: false` takes notices for configured channels only. The newest
// `feed.posts_per_author` *live* posts count: deletions make room for older ones as far
// as `feed.posts_kept` … keeps them."
func TestRulesAndLimitsOfOnesOwn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const own = "limits: {channels: 2, notices: 3}\nfeed: {posts_per_author: 2, posts_kept: 3}\nchannels: {system: {kind: notice}}\n" +
		"counters: {video: {views: {bits: 16, suffix: cntv}}, page: {view: {bits: 8}}, user: {post: {bits: 8}}, money: {balance: {bits: 4, signed: true, suffix: cntb}}}\n" +
		"rules: {post: [{add: user.post, key: actor}], view: [{add: video.views, key: video}], visit: [{add: page.view, key: page, once: token, keep: 24h}]}\n"
	p.configure(t, own)
	n := p.start(t)
	n.want("counted, at position 1024", "publish", "view", "video=5", "by=3", "--wait")
	n.want("3", "get", "5.cntv")
	n.do("publish", "view", "by=3", "--wait").fails(t, 1, "refused (id): video is missing")
	n.do("publish", "view", "vide=5").fails(t, 2, `nothing reads the field vide of a view: did you mean "video"?`)
	// The node has no counters of posts: what its own decoder says.
	n.do("publish", "adjust", "counter=post", "id=1", "column=like", "add=1").fails(t, 2, "counter post is not configured")

	n.want("-5", "incr", "7.cntb", "-5") // "`signed: true`: answers may be negative"
	n.want("id  balance\n 7       -5\n 8        0", "get", "money", "7", "8")
	n.want("3", "incr", "7.cntb", "8")

	n.publish("visit page=5 token=s-1", "visit page=5 token=s-1")
	n.want("id  view  view?\n 5     1    yes", "get", "page", "5", "--member", "s-1")
	n.want("id  view  view?\n 5     1     no", "get", "page", "5", "--member", "s-2")
	n.do("members", "page.view", "5").fails(t, 2, "cannot be listed")

	unread := func(feed int, channels string) {
		t.Helper()
		want := fmt.Sprintf(`{"users":[{"user":"1","feed":%d,"counts":{},"channels":%s,"dots":{}}],"as_of":`, feed, channels)
		if got := n.good("unread", "1", "--json"); !strings.HasPrefix(got, want) {
			t.Errorf("%s, not %s", got, want)
		}
	}
	n.publish("read actor=1 what=all", "follow actor=1 target=2",
		"notice channel=system notice=1", "notice channel=system notice=2", "notice channel=system notice=3", "notice channel=system notice=4",
		"notice channel=other notice=1", "notice channel=third notice=1",
		"post actor=2 post=1", "post actor=2 post=2", "post actor=2 post=3", "post actor=2 post=4")
	unread(2, `{"other":1,"system":3}`)
	_, metrics := n.page("/metrics")
	for _, line := range []string{
		`tidemark_notices_passed_over_total{bound="channels"} 1`, `tidemark_notices_passed_over_total{bound="notices"} 1`, "tidemark_notices 4",
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	n.publish("post actor=2 post=4 delete=true") // 2 and 3 are left of the three kept
	unread(2, `{"other":1,"system":3}`)
	n.publish("post actor=2 post=3 delete=true") // and 1 is gone for good
	unread(1, `{"other":1,"system":3}`)

	p.configure(t, own+"channels_open: false\n")
	if r := n.do("rebuild", "--config", p.config, "--wait", "--yes"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	n.do("publish", "notice", "channel=other", "notice=2", "--wait").fails(t, 1, "channel other is not configured, and channels_open is false")
	n.publish("notice channel=other notice=1 delete=true", "notice channel=system notice=9")
	unread(1, `{"system":3}`)
}
