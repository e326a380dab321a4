package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tidemark-io/tidemark/query/client"
)

type delCommand struct {
	Counter string `arg:"" help:"The counter."`
	ID      id     `arg:"" name:"id" help:"The row's id."`
	remote
}

func (delCommand) Help() string {
	return `Deletes a row, all of its columns, and the sets of those that count once. What is counted for the id afterwards begins anew. Of a user the follow graph stays, and with it the columns following, follower and friend.

EXAMPLE

    tidemark del post 42`
}

func (d *delCommand) Run(t *terminal) error {
	return d.ask(func(ctx context.Context, c *client.Client) error {
		schema, err := c.Schema(ctx)
		if err != nil {
			return err
		}
		if _, err := counterOf(schema, d.Counter); err != nil {
			return err
		}
		position, err := d.publish(ctx, c, client.AdjustDel(d.Counter, uint64(d.ID)))
		if err != nil {
			return err
		}
		if _, err := c.Schema(ctx, client.Wait(position), client.Within(d.Timeout)); err != nil {
			return stored(position, err)
		}
		return d.print(t, position)
	})
}

func (d *delCommand) print(t *terminal, position client.Position) error {
	if !d.JSON {
		said := "deleted"
		if d.Counter == "user" {
			said += "; the follow graph stays, and following, follower and friend with it"
		}
		_, err := fmt.Fprintln(t.out, said)
		return err
	}
	return printJSON(t.out, struct {
		Counter  string `json:"counter"`
		ID       string `json:"id"`
		Deleted  bool   `json:"deleted"`
		Position string `json:"position"`
	}{d.Counter, strconv.FormatUint(uint64(d.ID), 10), true, position.String()})
}
