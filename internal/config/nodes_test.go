package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A file that states nothing of nodes is one process that does everything, with
// a server of its own.
func TestOneProcessByDefault(t *testing.T) {
	c := Default()
	for _, test := range []struct {
		key       string
		got, want any
	}{
		{"roles", c.Roles, []string{RoleRoute, RoleHold, RoleAnswer}},
		{"node", c.Node, ""},
		{"zone", c.Zone, ""},
		{"weight", c.Weight, 1},
		{"cluster", c.Cluster, Cluster{Replicas: 1, ReplaceAfter: 10 * time.Minute, Moves: 2, MoveRate: 64 * MiB}},
		{"nats.cluster.name", c.NATS.Cluster.Name, ""},
		{"nats.cluster.listen", c.NATS.Cluster.Listen, ""},
		{"nats.cluster.routes", len(c.NATS.Cluster.Routes), 0},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s is %v, documented is %v", test.key, test.got, test.want)
		}
	}
	if c.Thin() || c.NATS.Cluster.On() || c.NATS.Cluster.ClusterName() != "tidemark" || !c.Has(RoleRoute) || !c.Has(RoleHold) || !c.Has(RoleAnswer) {
		t.Errorf("%+v", c)
	}
}

func TestNodesStated(t *testing.T) {
	for text, change := range map[string]func(*Config){
		"roles: [answer]\nnats: {url: 'nats://a:4222'}": func(c *Config) { c.Roles, c.NATS.URL = []string{RoleAnswer}, "nats://a:4222" },
		"roles: [hold, route]":                          func(c *Config) { c.Roles = []string{RoleHold, RoleRoute} },
		"node: rack-7_A\nzone: eu-west.1\nweight: 0":    func(c *Config) { c.Node, c.Zone, c.Weight = "rack-7_A", "eu-west.1", 0 },
		"cluster: {replicas: 2, replace_after: 30d, moves: 64, move_rate: 1GiB}": func(c *Config) {
			c.Cluster = Cluster{Replicas: 2, ReplaceAfter: 30 * day, Moves: 64, MoveRate: GiB}
		},
		"nats: {replicas: 3, cluster: {listen: '10.0.0.1:6222', routes: ['nats://10.0.0.2:6222', 'nats://b.example:6222']}}": func(c *Config) {
			c.NATS.Replicas = 3
			c.NATS.Cluster = NATSCluster{Listen: "10.0.0.1:6222", Routes: []string{"nats://10.0.0.2:6222", "nats://b.example:6222"}}
		},
		"nats: {cluster: {name: east, listen: ':0', routes: ['nats://[::1]:6222']}}": func(c *Config) {
			c.NATS.Cluster = NATSCluster{Name: "east", Listen: ":0", Routes: []string{"nats://[::1]:6222"}}
		},
	} {
		want := Default()
		change(want)
		got, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if len(got.NATS.Cluster.Routes) == 0 && len(want.NATS.Cluster.Routes) == 0 {
			got.NATS.Cluster.Routes, want.NATS.Cluster.Routes = nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", text, got, want)
		}
	}
}

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
		{"weight: 1001", "f:1: weight: ", "allowed: 0 to 1000"},
		{"weight: 1.5", "f:1: weight: ", "is not a whole number"},
		{"cluster: {replicas: 0}", "f:1: cluster.replicas: ", "allowed: 1 to 5"},
		{"cluster: {replicas: 6}", "f:1: cluster.replicas: ", "allowed: 1 to 5"},
		{"cluster:\n  replace_after: 10ms", "f:2: cluster.replace_after: ", "allowed: 1s to 3650d"},
		{"cluster: {moves: 0}", "f:1: cluster.moves: ", "allowed: 1 to 64"},
		{"cluster: {move_rate: 1}", "f:1: cluster.move_rate: ", "allowed: 64KiB to 64GiB"},
		{"cluster: {move_rate: 64MB}", "f:1: cluster.move_rate: ", "is not a size"},
		{"cluster: {replica: 1}", "f:1: cluster.replica: ", `did you mean "replicas"?`},
		{"\nroles: [answer]", "f:2: roles: ", "state nats.url, the server of those who hold"},
		{"roles: [answer]\nnats: {cluster: {listen: ':6222', routes: ['nats://b:6222']}}", "f:1: roles: ", "it runs no embedded server"},
		{"nats:\n  url: nats://a:4222\n  cluster:\n    listen: :6222\n", "f:4: nats.cluster.listen: ", "is for the embedded server, and nats.url names another"},
		{"nats: {url: 'nats://a:4222', cluster: {routes: ['nats://b:6222']}}", "f:1: nats.cluster.routes: ", "is for the embedded server"},
		{"nats: {url: 'nats://a:4222', cluster: {name: x}}", "f:1: nats.cluster.name: ", "is for the embedded server"},
		{"nats: {cluster: {name: a b, listen: ':6222', routes: ['nats://b:6222']}}", "f:1: nats.cluster.name: ", `"a b" has ' ' at character 2`},
		{"nats: {cluster: {listen: 10.0.0.1, routes: ['nats://b:6222']}}", "f:1: nats.cluster.listen: ", "is not an address"},
		{"nats: {cluster: {listen: '127.0.0.1:4222', routes: ['nats://b:6222']}}", "f:1: nats.cluster.listen: ", "nats.cluster.listen and nats.listen are both 127.0.0.1:4222"},
		{"nats: {cluster: {listen: '127.0.0.1:8480', routes: ['nats://b:6222']}}", "f:1: nats.cluster.listen: ", "and http.listen are both"},
		{"nats: {cluster: {routes: ['nats://b:6222']}}", "f:1: nats.cluster.routes: ", "routes are given without listen"},
		{"nats: {cluster: {listen: ':6222'}}", "f:1: nats.cluster.listen: ", "listen is given without routes"},
		{"nats: {cluster: {name: x}}", "f:1: nats.cluster.name: ", "name is given without listen"},
		{"nats: {cluster: {listen: ':6222', routes: ['b:6222']}}", "f:1: nats.cluster.routes: ", "number 1 is not a route"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://a:6222', 'tls://b:6222']}}", "f:1: nats.cluster.routes: ", "number 2 is not a route"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://b']}}", "f:1: nats.cluster.routes: ", "allowed: nats://host:port"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://300.0.0.1:1']}}", "f:1: nats.cluster.routes: ", "number 1"},
		{"nats: {cluster: {listen: ':6222', routes: ['nats://me:secret@b:6222']}}", "f:1: nats.cluster.routes: ", "number 1 names a user"},
		{"nats: {cluster: {listen: ':6222', routes: nats://b:6222}}", "f:1: nats.cluster.routes: ", "not a list"},
		{"\napi: {listen: ':8481'}", "f:2: api.listen: ", "others than this machine reach, and there is no api.tokens"},
		{"api: {listen: '0.0.0.0:8481'}", "f:1: api.listen: ", "or listen on 127.0.0.1"},
		{"nats: {listen: '0.0.0.0:4222'}", "f:1: nats.listen: ", "others than this machine reach, and there is no nats.auth"},
		{"\nnats: {url: 'nats://a:1', auth: open}", "f:2: nats.url: ", "is for the embedded server"},
		{"api: {listen: '8481'}", "f:1: api.listen: ", "is not an address"},
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
