package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/query/client"
)

type getCommand struct {
	What    []string `arg:"" name:"what" help:"COUNTER ID…, or ID.SUFFIX… for the bare values."`
	Columns []string `placeholder:"A,B" help:"Only these columns, by name or suffix."`
	Member  string   `placeholder:"MEMBER" help:"Also show whether it is in the columns' sets: an id, a pair of ids as 50,7, or a token."`
	Raw     bool     `help:"Sums as they are: one below zero is answered as 0 otherwise, unless the column is signed."`
	remote

	ids   []uint64 // COUNTER ID…
	cells []cell   // ID.SUFFIX…
}

func (getCommand) Help() string {
	return `EXAMPLE

    tidemark get post 42 43                  a table, one line an id
    tidemark get post 42 --columns like      some columns of it
    tidemark get post 42 --member 7          and whether user 7 likes it
    tidemark get 42.cntcm                    one value, bare
    tidemark get 42.cntcm 43.post.like       several, one a line

A column is asked by its suffix, or by counter and name.`
}

// Validate is called by kong.
func (g *getCommand) Validate() error {
	if err := g.remote.Validate(); err != nil {
		return err
	}
	if slices.Contains(g.Columns, "") {
		return fmt.Errorf("--columns has an empty name")
	}
	switch {
	case len(g.What) == 0:
		return nil // kong will say so
	case strings.Contains(g.What[0], "."):
		return g.readCells()
	}
	return g.readIDs()
}

func (g *getCommand) readCells() error {
	if len(g.Columns) > 0 {
		return fmt.Errorf("--columns goes with COUNTER ID…: %s names its column already", g.What[0])
	}
	if g.Member != "" {
		return fmt.Errorf("--member goes with COUNTER ID…: %s shows a value alone", g.What[0])
	}
	for _, text := range g.What {
		var c cell
		if err := c.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		g.cells = append(g.cells, c)
	}
	return nil
}

func (g *getCommand) readIDs() error {
	if _, err := strconv.ParseUint(g.What[0], 10, 64); err == nil {
		return fmt.Errorf("%s of which counter? say COUNTER ID…, or ID.SUFFIX", g.What[0])
	}
	if len(g.What) == 1 {
		return fmt.Errorf("which ids of counter %s? say %s ID…", g.What[0], g.What[0])
	}
	for _, text := range g.What[1:] {
		var i id
		if err := i.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		g.ids = append(g.ids, uint64(i))
	}
	return nil
}

func (g *getCommand) Run(t *terminal) error {
	return g.ask(func(ctx context.Context, c *client.Client) error {
		if len(g.cells) > 0 {
			return g.values(ctx, c, t)
		}
		request := client.GetRequest{Counter: g.What[0], IDs: g.ids, Columns: g.Columns, Raw: g.Raw}
		var ok bool
		if request.Member, ok = idOrPair(g.Member); !ok {
			request.Member, request.Token = client.Member{}, g.Member
		}
		reply, err := c.GetMany(ctx, request)
		if err != nil {
			return asUsage(err)
		}
		if err := g.printRows(t, reply); err != nil {
			return err
		}
		return whole(reply)
	})
}

// printRows prints rows of one counter, and after the values, where it was asked, whether
// the member is in their sets.
func (r *remote) printRows(t *terminal, reply client.GetReply) error {
	if r.JSON {
		return printJSON(t.out, replyJSON(reply))
	}
	out := table{}
	head := append([]string{"id"}, reply.Columns...)
	for _, name := range reply.Sets {
		head = append(head, name+"?")
	}
	out.add(head...)
	for _, row := range reply.Rows {
		line := []string{strconv.FormatUint(row.ID, 10)}
		for i := range reply.Columns {
			if row.Values == nil {
				line = append(line, "?")
			} else {
				line = append(line, strconv.FormatInt(row.Values[i], 10))
			}
		}
		for i := range reply.Sets {
			switch {
			case row.Has == nil:
				line = append(line, "?")
			case row.Has[i]:
				line = append(line, "yes")
			default:
				line = append(line, "no")
			}
		}
		out.add(line...)
	}
	return out.print(t.out)
}

