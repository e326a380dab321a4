package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
)

type shardsCommand struct{ remote }

func (shardsCommand) Help() string {
	return `A line for each shard: those who hold it, the most preferred first, each with its state.

    ready    it answers for the shard
    loading  it is getting the shard from another, or from the events: how much of it is there
    away     nothing is heard of the node
    failed   the shard has stopped there: the node's /readyz says why

If the node that answers has heard of no node for more than 2 s, the output says so first, and the exit code is 1.

EXAMPLE

    tidemark shards
    tidemark shards --json | jq '.shards[] | select(all(.holders[]; .state != "ready"))'`
}

func (s *shardsCommand) Run(t *terminal) error {
	return s.ask(func(ctx context.Context, c *client.Client) error {
		if s.JSON {
			return s.printJSON(ctx, c, t)
		}
		shards, err := c.Shards(ctx)
		if err != nil {
			return err
		}
		if err := printShards(t.out, shards); err != nil {
			return err
		}
		return heardOr(shards.Silent)
	})
}

// printJSON prints the reply, and where that is more than a message what its pages say.
func (s *shardsCommand) printJSON(ctx context.Context, c *client.Client, t *terminal) error {
	err := s.printView(ctx, c, t, "shards")
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != http.StatusRequestEntityTooLarge {
		return err
	}
	shards, err := c.Shards(ctx)
	if err != nil {
		return err
	}
	reply := query.Shards{Epoch: shards.Epoch, SilentMS: shards.Silent.Milliseconds()}
	for _, s := range shards.Shards {
		of := query.ShardHolders{Shard: pipeline.Shard(s.Shard)}
		for _, h := range s.Holders {
			holder := query.ShardHolder{Node: h.Node, State: query.HolderState(h.State), Applied: h.Applied}
			if h.State == holderLoading {
				holder.Loaded = &h.Loaded
			}
			of.Holders = append(of.Holders, holder)
		}
		reply.Shards = append(reply.Shards, of)
	}
	if err := json.NewEncoder(t.out).Encode(reply); err != nil {
		return err
	}
	return heardOr(shards.Silent)
}

func printShards(to io.Writer, shards client.Shards) error {
	if len(shards.Shards) == 0 {
		_, err := fmt.Fprintln(to, "no shard has a holder yet")
		return err
	}
	if err := printSilence(to, shards.Silent); err != nil {
		return err
	}
	out := &table{left: []bool{1: true}}
	out.add("SHARD", "HOLDERS")
	loading, unanswered := 0, 0
	for _, s := range shards.Shards {
		out.add(strconv.Itoa(s.Shard), cmp.Or(holders(s), "none"))
		has := func(state string) bool {
			return slices.ContainsFunc(s.Holders, func(h client.Holder) bool { return h.State == state })
		}
		if has(holderLoading) {
			loading++
		}
		if !has(holderReady) {
			unanswered++
		}
	}
	if err := out.print(to); err != nil {
		return err
	}
	ends := []string{count(len(shards.Shards), "shard")}
	if loading > 0 {
		ends = append(ends, fmt.Sprintf("%d being loaded", loading))
	}
	if unanswered > 0 {
		ends = append(ends, fmt.Sprintf("%d that nobody answers for: their ids are missing in answers", unanswered))
	}
	_, err := fmt.Fprintf(to, "\n%s (epoch %d)\n", strings.Join(ends, ", "), shards.Epoch)
	return err
}

// holders is one shard's line: a ready, b loading 40%.
func holders(s client.Shard) string {
	var list []string
	for _, h := range s.Holders {
		text := printable(h.Node, nameShown) + " " + printable(h.State, nameShown)
		if h.State == holderLoading {
			text += fmt.Sprintf(" %.0f%%", 100*h.Loaded)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
