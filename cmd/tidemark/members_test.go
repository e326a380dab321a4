package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// docs/contract.md: "Commands: `get COUNTER ID… [--member MEMBER]` · `members post.like ID` ·
// `page ID… --viewer USER`."
func TestMembersOfSets(t *testing.T) {
	p := newPlace(t)
	p.configure(t, `
counters: {post: {comment: {bits: 8}, like: {bits: 8, suffix: cntan}}, user: {liked: {bits: 8}}, page: {view: {bits: 8}}}
rules:
  like:  [{add: post.like, key: post, once: actor}, {add: user.liked, key: author, once: [post, actor]}]
  visit: [{add: page.view, key: page, once: token, keep: 24h}]
`)
	n := p.start(t)
	publish := func(event string) {
		t.Helper()
		if r := n.do(append(append([]string{"publish"}, strings.Fields(event)...), "--wait")...); r.code != 0 {
			t.Fatalf("%s: %+v", event, r)
		}
	}
	for _, event := range []string{
		"like actor=7 post=42 author=9", "like actor=7 post=42 author=9", "like actor=8 post=42 author=9", "like actor=7 post=43 author=9",
		"visit page=5 token=s-1", "visit page=5 token=s-1",
	} {
		publish(event)
	}
	n.want("id  like  like?\n42     2    yes\n44     0     no", "get", "post", "42", "44", "--columns", "like", "--member", "7")
	n.want("id  liked  liked?\n 9      3     yes", "get", "user", "9", "--member", "42,7")
	n.want("id  liked  liked?\n 9      3      no", "get", "user", "9", "--member", "7,42")
	n.want("id  view  view?\n 5     1    yes", "get", "page", "5", "--member", "s-1")
	n.want("id  comment  like  like?\n42        0     2    yes", "page", "42", "--viewer", "8")
	n.want("id  comment  like\n42        0     2", "page", "42")
	n.want("7\n8", "members", "post.like", "42")
	n.want("42,7\n42,8\n43,7", "members", "user.liked", "9")
	r := n.do("members", "user.liked", "9", "--limit", "1", "--after", "42,7")
	if r.code != 0 || r.out != "42,8\n" || r.err != "more: --after 42,8\n" {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"members user.liked 9 --limit 2 --json":         `{"members":[["42","7"],["42","8"]],"next":"42,8","as_of":`,
		"members cntan 42 --json":                       `{"members":["7","8"],"as_of":`,
		"members post.like 99 --json":                   `{"members":[],"as_of":`,
		"page 42 --viewer 7 --json":                     `{"rows":[{"id":"42","comment":0,"like":2,"has":{"like":true}}],"as_of":`,
		"get post 44 --member 7 --json":                 `{"rows":[{"id":"44","comment":0,"like":0,"has":{"like":false}}],"as_of":`,
		"get post 44 --columns like --json":             `{"rows":[{"id":"44","like":0}],"as_of":`,
		"get page 5 --member s-2 --columns view --json": `{"rows":[{"id":"5","view":1,"has":{"view":false}}],"as_of":`,
	} {
		if r := n.do(strings.Fields(args)...); r.code != 0 || !strings.HasPrefix(r.out, want) {
			t.Errorf("%s: %+v, not %s", args, r, want)
		}
	}
	publish("like actor=7 post=42 author=9 delete=true")
	n.want("8", "members", "post.like", "42")
	n.want("id  like  like?\n42     1     no", "get", "post", "42", "--columns", "like", "--member", "7")

	n.do("members", "page.view", "5").fails(t, 2, "cannot be listed")
	n.do("members", "post.comment", "5").fails(t, 2, "no set to list")
	n.do("members", "post.smile", "5").fails(t, 1, "smile")
	n.do("get", "post", "42", "--member", "s-1").fails(t, 2, "like of ids")
}

// Pages of several nodes make one list, as with users, and one that is not whole ends it.
func TestPagesOfMembers(t *testing.T) {
	server, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), StoreBytesMax: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	replies := []string{
		`{"members":[["8","1"]],"next":"8,1","as_of":"4095"}`,
		`{"members":[["9","1"]],"next":"9,1","as_of":"5119"}`,
		`{"members":[],"as_of":"5119","degraded":true,"missing":["42"]}`,
	}
	asked := make(chan string, len(replies))
	served := 0
	if _, err := nc.Subscribe("tidemark.members", func(m *nats.Msg) {
		asked <- string(m.Data)
		_ = m.Respond([]byte(replies[served%len(replies)]))
		served++
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r := tidemark(t, "members", "user.liked", "42", "--json", "--nats", server.URL())
	r.fails(t, 1, "the answer is not whole", "42")
	if want := `{"members":[["8","1"],["9","1"]],"next":"9,1","as_of":"4095","degraded":true,"missing":["42"]}` + "\n"; r.out != want {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{
		`{"column":"user.liked","id":42,"limit":100,"timeout_ms":5000}`,
		`{"column":"user.liked","id":42,"limit":99,"after":"8,1","min_position":"4095","timeout_ms":5000}`,
		`{"column":"user.liked","id":42,"limit":98,"after":"9,1","min_position":"4095","timeout_ms":5000}`,
	} {
		if got := <-asked; got != want {
			t.Errorf("asked %s, not %s", got, want)
		}
	}
}
