package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

type feedCommand struct {
	User   id     `arg:"" help:"Whose feed."`
	Limit  int    `default:"20" help:"Posts in the page, 1 to 1000 (${default})."`
	Before string `placeholder:"POSITION" help:"The next of the page before."`
	remote
}

func (feedCommand) Help() string {
	return `Shows the newest posts of everyone a user follows.

EXAMPLE

    tidemark feed 7
    tidemark feed 7 --limit 50 --before 5939442`
}

func (f *feedCommand) Run(t *terminal) error {
	if f.Limit < 1 || f.Limit > 1000 {
		return usage("--limit %d is not from 1 to 1000", f.Limit)
	}
	before := pipeline.Position(0)
	if f.Before != "" {
		var err error
		if before, err = pipeline.ParsePosition(f.Before); err != nil {
			return usage("--before %s is not a position", f.Before)
		}
	}
	return f.ask(func(ctx context.Context, c *client.Client) error {
		if f.JSON {
			return f.printReply(ctx, c, t, "feed", struct {
				User   string `json:"user"`
				Limit  int    `json:"limit"`
				Before string `json:"before"`
			}{strconv.FormatUint(uint64(f.User), 10), f.Limit, before.String()})
		}
		reply, err := c.Feed(ctx, client.FeedRequest{User: uint64(f.User), Limit: f.Limit, Before: before})
		if err != nil {
			return err
		}
		out := table{}
		out.add("post", "author", "position")
		for _, p := range reply.Posts {
			out.add(strconv.FormatUint(p.Post, 10), strconv.FormatUint(p.Author, 10), p.Position.String())
		}
		if err := out.print(t.out); err != nil {
			return err
		}
		if reply.Next != 0 {
			fmt.Fprintf(t.out, "more: --before %s\n", reply.Next)
		}
		return wholeUsers(reply.Degraded, reply.Missing, reply.Stale)
	})
}
