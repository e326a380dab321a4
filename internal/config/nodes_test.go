package config

import (
	"strings"
	"testing"
)

func TestNodesFaults(t *testing.T) {
	for _, test := range []struct {
		text string
		line string
		want string
	}{
		{"roles: []", "f:1: roles: ", "is empty; allowed: one or more of route, hold, answer"},
		{"roles: answer", "f:1: roles: ", "not a list"},
		{"\nroles: [hold, answr]", "f:2: roles: ", `"answr" is not a role; did you mean "answer"?`},
		{"roles: [hold, x]", "f:1: roles: ", `"x" is not a role; allowed: route, hold, answer`},
		{"roles: [hold, route, hold]", "f:1: roles: ", "hold is stated twice"},
		{"node: a.b", "f:1: node: ", `"a.b" has '.' at character 2: letters, digits, _ and - are allowed, 64 at most`},
		{"node: " + strings.Repeat("a", 65), "f:1: node: ", "has 65 characters: letters, digits, _ and - are allowed, 64 at most"},
		{"node: my node", "f:1: node: ", `"my node" has ' ' at character 3: letters, digits, _ and - are allowed, 64 at most`},
		{"zone: 'é!'", "f:1: zone: ", `"é!" has 'é' at character 1: letters, digits, _, - and . are allowed, 64 at most`},
		{"weight: -1", "f:1: weight: ", "-1 is out of bounds; allowed: 0 to 1000"},
		{"cluster: {replicas: 6}", "f:1: cluster.replicas: ", "allowed: 1 to 5"},
		{"cluster:\n  replace_after: 10ms", "f:2: cluster.replace_after: ", "allowed: 1s to 3650d"},
		{"\nroles: [answer]", "f:2: roles: ", "state nats.url, the server of those who hold"},
		{"roles: [answer]\nnats: {cluster: {listen: ':6222', routes: ['nats://b:6222']}}", "f:1: roles: ", "it runs no embedded server"},
		{"nats:\n  url: nats://a:4222\n  cluster:\n    listen: :6222\n", "f:4: nats.cluster.listen: ", "is for the embedded server, and nats.url names another"},
		{"nats: {url: 'nats://a:4222', cluster: {routes: ['nats://b:6222']}}", "f:1: nats.cluster.routes: ", "is for the embedded server"},
		{"nats: {cluster: {name: a b, listen: ':6222', routes: ['nats://b:6222']}}", "f:1: nats.cluster.name: ", `"a b" has ' ' at character 2`},
		{"nats: {cluster: {listen: '127.0.0.1:4222', routes: ['nats://b:6222']}}", "f:1: nats.cluster.listen: ", "nats.listen and nats.cluster.listen are both on port 4222"},
		{"\napi: {listen: 'localhost:8480'}", "f:2: api.listen: ", "http.listen and api.listen are both on port 8480"},
		{"\nhttp: {listen: '0.0.0.0:4222'}\napi: {tokens: open}", "f:2: http.listen: ", "nats.listen and http.listen are both on port 4222"},
		{"nats: {cluster: {routes: ['nats://b:6222']}}", "f:1: nats.cluster.routes: ", "routes are given without listen"},
		{"nats: {cluster: {listen: ':6222'}}", "f:1: nats.cluster.listen: ", "listen is given without routes"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://a:6222', 'tls://b:6222']}}", "f:1: nats.cluster.routes: ", "number 2 is not a route"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://300.0.0.1:1']}}", "f:1: nats.cluster.routes: ", "number 1"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://me:secret@b:6222']}}", "f:1: nats.cluster.routes: ", "number 1 names a user"},
		{"\napi: {listen: ':8481'}", "f:2: api.listen: ", "others than this machine reach, and there is no api.tokens"},
		{"\nhttp: {listen: '0.0.0.0:8480'}", "f:2: http.listen: ", "others than this machine reach, and there is no api.tokens"},
		{"nats: {listen: '0.0.0.0:4222'}", "f:1: nats.listen: ", "others than this machine reach, and there is no nats.auth"},
		{"\nnats: {url: 'nats://a:1', auth: open}", "f:2: nats.url: ", "is for the embedded server"},
	} {
		_, err := Parse("f", []byte(test.text))
		if err == nil || !strings.HasPrefix(err.Error(), test.line) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\nwant one fault that begins with %q and says %q", test.text, err, test.line, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the fault shows the password", test.text)
		}
	}
}
