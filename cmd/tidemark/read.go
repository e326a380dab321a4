package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

type readCommand struct {
	User id               `arg:"" help:"Who has looked."`
	What []string         `arg:"" optional:"" help:"Unread columns (comment …), feed, channel:NAME, all."`
	Seen map[string]int64 `placeholder:"COLUMN=N,…" mapsep:"," help:"Read only so many of these columns, the oldest unread items."`

	Items []string `placeholder:"POSITION,…" help:"Read these items alone, by their positions as 'tidemark inbox' shows them."`
	AsOf  string   `placeholder:"POSITION" help:"The as_of of the answer that was shown: what came after it stays unread."`
	remote
}

func (readCommand) Help() string {
	return `Marks as read, and returns when every query shows it.

EXAMPLE

    tidemark read 7 comment mention
    tidemark read 7 comment --seen comment=3
    tidemark read 7 --items 5939201,5939400
    tidemark read 7 feed channel:system --as-of 5939442
    tidemark read 7 all`
}

// malformed is the node's code for what no node could do: a channel's name that is none.
const malformed = 400

// asUsage makes the node's word that a request is malformed one about the command.
func asUsage(err error) error {
	if answer, answered := errors.AsType[*client.Error](err); answered && answer.Code == malformed {
		return usage("%s", answer.Message)
	}
	return err
}

func (r *readCommand) Run(t *terminal) error {
	request := client.ReadRequest{User: uint64(r.User), What: r.What, Wait: true, Timeout: r.Timeout}
	if len(r.Seen) > 0 {
		request.Seen = maps.Clone(r.Seen)
	}
	for _, item := range r.Items {
		position, err := pipeline.ParsePosition(item)
		if err != nil {
			return usage("--items: %s is not a position", item)
		}
		request.Items = append(request.Items, position)
	}
	if len(r.What)+len(r.Items) == 0 {
		return usage("expected \"<what> ...\", or --items")
	}
	if r.AsOf != "" {
		position, err := pipeline.ParsePosition(r.AsOf)
		if err != nil {
			return usage("--as-of %s is not a position", r.AsOf)
		}
		request.AsOf = &position
	}
	return r.ask(func(ctx context.Context, c *client.Client) error {
		position, err := c.Read(ctx, request)
		if err != nil {
			return asUsage(err)
		}
		if r.JSON {
			return printJSON(t.out, map[string]string{"position": position.String()})
		}
		_, err = fmt.Fprintf(t.out, "read, at position %s\n", position)
		return err
	})
}
