package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// nodeArgument is the node that a command is about.
type nodeArgument struct {
	Node string `arg:"" help:"Its name, as 'tidemark nodes' lists it."`
	remote
}

// Validate is called by kong.
func (n *nodeArgument) Validate() error {
	if n.Node != "" { // kong has better words for none
		if err := cluster.CheckNode(n.Node); err != nil {
			return err
		}
	}
	return n.remote.Validate()
}

type (
	drainCommand   struct{ nodeArgument }
	undrainCommand struct{ nodeArgument }
	forgetCommand  struct{ nodeArgument }
)

func (drainCommand) Help() string {
	return `The node is to hold no shards: others get them, and answers stay whole meanwhile. 'tidemark nodes' shows how many it has still; when it has none it can be stopped for good. It goes on to route and to answer. 'tidemark nodes undrain' ends it.

EXAMPLE

    tidemark nodes drain a`
}

func (undrainCommand) Help() string {
	return `The node may hold shards again. One that is not drained may be named.

EXAMPLE

    tidemark nodes undrain a`
}

func (forgetCommand) Help() string {
	return `For a node that will not come back: its shards are given to others at once, not after cluster.replace_after, and nothing is kept for it any more. A node that is up is refused: stop it first.

EXAMPLE

    tidemark nodes forget a`
}

func (d *drainCommand) Run(t *terminal) error {
	return d.do(t, (*bucket.Members).Drain, "drained", func(v *cluster.View) string {
		switch me, _ := v.Member(d.Node); {
		case !mayHold(me):
			return d.Node + " holds no shards, drained or not: " + whyNot(me)
		case !slices.ContainsFunc(v.Members, func(m cluster.State) bool { return m.Node != d.Node && !m.Drained && mayHold(m) }):
			return fmt.Sprintf("%[1]s is to hold no shards, but keeps them until there is another node that may hold them; 'tidemark nodes undrain %[1]s' ends it", d.Node)
		}
		return fmt.Sprintf("%[1]s is to hold no shards: 'tidemark nodes' shows how many it has still, 'tidemark nodes undrain %[1]s' ends it", d.Node)
	})
}

// mayHold: a node that is not drained may be given shards.
func mayHold(m cluster.State) bool {
	return m.Member != nil && m.Roles.Has(cluster.Hold) && m.Weight > 0
}

func whyNot(m cluster.State) string {
	if m.Member != nil && m.Roles.Has(cluster.Hold) {
		return "its weight is 0"
	}
	return "it has not the role hold"
}

func (u *undrainCommand) Run(t *terminal) error {
	return u.do(t, (*bucket.Members).Undrain, "undrained", func(v *cluster.View) string {
		if me, there := v.Member(u.Node); there && !mayHold(me) {
			return u.Node + " holds no shards, drained or not: " + whyNot(me)
		}
		return u.Node + " may hold shards"
	})
}

// silences is how long it may take to see of a node that it is silent, in both of two
// generations: one whose machine is gone without a word still has its connection for
// the server, for minutes, and one that is suspended has it as well.
const silences = 2 * bucket.MemberExpiry

func (f *forgetCommand) Run(t *terminal) error {
	f.Timeout += silences
	return f.do(t, (*bucket.Members).Forget, "forgotten", func(*cluster.View) string { return f.Node + " is forgotten" })
}

// do does one thing to the node, and says that it is done: said is called with how the
// nodes were before.
func (n *nodeArgument) do(t *terminal, what func(*bucket.Members, context.Context, string) error, done string, said func(*cluster.View) string) error {
	return n.members(func(ctx context.Context, m *bucket.Members) error {
		before := m.View()
		if err := what(m, ctx, n.Node); err != nil {
			return err
		}
		if n.JSON {
			return printJSON(t.out, map[string]any{"node": n.Node, done: true})
		}
		_, err := fmt.Fprintln(t.out, said(before))
		return err
	}, func(ctx context.Context, m *bucket.Members) error { return what(m, ctx, n.Node) })
}

// members looks at what nodes share of the generation that serves and does one thing
// with it; then another with what they share of the one beside it, if there is one,
// and both is not nil.
func (r *remote) members(do, both func(context.Context, *bucket.Members) error) error {
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	nc, err := r.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := r.reach.untilDenied(ctx)
	defer done()
	set, err := bucket.LoadGenerations(ctx, nc)
	var m *bucket.Members
	if err == nil {
		m, err = bucket.AttachMembers(ctx, nc, bucket.SlotOfServing(set), bucket.MembersOptions{})
	}
	if err != nil {
		return r.explain(err)
	}
	defer m.Close()
	if err := do(ctx, m); err != nil || both == nil || set.Beside() == 0 {
		return r.explain(err)
	}
	beside, err := bucket.AttachMembers(ctx, nc, jetlog.Slot(set.All[set.Beside()].Slot), bucket.MembersOptions{})
	if err != nil {
		return r.explain(err)
	}
	defer beside.Close()
	if err := both(ctx, beside); err != nil && !errors.Is(err, bucket.ErrUnknownNode) { // it was not there while this was built
		return r.explain(err)
	}
	return nil
}
