package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// checked is what all nodes have found together. Of a shard with copies each id
// counts once for each copy.
type checked struct {
	IDs      int                `json:"ids"`
	Differs  int                `json:"differs"`
	Examples []check.Difference `json:"examples"` // each with its node
	Nodes    []*checks.Checked  `json:"nodes"`
	Failed   map[string]string  `json:"failed,omitempty"`  // nodes that have not compared, and why
	Missing  []int              `json:"missing,omitempty"` // shards that no node has compared
}

// check has every node that holds shards do a job of checking, and says what they have
// found.
func (r *remote) check(t *terminal, verb string, ask *checks.Ask) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := r.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	holders, shards, err := r.holders(ctx, nc)
	if err != nil {
		return err
	}
	asking, done := r.reach.untilDenied(ctx)
	defer done()
	c := askAll(asking, nc, holders, verb, ask, t.err)
	switch denial := r.reach.denial(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(c.Nodes) == 0 && denial != nil:
		return r.denied(denial)
	}
	compared := make([]bool, shards)
	for _, n := range c.Nodes {
		for _, s := range n.Shards {
			if int(s) < shards {
				compared[s] = true
			}
		}
	}
	for s, is := range compared {
		if !is {
			c.Missing = append(c.Missing, s)
		}
	}
	if r.JSON {
		err = printJSON(t.out, c)
	} else {
		err = c.print(t.out)
	}
	if err != nil {
		return err
	}
	return c.verdict()
}

// holders are the nodes that hold shards, and how many shards there are.
func (r *remote) holders(ctx context.Context, nc *nats.Conn) (names []string, shards int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout+answerSlack)
	defer cancel()
	ctx, done := r.reach.untilDenied(ctx)
	defer done()
	c := client.New(nc)
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, 0, r.explain(err)
	}
	if nodes.Silent > 0 {
		return nil, 0, errors.New(silence(nodes.Silent))
	}
	for _, n := range nodes.Nodes {
		if slices.Contains(n.Roles, "hold") && n.State != nodeAway {
			names = append(names, n.Node)
		}
	}
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("no node that holds shards is up: 'tidemark nodes' shows which there are")
	}
	all, err := c.Shards(ctx)
	return names, len(all.Shards), r.explain(err)
}

// checkTellEvery is how often the nodes' progress is shown.
const checkTellEvery = 5 * time.Second

// askAll asks nodes side by side.
func askAll(ctx context.Context, nc *nats.Conn, nodes []string, verb string, ask *checks.Ask, tell io.Writer) *checked {
	c := &checked{Failed: map[string]string{}, Examples: []check.Difference{}, Nodes: []*checks.Checked{}}
	told, at, asks := time.Now(), make(map[string]check.Progress), make(map[string]*checks.Ask)
	for _, name := range nodes {
		asks[name] = ask
	}
	for name, o := range checks.AskAll(ctx, nc, verb, asks, func(name string, p check.Progress) {
		if at[name] = p; time.Since(told) >= checkTellEvery {
			told = time.Now()
			fmt.Fprintln(tell, goingOn(at))
		}
	}) {
		if o.Err != nil {
			c.Failed[name] = o.Err.Error()
			continue
		}
		c.Nodes = append(c.Nodes, o.Found)
	}
	slices.SortFunc(c.Nodes, func(a, b *checks.Checked) int { return strings.Compare(a.Node, b.Node) })
	for _, n := range c.Nodes {
		c.IDs += n.IDs
		c.Differs += n.Differs + n.Notices
		for _, d := range n.Examples {
			d.Node = n.Node
			c.Examples = append(c.Examples, d)
		}
	}
	slices.SortStableFunc(c.Examples, func(a, b check.Difference) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Counter, b.Counter), strings.Compare(a.Column, b.Column))
	})
	return c
}

// goingOn is a line on how the nodes go on.
func goingOn(at map[string]check.Progress) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(at)) {
		p := at[name]
		parts = append(parts, fmt.Sprintf("%s: %.0f%% of the log, %d ids compared", printable(name, nameShown), 100*p.Share(), p.IDs))
	}
	return strings.Join(parts, "; ")
}

func printDifferences(to io.Writer, differ []check.Difference) error {
	if len(differ) == 0 {
		return nil
	}
	out := &table{left: []bool{0: true, 2: true, 6: true}}
	out.add("COUNTER", "ID", "COLUMN", "IS", "SHOULD", "AT", "NODE")
	for _, d := range differ {
		id := strconv.FormatUint(d.ID, 10)
		out.add(printable(d.Counter, nameShown), id, printable(d.Column, nameShown),
			strconv.FormatInt(d.Is, 10), strconv.FormatInt(d.Should, 10), d.At.String(), printable(d.Node, nameShown))
	}
	return out.print(to)
}

