package main

import (
	"strings"
	"testing"
)

// docs/contract.md: "`limits.channels`, `limits.notices` (of one channel) bound what is
// kept, `channels_open: false` takes notices for configured channels only. The newest
// `feed.posts_per_author` *live* posts count: deletions make room for older ones as far
// as `feed.posts_kept` … keeps them."
func TestLimitsOfTheConfiguration(t *testing.T) {
	p := newPlace(t)
	p.configure(t, "limits: {channels: 2, notices: 3}\nfeed: {posts_per_author: 2, posts_kept: 3}\nchannels: {system: {kind: notice}}\n")
	n := p.start(t)
	unread := func(want string) {
		t.Helper()
		n.want(want, "unread", "1", "--json")
	}
	publish := func(events ...string) {
		t.Helper()
		for _, event := range events {
			if r := n.do(append([]string{"publish", "--wait"}, strings.Fields(event)...)...); r.code != 0 {
				t.Fatalf("publish %s: %s", event, r.err)
			}
		}
	}
	publish("read actor=1 what=all", "follow actor=1 target=2",
		"notice channel=system notice=1", "notice channel=system notice=2", "notice channel=system notice=3", "notice channel=system notice=4",
		"notice channel=other notice=1", "notice channel=third notice=1",
		"post actor=2 post=1", "post actor=2 post=2", "post actor=2 post=3", "post actor=2 post=4")
	counts := `"counts":{"repost":0,"comment":0,"mention":0,"like":0,"follower":0,"message":0}`
	unread(`{"users":[{"user":"1","feed":2,` + counts + `,"channels":{"other":1,"system":3},"dots":{}}],"as_of":"13311"}`)
	_, metrics := n.page("/metrics")
	for _, line := range []string{`tidemark_notices_passed_over_total{bound="channels"} 1`, `tidemark_notices_passed_over_total{bound="notices"} 1`, "tidemark_notices 4"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	publish("post actor=2 post=4 delete=true") // 2 and 3 are left of the three kept
	unread(`{"users":[{"user":"1","feed":2,` + counts + `,"channels":{"other":1,"system":3},"dots":{}}],"as_of":"14335"}`)
	publish("post actor=2 post=3 delete=true") // and 1 is gone for good
	unread(`{"users":[{"user":"1","feed":1,` + counts + `,"channels":{"other":1,"system":3},"dots":{}}],"as_of":"15359"}`)

	p.configure(t, "limits: {channels: 2, notices: 3}\nfeed: {posts_per_author: 2, posts_kept: 3}\nchannels: {system: {kind: notice}}\nchannels_open: false\n")
	if r := n.do("rebuild", "--config", p.config, "--wait", "--yes"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	n.do("publish", "notice", "channel=other", "notice=2", "--wait").fails(t, 1, "channel other is not configured, and channels_open is false")
	publish("notice channel=other notice=1 delete=true", "notice channel=system notice=9")
	unread(`{"users":[{"user":"1","feed":1,` + counts + `,"channels":{"system":3},"dots":{}}],"as_of":"18431"}`)
}
