package main

import (
	"context"

	"github.com/tidemark-io/tidemark/query/client"
)

type pageCommand struct {
	Posts  []id `arg:"" name:"id" help:"Posts, at most 500."`
	Viewer id   `placeholder:"USER" help:"Also show whether this user is in the posts' sets: likes them, for example."`
	remote
}

func (pageCommand) Help() string {
	return `Shows the counts of posts as one viewer is shown them.

EXAMPLE

    tidemark page 42 43
    tidemark page 42 43 --viewer 7`
}

func (p *pageCommand) Run(t *terminal) error {
	request := client.PageRequest{Viewer: uint64(p.Viewer)}
	for _, post := range p.Posts {
		request.IDs = append(request.IDs, uint64(post))
	}
	return p.ask(func(ctx context.Context, c *client.Client) error {
		reply, err := c.Page(ctx, request)
		if err != nil {
			return asUsage(err)
		}
		if err := p.printRows(t, reply); err != nil {
			return err
		}
		return whole(reply)
	})
}
