package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
)

type shardsCommand struct{ remote }

func (shardsCommand) Help() string {
	return `A line for each shard: the nodes that hold it, the most preferred first, each with its state. Below it says of which shards one copy is left, where cluster.replicas is above 1.

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
	reply := query.Shards{Epoch: shards.Epoch, SilentMS: shards.Silent.Milliseconds(), Replicas: shards.Replicas}
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
	for _, s := range shards.Shards {
		out.add(strconv.Itoa(s.Shard), cmp.Or(holders(s), "none"))
	}
	if err := out.print(to); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "\n%s", summary(shards))
	return err
}

// summary is what stands below the table.
func summary(shards client.Shards) string {
	loading, unanswered := 0, 0
	var last []int // of which one copy is left
	for _, s := range shards.Shards {
		if copies(s, holderLoading) > 0 {
			loading++
		}
		switch copies(s, holderReady) {
		case 0:
			unanswered++
		case 1:
			last = append(last, s.Shard)
		}
	}
	ends := []string{count(len(shards.Shards), "shard")}
	if loading > 0 {
		ends = append(ends, fmt.Sprintf("%d being loaded", loading))
	}
	if unanswered > 0 {
		ends = append(ends, fmt.Sprintf("%d that nobody answers for: their ids are missing in answers", unanswered))
	}
	text := fmt.Sprintf("%s (epoch %d)\n", strings.Join(ends, ", "), shards.Epoch)
	if len(last) > 0 && shards.Replicas > 1 && shards.Silent == 0 {
		has := "have"
		if len(last) == 1 {
			has = "has"
		}
		text += fmt.Sprintf("%d of %s %s one copy left: %s\n", len(last), count(len(shards.Shards), "shard"), has, listed(last))
	}
	return text
}

// copies are the holders of a shard in a state.
func copies(s client.Shard, state string) (n int) {
	for _, h := range s.Holders {
		if h.State == state {
			n++
		}
	}
	return n
}

// listedMax is how many shards a line names.
const listedMax = 32

// listed names shards: 1, 7, 9.
func listed(shards []int) string {
	var names []string
	for _, s := range shards[:min(len(shards), listedMax)] {
		names = append(names, strconv.Itoa(s))
	}
	text := strings.Join(names, ", ")
	if more := len(shards) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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
