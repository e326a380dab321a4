package main

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/query/client"
)

type recountCommand struct {
	Counter string `arg:"" help:"Whose rows; user: all that is known of a user, lists and marks too."`
	IDs     []id   `arg:"" name:"id" help:"Which ids."`
	Repair  bool   `help:"Have shards that differ be taken again."`
	remote
}

func (recountCommand) Help() string {
	return `Counts some ids again from EVENTS, now, in private shards, and compares that with what is answered at exactly one position. What differs is printed as 'tidemark verify' does, and the exit code is 1. With --repair a shard that differs is given up on its node, and taken again from a node that agrees with the log, or derived. It waits for that and compares again: the exit code is 0 when nothing differs any more.

It takes as long as reading the log does.

EXAMPLE

    tidemark recount post 42 43
    tidemark recount user 7 --repair`
}

// Validate is called by kong.
func (r *recountCommand) Validate() error {
	if len(r.IDs) > checks.IDsMax {
		return fmt.Errorf("%d ids; allowed: %d", len(r.IDs), checks.IDsMax)
	}
	return r.remote.Validate()
}

func (r *recountCommand) Run(t *terminal) error {
	counter := r.Counter
	if counter == "user" {
		counter = ""
	}
	// Asked here once: a mistake in a name would come back from every node, as a failure.
	err := r.ask(func(ctx context.Context, c *client.Client) error {
		schema, err := c.Schema(ctx)
		if err == nil && counter != "" {
			_, err = counterOf(schema, r.Counter)
		}
		return err
	})
	if err != nil {
		return err
	}
	ids := make([]uint64, len(r.IDs))
	for i, id := range r.IDs {
		ids[i] = uint64(id)
	}
	return r.check(t, checks.RecountVerb, &checks.Ask{Counter: counter, IDs: ids, Repair: r.Repair})
}