func (c *checked) print(to io.Writer) error {
	if err := printDifferences(to, c.Examples); err != nil {
		return err
	}
	var b strings.Builder
	for _, n := range c.Nodes {
		for _, s := range n.Renewed {
			text := "is given up and taken again: 'tidemark shards' shows how far it is"
			if n.After != nil {
				text = "was given up and taken again"
			}
			fmt.Fprintf(&b, "shard %d of %s %s\n", s, printable(n.Node, nameShown), text)
		}
		if n.Refused != "" {
			what := "nothing"
			if len(n.Renewed) > 0 {
				what = "not all"
			}
			fmt.Fprintf(&b, "%s is repaired on %s: %s\n", what, printable(n.Node, nameShown), printable(n.Refused, 1024))
		}
		if n.Mixed && n.Differs > 0 {
			fmt.Fprintf(&b, "what %s has was not all counted by today's rules and limits: that may be why it differs\n", printable(n.Node, nameShown))
		}
	}
	for _, base := range c.bases() {
		fmt.Fprintf(&b, "EVENTS lacks its beginning: counted on from %s; what was wrong there already is not found\n", printable(base, 1024))
	}
	switch {
	case len(c.Nodes) == 0: // why is said by the error
		fmt.Fprintln(&b, "nothing was compared")
	case c.IDs == 0 && c.Differs == 0:
		fmt.Fprintf(&b, "0 ids compared, on %s: none that is counted is in the sample; --all takes all\n", count(len(c.Nodes), "node"))
	case c.Differs == 0:
		fmt.Fprintf(&b, "%s compared, on %s: all as the log says\n", count(c.IDs, "id"), count(len(c.Nodes), "node"))
	default:
		fmt.Fprintf(&b, "%s compared, on %s: %d differ\n", count(c.IDs, "id"), count(len(c.Nodes), "node"), c.Differs)
	}
	if _, err := io.WriteString(to, b.String()); err != nil {
		return err
	}
	return c.printAfter(to)
}

// printAfter says what was found once shards were taken again.
func (c *checked) printAfter(to io.Writer) error {
	var differ []check.Difference
	ids, nodes := 0, 0
	for _, n := range c.Nodes {
		if n.After == nil {
			continue
		}
		nodes, ids = nodes+1, ids+n.After.IDs
		for _, d := range n.After.Examples {
			d.Node = n.Node
			differ = append(differ, d)
		}
	}
	if nodes == 0 {
		return nil
	}
	if err := printDifferences(to, differ); err != nil {
		return err
	}
	found := "all as the log says"
	if left := c.left(); left > 0 {
		found = fmt.Sprintf("%d differ still", left)
	}
	_, err := fmt.Fprintf(to, "%s compared again, on %s: %s\n", count(ids, "id"), count(nodes, "node"), found)
	return err
}

// failures are why nodes have not compared, each reason once with its nodes.
func (c *checked) failures() (why []string) {
	nodes := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(c.Failed)) {
		nodes[c.Failed[name]] = append(nodes[c.Failed[name]], printable(name, nameShown))
	}
	for _, reason := range slices.Sorted(maps.Keys(nodes)) {
		why = append(why, strings.Join(nodes[reason], ", ")+": "+printable(reason, 1024))
	}
	return why
}

// left is how many differ, as far as is known now: where shards were taken again and
// looked at, by what was found then.
func (c *checked) left() (differ int) {
	for _, n := range c.Nodes {
		if n.After != nil {
			n = n.After
		}
		differ += n.Differs + n.Notices
	}
	return differ
}

// bases are the backups that nodes began with.
func (c *checked) bases() (bases []string) {
	for _, n := range c.Nodes {
		if n.Base != "" {
			bases = append(bases, n.Base)
		}
	}
	slices.Sort(bases)
	return slices.Compact(bases)
}

// verdict is an error when anything differs, also once it was repaired, or was not
// compared.
func (c *checked) verdict() error {
	why := c.failures()
	if len(c.Nodes) == 0 && len(why) > 0 {
		return fmt.Errorf("nothing was compared: %s", strings.Join(why, "; "))
	}
	if len(c.Missing) > 0 {
		why = append(why, fmt.Sprintf("shards %v were compared by no node", c.Missing))
	}
	for _, n := range c.Nodes {
		for _, s := range slices.Sorted(maps.Keys(n.Skipped)) {
			why = append(why, fmt.Sprintf("shard %s of %s was not compared: %s", s, printable(n.Node, nameShown), printable(n.Skipped[s], 1024)))
		}
		for _, s := range n.Renewed {
			if n.After != nil && !slices.Contains(n.After.Shards, s) {
				text := cmp.Or(n.After.Skipped[strconv.Itoa(int(s))], "it is not there any more")
				why = append(why, fmt.Sprintf("shard %d of %s was not compared once it was taken again: %s", s, printable(n.Node, nameShown), printable(text, 1024)))
			}
		}
	}
	switch {
	case len(why) > 0:
		return fmt.Errorf("not all was compared: %s", strings.Join(why, "; "))
	case c.left() > 0:
		return errTold
	}
	return nil
}