// values asks each column once for all the ids that want it.
func (g *getCommand) values(ctx context.Context, c *client.Client, t *terminal) error {
	type place struct{ counter, column string }
	asked := map[place][]int{}
	var order []place
	for i, cell := range g.cells {
		p := place{cell.counter, cell.column}
		if asked[p] == nil {
			order = append(order, p)
		}
		asked[p] = append(asked[p], i)
	}
	all := client.GetReply{Rows: make([]client.Row, len(g.cells))}
	for _, p := range order {
		request := client.GetRequest{Counter: p.counter, Columns: []string{p.column}, Raw: g.Raw}
		for _, i := range asked[p] {
			request.IDs = append(request.IDs, uint64(g.cells[i].id))
		}
		reply, err := c.GetMany(ctx, request)
		if err != nil {
			return err
		}
		for n, i := range asked[p] {
			all.Rows[i] = reply.Rows[n]
		}
		if all.AsOf == 0 || reply.AsOf < all.AsOf {
			all.AsOf = reply.AsOf
		}
		all.Degraded, all.Stale = all.Degraded || reply.Degraded, max(all.Stale, reply.Stale)
		all.Missing = append(all.Missing, reply.Missing...)
	}
	if err := g.printValues(t, all); err != nil {
		return err
	}
	return whole(all)
}

func (g *getCommand) printValues(t *terminal, reply client.GetReply) error {
	if g.JSON {
		document := replyJSON(reply)
		for i := range document.Rows {
			document.Rows[i].names = []string{g.cells[i].column}
		}
		return printJSON(t.out, document)
	}
	for _, row := range reply.Rows {
		if row.Values == nil {
			fmt.Fprintln(t.out, "?")
		} else if _, err := fmt.Fprintln(t.out, row.Values[0]); err != nil {
			return err
		}
	}
	return nil
}

// whole is an error when some ids could not be read: their zeros are not
// known to be zeros.
func whole(reply client.GetReply) error {
	if !reply.Degraded {
		return nil
	}
	ids := make([]string, 0, len(reply.Missing))
	for _, missing := range reply.Missing {
		ids = append(ids, strconv.FormatUint(missing, 10))
	}
	return wholeOr("ids", ids, reply.Stale)
}

// getJSON is the reply of tidemark.get.
type getJSON struct {
	Rows     []rowJSON `json:"rows"`
	AsOf     string    `json:"as_of"`
	Degraded bool      `json:"degraded,omitempty"`
	StaleMS  int64     `json:"stale_ms,omitempty"`
	Missing  []string  `json:"missing,omitempty"`
}

// rowJSON is one row, its columns in the order asked.
type rowJSON struct {
	client.Row
	names []string
	sets  []string
}

// MarshalJSON is called by encoding/json.
func (r rowJSON) MarshalJSON() ([]byte, error) {
	out := fmt.Appendf(nil, `{"id":"%d"`, r.ID)
	for i, value := range r.Values {
		out = fmt.Appendf(out, `,%q:%d`, r.names[i], value) // names are plain ASCII
	}
	if len(r.Has) > 0 {
		out = append(out, `,"has":{`...)
		for i, has := range r.Has {
			out = fmt.Appendf(out, `%q:%t,`, r.sets[i], has)
		}
		out[len(out)-1] = '}' // the last comma
	}
	return append(out, '}'), nil
}

func replyJSON(reply client.GetReply) getJSON {
	document := getJSON{Rows: []rowJSON{}, AsOf: reply.AsOf.String(), Degraded: reply.Degraded, StaleMS: reply.Stale.Milliseconds()}
	for _, row := range reply.Rows {
		document.Rows = append(document.Rows, rowJSON{row, reply.Columns, reply.Sets})
	}
	for _, missing := range reply.Missing {
		document.Missing = append(document.Missing, strconv.FormatUint(missing, 10))
	}
	return document
}
