package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/query/client"
)

type statsCommand struct {
	All  bool   `help:"The Go runtime's and the process's figures too."`
	Node string `placeholder:"NODE" help:"The figures of this node, as 'tidemark nodes' lists it; of the one that answers otherwise."`
	remote
}

func (statsCommand) Help() string {
	return `Shows what /metrics holds, as of now: a line for each counter, one for each column, then what is not of a counter.
Where there are several nodes it begins with which there are; the figures are those of the one that answers. --node asks
one of them, whatever its roles are; it needs the rights of a node (docs/security.md).
--json prints every figure. docs/metrics.md says what each means. What a node does not tell is "-".

Of a counter (sums are since the node's start):

    COUNTER    its name
    ROWS       rows in memory; there may be more on disk
    BYTES      their memory, free places in the tables included
    BYTES/ROW  the one by the other; "-" while most places are free, as on a new node
    LOAD       rows for each place in the tables, 0 to 1
    GETS       rows asked for
    SETS       changes of cells
    HITS       rows asked for that were known in memory, absence too
    MISSES     rows asked for that were not
    COLD       rows read from disk to answer
    ERRORS     reads of rows that the disk refused
    EVICTED    rows that made room in memory for others
    PROBE      how far rows stand from their home in the tables: mean/longest

Of a column:

    COUNTER.COLUMN  its name; columns of zeros are shown with --all
    SETS            changes of its cells
    ESCAPES         cells too large for the column's bits, kept beside the row
    SATURATED       changes that left a cell at the end of 63 bits

EXAMPLE

    tidemark stats
    tidemark stats --json | jq '.tidemark_lag_messages'
    tidemark stats --node b`
}

// Validate is called by kong.
func (s *statsCommand) Validate() error {
	if s.Node != "" {
		if err := cluster.CheckNode(s.Node); err != nil {
			return fmt.Errorf("--node: %w", err)
		}
	}
	return s.remote.Validate()
}

func (s *statsCommand) Run(t *terminal) error {
	return s.ask(func(ctx context.Context, c *client.Client) error {
		figures, err := s.figures(ctx, c)
		if err != nil {
			return err
		}
		if s.JSON {
			return printJSON(t.out, figures)
		}
		// A node of an earlier version does not know of others: no such lines then.
		if nodes, err := c.Nodes(ctx); err == nil {
			if _, err := io.WriteString(t.out, nodesLines(nodes, nodeOf(figures))); err != nil {
				return err
			}
		}
		return s.print(t.out, figures)
	})
}

// figures are those of the node that is named, or of the one that answers.
func (s *statsCommand) figures(ctx context.Context, c *client.Client) (map[string]any, error) {
	if s.Node == "" {
		return c.Stats(ctx)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range nodes.Nodes {
		names = append(names, printable(n.Node, nameShown))
	}
	i := slices.IndexFunc(nodes.Nodes, func(n client.Node) bool { return n.Node == s.Node })
	switch {
	case i < 0:
		return nil, fmt.Errorf("there is no such node as %q; there are: %s", s.Node, strings.Join(names, ", "))
	case nodes.Nodes[i].State == nodeAway && nodes.Silent == 0:
		return nil, fmt.Errorf("node %s is away: nothing is heard of it", s.Node)
	}
	raw, err := job.Ask(ctx, s.reach.nc, s.Node, node.StatsVerb, struct{}{}, nil)
	if err != nil {
		return nil, err
	}
	figures := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // as in a reply of tidemark.stats
	if err := d.Decode(&figures); err != nil {
		return nil, fmt.Errorf("the figures of node %s: %w", s.Node, err)
	}
	return figures, nil
}

// nodesLines say which nodes there are, and that the figures are one's; "" when
// there is only that one.
func nodesLines(nodes client.Nodes, of string) string {
	if len(nodes.Nodes) < 2 {
		return ""
	}
	names, holders := map[string][]string{}, 0
	for _, n := range nodes.Nodes {
		state := printable(n.State, nameShown)
		names[state] = append(names[state], printable(n.Node, nameShown))
		if n.Shards > 0 && n.State != nodeAway {
			holders++
		}
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(names)) {
		parts = append(parts, state+": "+strings.Join(names[state], ", "))
	}
	slices.Reverse(parts) // up, draining, away
	if nodes.Silent > 0 {
		parts = append(parts, "heard of no node for "+nodes.Silent.Round(time.Second).String())
	}
	return fmt.Sprintf("nodes    %s\nanswers  come from the %d of them that hold shards\nfigures  below are of node %s alone\n\n",
		strings.Join(parts, "; "), holders, printable(of, nameShown))
}

// nodeOf is the node that gave the figures.
func nodeOf(figures map[string]any) string {
	for figure := range figures {
		name, list := split(figure)
		if name != own+"info" {
			continue
		}
		for pair := range strings.SplitSeq(list, ", ") {
			if node, is := strings.CutPrefix(pair, "node="); is {
				return node
			}
		}
	}
	return untold
}

// print says each figure once.
func (s *statsCommand) print(to io.Writer, figures map[string]any) error {
	rest := maps.Clone(figures)
	for _, begin := range []*table{counterTable(rest), columnTable(rest, s.All)} {
		if begin == nil {
			continue
		}
		if err := begin.print(to); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(to); err != nil {
			return err
		}
	}
	return s.table(rest).print(to)
}

// own is how the names of Tidemark's figures begin.
const own = "tidemark_"

// table has a line for each figure; a name stands once, before the first of
// its labels. Zeros with labels are left out, all but one.
func (s *statsCommand) table(figures map[string]any) *table {
	out := &table{left: []bool{true, true}}
	names := slices.SortedFunc(maps.Keys(figures), byName)
	for len(names) > 0 {
		name, _ := split(names[0])
		rest := slices.IndexFunc(names, func(figure string) bool { other, _ := split(figure); return other != name })
		if rest < 0 {
			rest = len(names)
		}
		if s.All || strings.HasPrefix(name, own) {
			s.family(out, strings.TrimPrefix(name, own), names[:rest], figures)
		}
		names = names[rest:]
	}
	return out
}

func (s *statsCommand) family(out *table, name string, names []string, figures map[string]any) {
	shown := name
	for _, figure := range names {
		value := readable(figures[figure])
		_, labels := split(figure)
		if labels != "" && value == "0" && !s.All {
			continue
		}
		out.add(shown, labels, value)
		shown = ""
	}
	if shown == name {
		out.add(name, "", "0")
	}
}

// split parts a figure's name from its labels, which lose their quotes.
func split(figure string) (name, labels string) {
	name, labels, _ = strings.Cut(figure, "{")
	return name, strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(labels, "}"), `"`, ""), ",", ", ")
}

// byName puts Tidemark's figures first, and all of one name together: "{"
// sorts behind letters and would let a_b in between a{…}.
func byName(a, b string) int {
	nameA, labelsA := split(a)
	nameB, labelsB := split(b)
	if ownA, ownB := strings.HasPrefix(nameA, own), strings.HasPrefix(nameB, own); ownA != ownB {
		if ownA {
			return -1
		}
		return 1
	}
	if c := strings.Compare(nameA, nameB); c != 0 {
		return c
	}
	return strings.Compare(labelsA, labelsB)
}

// readable shortens fractions, and leaves whole numbers whole.
func readable(v any) string {
	text := fmt.Sprint(v)
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, ".eE") {
		if f == float64(int64(f)) {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return strconv.FormatFloat(f, 'g', 4, 64)
	}
	return text
}
