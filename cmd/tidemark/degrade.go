package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query/client"
)

type degradeCommand struct {
	Steps []string `arg:"" optional:"" help:"reads=all, reads=memory or reads=off; writes=on or writes=refuse."`
	remote
}

func (degradeCommand) Help() string {
	return `Tells all nodes at once what to leave undone, until they are told otherwise. Without a step it shows how it is, on the node that answers; what is not named stays as it is.

    reads=all      everything is answered
    reads=memory   nothing is read from disk: what is only there is missing in answers
    reads=off      nothing is answered from counters
    writes=on      events are taken
    writes=refuse  events are refused, and producers told so

/readyz and 'tidemark stats' of each node show it; docs/degradation.md says what clients see.

EXAMPLE

    tidemark degrade
    tidemark degrade reads=memory
    tidemark degrade reads=all writes=on`
}

// Validate is called by kong.
func (d *degradeCommand) Validate() error {
	if _, err := d.apply(cluster.Normal); err != nil {
		return err
	}
	return d.remote.Validate()
}

// apply is how it is with the steps taken.
func (d *degradeCommand) apply(is cluster.Degrade) (cluster.Degrade, error) {
	stated := make(map[string]bool)
	for _, step := range d.Steps {
		name, value, found := strings.Cut(step, "=")
		switch {
		case found && name == "reads":
			is.Reads = cluster.Reads(value)
		case found && name == "writes":
			is.Writes = cluster.Writes(value)
		default:
			return is, fmt.Errorf("%q is no step; there are: reads=all, reads=memory, reads=off, writes=on, writes=refuse", step)
		}
		if stated[name] {
			return is, fmt.Errorf("%s is given twice", name)
		}
		stated[name] = true
	}
	return is, is.Check()
}

func (d *degradeCommand) Run(t *terminal) error {
	if len(d.Steps) == 0 {
		return d.ask(func(ctx context.Context, c *client.Client) error {
			figures, err := c.Stats(ctx)
			if err != nil {
				return err
			}
			return d.print(t, cluster.Degrade{Reads: cluster.Reads(stepOf(figures, "reads")), Writes: cluster.Writes(stepOf(figures, "writes"))})
		})
	}
	return d.members(func(ctx context.Context, m *bucket.Members) error {
		is, err := m.DegradeBy(ctx, d.apply)
		if err != nil {
			return err
		}
		return d.print(t, is)
	}, nil)
}

// stepOf is the step of the ladder that reads or writes are at on the node whose figures they
// are.
func stepOf(figures map[string]any, of string) string {
	for name, value := range figures {
		if step, is := strings.CutPrefix(name, "tidemark_"+of+`_step{step="`); is && number(value) == 1 {
			return strings.TrimSuffix(step, `"}`)
		}
	}
	return "unknown"
}

func (d *degradeCommand) print(t *terminal, is cluster.Degrade) error {
	if d.JSON {
		return printJSON(t.out, is)
	}
	return printDegrade(t.out, is)
}

func printDegrade(to io.Writer, d cluster.Degrade) error {
	_, err := fmt.Fprintf(to, "reads=%s writes=%s\n", d.Reads, d.Writes)
	return err
}
