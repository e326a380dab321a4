package config

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The roles of a process.
const (
	RoleRoute  = "route"  // turns events into windows, when it is its turn
	RoleHold   = "hold"   // holds shards
	RoleAnswer = "answer" // answers queries, with the help of those who hold
)

var roles = []string{RoleRoute, RoleHold, RoleAnswer}

// Has reports whether this process has a role.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// Thin reports whether this process only answers: it has no data directory and
// holds no rows.
func (c *Config) Thin() bool { return len(c.Roles) == 1 && c.Has(RoleAnswer) }

// Cluster is how shards are spread over nodes.
type Cluster struct {
	Replicas     int           `yaml:"replicas"`      // holders of each shard, 1 to 5, or as many as there are; 2
	ReplaceAfter time.Duration `yaml:"replace_after"` // a holder away for so long is replaced, 1s to 3650d; 10m
	Moves        int           `yaml:"moves"`         // shards that a node loads at once, 1 to 64; 2
	MoveRate     Size          `yaml:"move_rate"`     // bytes a second of a node's moves, 64KiB to 64GiB; 64MiB
}

// NATSCluster makes the embedded server a member of a NATS cluster.
type NATSCluster struct {
	Name   string   `yaml:"name"`   // the same on all its servers; "" = tidemark
	Listen string   `yaml:"listen"` // host:port for the other servers; "" = a server on its own
	Routes []string `yaml:"routes"` // nats://host:port of the other servers, one at least; this one may be among them
}

// natsClusterName is the cluster's name where none is stated: one that says
// whose it is, and that two members cannot state in two ways.
const natsClusterName = "tidemark"

// ClusterName is the cluster's name, stated or not.
func (c *NATSCluster) ClusterName() string { return cmp.Or(c.Name, natsClusterName) }

// On reports whether the embedded server is a member of a cluster.
func (c *NATSCluster) On() bool { return c.Listen != "" }

const weightMax = 1000

func (d *decoder) checkNodes(c *Config) {
	d.checkRoles(c.Roles)
	d.checkName("node", c.Node, &nodeNamed)
	d.checkName("zone", c.Zone, &zoneNamed)
	within(d, "weight", c.Weight, 0, weightMax)
	within(d, "cluster.replicas", c.Cluster.Replicas, 1, 5)
	within(d, "cluster.replace_after", c.Cluster.ReplaceAfter, time.Second, 3650*day)
	within(d, "cluster.moves", c.Cluster.Moves, 1, 64)
	within(d, "cluster.move_rate", c.Cluster.MoveRate, 64*KiB, 64*GiB)
	d.checkNATSCluster(c)
	if c.Thin() && c.NATS.URL == "" {
		d.crossFault([]string{"nats.url", "roles"}, "roles are [answer] alone, and nats.url is empty: a process that only answers keeps nothing, "+
			"so it runs no embedded server; state nats.url, the server of those who hold")
	}
}

func (d *decoder) checkRoles(stated []string) {
	const key = "roles"
	if !d.sound(key) {
		return
	}
	if len(stated) == 0 {
		d.fault(d.lines[key], key, "is empty; allowed: one or more of %s", strings.Join(roles, ", "))
	}
	for i, role := range stated {
		switch {
		case !slices.Contains(roles, role):
			d.fault(d.lines[key], key, "%s is not a role; %s", quote(role), instead(role, roles))
		case slices.Contains(stated[:i], role):
			d.fault(d.lines[key], key, "%s is stated twice", role)
		}
	}
}

// checkName takes "" for none.
func (d *decoder) checkName(key, name string, allowed *names) {
	if name != "" && d.sound(key) {
		d.named(d.lines[key], key, name, allowed)
	}
}

// checkNATSCluster: what is stated of a cluster must make one, and an embedded
// server must be there to be its member.
func (d *decoder) checkNATSCluster(c *Config) {
	const name, listen, routes = "nats.cluster.name", "nats.cluster.listen", "nats.cluster.routes"
	n := &c.NATS.Cluster
	d.checkName(name, n.Name, &nodeNamed)
	if n.Listen != "" {
		d.checkListen(listen, n.Listen)
	}
	d.checkRoutes(routes, n.Routes)
	if c.NATS.URL != "" {
		for _, embedded := range []struct {
			key   string
			given bool
		}{{name, n.Name != ""}, {listen, n.Listen != ""}, {routes, len(n.Routes) > 0}} {
			if embedded.given {
				d.crossFault([]string{"nats.url", embedded.key}, "is for the embedded server, and nats.url names another; leave one of the two out")
			}
		}
		return
	}
	if n.Listen == "" && len(n.Routes) > 0 {
		d.crossFault([]string{routes, listen}, "routes are given without listen, where the other servers reach this one; state both, or none")
	}
	if n.Listen == "" && n.Name != "" {
		d.crossFault([]string{name, listen}, "name is given without listen: the embedded server would be on its own; state both, or none")
	}
	if n.Listen != "" && len(n.Routes) == 0 {
		d.crossFault([]string{listen, routes}, "listen is given without routes: the embedded server would find no other; state all servers of the cluster in routes, this one may be among them")
	}
}

// checkRoutes does not show what it read: a URL may hold a password.
func (d *decoder) checkRoutes(key string, list []string) {
	if !d.sound(key) {
		return
	}
	for i, route := range list {
		u, err := url.Parse(route)
		switch {
		case err != nil || u.Scheme != "nats" || u.Hostname() == "" || u.Port() == "" || !isHost(u.Hostname()) || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			d.fault(d.lines[key], key, "number %d is not a route; allowed: nats://host:port, the nats.cluster.listen of another server, like nats://10.0.0.2:6222", i+1)
		case u.User != nil:
			d.fault(d.lines[key], key, "number %d names a user, and the embedded servers know none; allowed: nats://host:port", i+1)
		}
	}
}
