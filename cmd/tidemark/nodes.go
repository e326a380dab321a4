package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
)

type nodesCommand struct {
	List    nodesListCommand `cmd:"" default:"withargs" help:"List the nodes, and how they are."`
	Drain   drainCommand     `cmd:"" help:"Have a node hold no shards."`
	Undrain undrainCommand   `cmd:"" help:"Let a node hold shards again."`
	Forget  forgetCommand    `cmd:"" help:"Give up a node that will not come back."`
}

func (nodesCommand) Help() string {
	return `Without a further word it lists them ('tidemark help nodes list' says what each column is).

EXAMPLE

    tidemark nodes
    tidemark nodes drain a
    tidemark nodes --json | jq -r '.nodes[] | select(.state != "up") | .node'`
}

type nodesListCommand struct{ remote }

func (nodesListCommand) Help() string {
	return `Lists the processes that make up the system, as the one that answers knows them.

    NODE     its name
    STATE    up; away: nothing is heard of it; draining: it gives its shards to others;
             "up, silent 3s": the node that answers has not heard of it for so long
    ROLES    what it does: route, hold, answer
    ROUTES   "yes" for the one that turns events into windows now and was heard within 2 s
    ZONE     where it is; "-" for nowhere
    WEIGHT   its share of the shards beside the others'
    SHARDS   that it holds and answers for
    LOADING  that it is loading: 'tidemark shards' shows how far
    APPLIED  the position up to which it has applied events
    LAG      the age of the newest of them, while newer ones wait; "-" for one that is away or silent
    VERSION  of the program

Below the table it names the nodes whose configuration file counts differently from what serves.
If the node that answers has heard of no node for more than 2 s, it does not know how the others are: the output says so first, and the exit code is 1.

EXAMPLE

    tidemark nodes list
    tidemark nodes --json`
}

func (n *nodesListCommand) Run(t *terminal) error {
	return n.ask(func(ctx context.Context, c *client.Client) error {
		if n.JSON {
			return n.printView(ctx, c, t, "nodes")
		}
		nodes, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		shards, err := c.Shards(ctx) // perhaps of another node, a moment later
		if err != nil {
			return err
		}
		if err := printNodes(t.out, nodes, loadingOf(shards)); err != nil {
			return err
		}
		return heardOr(nodes.Silent)
	})
}

// printView prints the reply of an endpoint as it came. One of a node that hears of no
// node is an error besides, as it is without --json.
func (r *remote) printView(ctx context.Context, c *client.Client, t *terminal, endpoint string) error {
	reply, err := c.Ask(ctx, endpoint, []byte("{}"))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(t.out, "%s\n", reply); err != nil {
		return err
	}
	var heard struct {
		SilentMS int64 `json:"silent_ms"`
	}
	if err := json.Unmarshal(reply, &heard); err != nil {
		return err
	}
	return heardOr(time.Duration(heard.SilentMS) * time.Millisecond)
}

// heardOr is the end of a command that has printed what a node knows of the others.
func heardOr(silent time.Duration) error {
	if silent > 0 {
		return errTold
	}
	return nil
}

// printSilence says above a table that the others are not known.
func printSilence(to io.Writer, silent time.Duration) error {
	if silent == 0 {
		return nil
	}
	_, err := fmt.Fprintf(to, "%s\n\n", silence(silent))
	return err
}

func silence(silent time.Duration) string {
	return fmt.Sprintf("For %s the node that answers has heard of no node, not of itself either: it is cut off, or most of the NATS servers are gone. How the others are is not known.", silent.Round(time.Second))
}

// loadingOf counts the shards that each node is loading.
func loadingOf(shards client.Shards) map[string]int {
	loading := make(map[string]int)
	for _, s := range shards.Shards {
		for _, h := range s.Holders {
			if h.State == holderLoading {
				loading[h.Node]++
			}
		}
	}
	return loading
}

// The states that tables tell apart.
const (
	nodeAway      = "away"
	holderReady   = "ready"
	holderLoading = "loading"
)

// nameShown is how much of a name or a state a table shows: all of it, of what
// nodes write.
const nameShown = 64

// stateShown is a node's state, and for how long it was not heard of. That says nothing
// new of one that is away.
func stateShown(n client.Node) string {
	state := printable(n.State, nameShown)
	if n.Silent > 0 && n.State != nodeAway {
		state += ", silent " + n.Silent.Round(time.Second).String()
	}
	return state
}

func printNodes(to io.Writer, nodes client.Nodes, loading map[string]int) error {
	if len(nodes.Nodes) == 0 {
		_, err := fmt.Fprintln(to, "no nodes")
		return err
	}
	if err := printSilence(to, nodes.Silent); err != nil {
		return err
	}
	out := &table{left: []bool{0: true, 1: true, 2: true, 3: true, 4: true, 10: true}}
	out.add("NODE", "STATE", "ROLES", "ROUTES", "ZONE", "WEIGHT", "SHARDS", "LOADING", "APPLIED", "LAG", "VERSION")
	for _, n := range nodes.Nodes {
		routes, lag := "-", "-"
		if n.Routes {
			routes = "yes"
		}
		if n.LagKnown {
			lag = short(n.Lag)
		}
		out.add(printable(n.Node, nameShown), stateShown(n), printable(strings.Join(n.Roles, ","), nameShown), routes,
			printable(cmp.Or(n.Zone, "-"), nameShown), strconv.Itoa(n.Weight), strconv.Itoa(n.Shards), strconv.Itoa(loading[n.Node]),
			n.Applied.String(), lag, printable(n.Version, nameShown))
	}
	if err := out.print(to); err != nil {
		return err
	}
	return printDiffering(to, nodes)
}

// printDiffering says below a table which nodes' files count something else.
func printDiffering(to io.Writer, nodes client.Nodes) error {
	var names []string
	for _, n := range nodes.Nodes {
		if n.Config == query.ConfigDiffers {
			names = append(names, printable(n.Node, nameShown))
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(to, "\nThe configuration of %s counts differently from what serves, by which all nodes count: /readyz there says what; 'tidemark config adopt' or 'tidemark rebuild --config FILE' ends it.\n", strings.Join(names, ", "))
	return err
}
