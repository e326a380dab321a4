package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
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
	found, path, err := c.load()
	if err != nil {
		return err
	}
	return summarize(t.out, cmp.Or(path, "built-in defaults"), found)
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
	out.add("", "data", fmt.Sprintf("%s, %s", c.DataDir, count(c.Shards, "shard")))
	full := float64(c.Limits.Channels) * float64(c.Limits.Notices) * noticeBytes / float64(config.MiB)
	out.add("", "notices", fmt.Sprintf("up to %d in each of %d channels: %.0f MiB of memory when all are full, and %d MiB for everything",
		c.Limits.Notices, c.Limits.Channels, full, c.ShardBytes()/int(config.MiB)))
	out.add("", "nats", cmp.Or(redacted(c.NATS.URL), "embedded, on "+c.NATS.Listen))
	out.add("", "http", cmp.Or(c.HTTP.Listen, "off"))
	if _, err := fmt.Fprintf(to, "%s: good\n", path); err != nil {
		return err
	}
	return out.print(to)
}
