package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
)

type checkCommand struct {
	File string `arg:"" optional:"" help:"The same as --config."`
	settings
}

func (checkCommand) Help() string {
	return `Lists everything that is wrong, with file and line, and starts nothing. The exit code is 0 for a good file and 2 for one with mistakes.

EXAMPLE

    tidemark config check
    tidemark config check --config /etc/tidemark.yaml`
}

// Validate is called by kong.
func (c *checkCommand) Validate() error {
	if c.File != "" && c.Config != "" {
		return fmt.Errorf("two files are named, %s and %s; name one", c.File, c.Config)
	}
	return nil
}

func (c *checkCommand) Run(t *terminal) error {
	c.Config = cmp.Or(c.File, c.Config)
	found, path, used, err := c.loadNamed()
	if err != nil {
		return err
	}
	if err := summarize(t.out, cmp.Or(path, "built-in defaults"), found); err != nil || len(used) == 0 {
		return err
	}
	_, err = fmt.Fprintf(t.out, "from the environment: %s\n", strings.Join(used, ", "))
	return err
}

// noticeBytes is about what a notice takes in memory.
const noticeBytes = 25

func summarize(to io.Writer, path string, c *config.Config) error {
	var counters, types []string
	for _, counter := range c.Counters {
		counters = append(counters, fmt.Sprintf("%s (%d)", counter.Name, len(counter.Columns)))
	}
	for _, rules := range c.EventRules {
		types = append(types, rules.Type)
	}
	out := &table{left: []bool{true, true, true}}
	out.add("", "counters", cmp.Or(strings.Join(counters, ", "), "none"))
	out.add("", "rules for", cmp.Or(strings.Join(types, ", "), "no events"))
	if drops := config.Drops(config.Default(), c); len(drops) > 0 {
		words := "of the defaults: " + strings.Join(drops, "; ")
		if c.Extends == "" {
			words += ". To keep them: extends: default"
		}
		out.add("", "dropped", words)
	}
	out.add("", "roles", strings.Join(c.Roles, ", "))
	out.add("", "node", nodeSummary(c))
	if c.Thin() {
		out.add("", "data", "none: a process that only answers keeps nothing")
	} else {
		out.add("", "data", fmt.Sprintf("%s, %s", c.DataDir, count(c.Shards, "shard")))
	}
	out.add("", "cluster", fmt.Sprintf("%s of each shard, replaced when away for %s; %d loaded at once, at %s a second",
		count(c.Cluster.Replicas, "holder"), c.Cluster.ReplaceAfter, c.Cluster.Moves, c.Cluster.MoveRate))
	full := float64(c.Limits.Channels) * float64(c.Limits.Notices) * noticeBytes / float64(config.MiB)
	out.add("", "notices", fmt.Sprintf("up to %d in each of %d channels: %.0f MiB of memory when all are full, and %d MiB for everything",
		c.Limits.Notices, c.Limits.Channels, full, c.ShardBytes()/int(config.MiB)))
	out.add("", "nats", fmt.Sprintf("%s; copies of each stream: %d", natsSummary(&c.NATS), c.NATS.Replicas))
	out.add("", "http", cmp.Or(c.HTTP.Listen, "off"))
	if _, err := fmt.Fprintf(to, "%s: good\n", path); err != nil {
		return err
	}
	return out.print(to)
}

func nodeSummary(c *config.Config) string {
	name := cmp.Or(c.Node, "named at random with the data directory")
	if c.Node == "" && c.Thin() {
		name = "named at random at the start"
	}
	return fmt.Sprintf("%s, in %s, weight %d", name, cmp.Or(c.Zone, "no zone"), c.Weight)
}

func natsSummary(n *config.NATS) string {
	switch {
	case n.URL != "":
		return kit.Address(n.URL)
	case !n.Cluster.On():
		return "embedded, on " + n.Listen
	}
	return fmt.Sprintf("embedded, on %s, in the NATS cluster %s, on %s with %s",
		n.Listen, n.Cluster.ClusterName(), n.Cluster.Listen, count(len(n.Cluster.Routes), "route"))
}
