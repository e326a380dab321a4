package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
)

// A role's secret is secretOf it, over HTTP and NATS.
func secretOf(role string) string { return role + "-has-a-long-secret" }

// docs/security.md: "Over HTTP a role may do what it may over NATS", on a node and on a
// process that only answers.
func TestRoles(t *testing.T) {
	t.Parallel()
	roles := []string{"producer", "reader", "gateway", "application", "operator"}
	var clients, tokens strings.Builder
	for _, role := range roles {
		fmt.Fprintf(&clients, "%s:%s %s\n", role, secretOf(role), role)
		fmt.Fprintf(&tokens, "%s %s\n", secretOf(role), role)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"clients": clients.String(), "tokens": tokens.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	holder := startWith(t, func(c *config.Config) {
		c.NATS.Auth, c.API.Tokens = filepath.Join(dir, "clients"), filepath.Join(dir, "tokens")
	})
	thin := startWith(t, func(c *config.Config) {
		c.Roles, c.NATS.URL, c.NATS.NKey, c.API.Tokens = []string{config.RoleAnswer}, holder.URL(), holder.KeyFile(), filepath.Join(dir, "tokens")
	})
	events := map[string]string{
		"post": `"actor":1,"post":2`, "comment": `"actor":1,"post":2,"author":3`, "like": `"actor":1,"post":2,"author":3`,
		"mention": `"actor":1,"target":2`, "follow": `"actor":1,"target":2`, "message": `"actor":1,"target":2`, "notice": `"channel":"system","notice":1`,
		"read": `"actor":1,"what":["all"]`, "adjust": `"counter":"post","id":1,"column":"like","add":1`,
	}
	paths := map[string]string{
		"get": "get/post/1", "unread": "unread/1", "feed": "feed/1", "following": "following/1", "followers": "followers/1",
		"members": "members/post.like/1", "page": "page/1", "read": "read", "explain": "explain/post.like/1", "nodes": "nodes",
		"schema": "", "stats": "", "shards": "", "slowlog": "", // not over HTTP
	}
	sends := []string{"post", "comment", "like", "mention", "follow", "message", "notice"}
	everything := []string{"post", "comment", "like", "mention", "follow", "message", "notice", "read", "adjust"}
	reader := []string{"get", "unread", "feed", "following", "followers", "members", "page", "schema"}
	gateway := append(slices.Clone(reader), "read")
	application := append(slices.Clone(gateway), "explain", "nodes", "stats", "shards")
	may := map[string]struct{ send, ask []string }{
		"producer": {sends, nil}, "reader": {nil, reader}, "gateway": {nil, gateway},
		"application": {everything, application}, "operator": {everything, append(slices.Clone(application), "slowlog")},
	}
	for _, role := range roles {
		denied := make(chan error, 100)
		nc, err := nats.Connect(holder.URL(), nats.UserInfo(role, secretOf(role)), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		overNATS := func(subject, body string) bool {
			for len(denied) > 0 {
				<-denied
			}
			if err := nc.Publish(subject, []byte(body)); err != nil {
				t.Fatal(err)
			}
			if err := nc.FlushTimeout(e2e.Patience); err != nil {
				t.Fatal(err)
			}
			return nc.LastError() == nil || !strings.Contains(nc.LastError().Error(), `"`+subject+`"`)
		}
		token := []string{"Authorization", "Bearer " + secretOf(role)}
		for kind, fields := range events {
			line := fmt.Sprintf(`{"type":%q,%s}`, kind, fields)
			want := slices.Contains(may[role].send, kind)
			if overNATS("events."+kind, line) != want {
				t.Errorf("%s: %s over NATS: %v", role, kind, !want)
			}
			for _, n := range []*Node{holder, thin} {
				code, body := call(t, "POST", n.HTTPAddress()+"/v1/events", line, token...)
				if (code == 200) != want || !want && code != 403 && (code != 422 || !strings.Contains(body, `"reason":"role"`)) {
					t.Errorf("%s: %s over HTTP: %d %s", role, kind, code, body)
				}
			}
		}
		if want := role == "application" || role == "operator"; overNATS("events.pack", "{}") != want {
			t.Errorf("%s: pack over NATS: %v", role, !want)
		}
		for query, path := range paths {
			want := slices.Contains(may[role].ask, query)
			if overNATS("tidemark."+query, "{}") != want {
				t.Errorf("%s: %s over NATS: %v", role, query, !want)
			}
			for _, n := range []*Node{holder, thin} {
				method, body := "GET", ""
				if query == "read" {
					method, body = "POST", `{"user":1,"what":["all"]}`
				}
				if path == "" {
					continue
				}
				if code, says := call(t, method, n.HTTPAddress()+"/v1/"+path, body, token...); (code == 403) == want || code == 401 || code == 404 && (n != thin || query != "explain") { // which needs the log
					t.Errorf("%s: %s over HTTP: %d %s", role, query, code, says)
				}
			}
		}
	}
}

// docs/http.md: "The file is read again when it changes, and on SIGHUP."
func TestTokensReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-all reader\n")
	n := startWith(t, func(c *config.Config) { c.API.Tokens = path })
	code := func(token string) int {
		code, _ := call(t, "GET", n.HTTPAddress()+"/v1/get/post/1", "", "Authorization", "Bearer "+token)
		return code
	}
	write("the-second-token-of-all reader\n")
	n.Reload()
	if first, second := code("the-first-token-of-all"), code("the-second-token-of-all"); first != 401 || second != 200 {
		t.Errorf("after Reload: the first token %d, the second %d", first, second)
	}
	for _, mistake := range []string{"", "short reader\n", "a-token-that-is-long king\n"} {
		write(mistake)
		n.Reload()
		if code("the-second-token-of-all") != 200 {
			t.Errorf("%q took the tokens away", mistake)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.Reload()
	if code("the-second-token-of-all") != 200 {
		t.Error("a file that is gone took the tokens away")
	}
	write("the-third-token-of-all reader\n")
	e2e.Until(t, "a changed file is found", func() bool { return code("the-third-token-of-all") == 200 })
}
