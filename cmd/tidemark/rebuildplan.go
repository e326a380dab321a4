package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tidemark-io/tidemark/internal/node"
)

// consoleOf is the terminal that a reader is; nil: it is none.
func consoleOf(r io.Reader) *os.File {
	f, is := r.(*os.File)
	if !is {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return f
}

const orYes = "add --yes, or --dry-run, which shows what it would change and stops"

// plan shows what a rebuild would do, and has it confirmed: ask is what to go on with.
// ask is nil where nothing is to begin.
func (r *rebuildCommand) plan(ctx context.Context, t *terminal, l *leader, ask *node.RebuildAsk) (*node.RebuildAsk, error) {
	var plan node.RebuildPlan
	if err := l.do(ctx, node.RebuildPlanVerb, ask, &plan, nil); err != nil {
		return nil, err
	}
	if r.DryRun {
		if r.JSON {
			return nil, printJSON(t.out, plan)
		}
		return nil, printPlan(t.out, &plan)
	}
	if err := printPlan(t.err, &plan); err != nil {
		return nil, err
	}
	ask.Confirm = plan.Confirm
	if err := plan.Refuses(ask); err != nil {
		return nil, err
	}
	switch asks := consoleOf(t.in) != nil; {
	case r.Yes, !asks && len(plan.Drops) == 0: // a script cannot answer, and nothing is lost
		return ask, nil
	case !asks:
		return nil, usage("nothing was begun: it drops what stands above as 'no longer has', and standard input is no terminal at which to confirm that: %s", orYes)
	}
	fmt.Fprint(t.err, "Begin? [y/N] ")
	switch answer, err := bufio.NewReader(t.in).ReadString('\n'); {
	case err != nil && answer == "":
		fmt.Fprintln(t.err)
		return nil, usage("nothing was begun, as nobody has answered: %s", orYes)
	case !strings.EqualFold(strings.TrimSpace(answer), "y") && !strings.EqualFold(strings.TrimSpace(answer), "yes"):
		return nil, errors.New("nothing was begun")
	}
	return ask, nil
}

// planShown bounds how many lines of a list are shown.
const planShown = 100

// printPlan is a plan for people.
func printPlan(to io.Writer, p *node.RebuildPlan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "generation %d serves; the new one\n", p.Serving)
	line := func(format string, args ...any) {
		b.WriteString("  " + printable(fmt.Sprintf(format, args...), 4096) + "\n")
	}
	list := func(format string, words []string) {
		for _, word := range words[:min(len(words), planShown)] {
			line(format, word)
		}
		if more := len(words) - planShown; more > 0 {
			line("… and %d more", more)
		}
	}
	if len(p.Changes) == 0 {
		line("counts as the one that serves")
	}
	list("%s", p.Changes)
	list("no longer has %s", p.Drops)
	line("reads %s of EVENTS", count(int(p.Messages), "message"))
	for _, n := range p.Nodes {
		free := ""
		if n.Free > 0 {
			free = ", of " + bytesText(n.Free) + " free"
		}
		line("needs some %s of disk on node %s%s", bytesText(n.Needs), n.Node, free)
	}
	if p.Deletes != 0 {
		line("needs the place of generation %d, which is kept now and is deleted: there is no way back to it", p.Deletes)
	}
	list(fmt.Sprintf("loses %%s, which generation %d alone still has", p.Deletes), p.Loses)
	fmt.Fprintf(&b, "generation %d is kept for %s after the switch: 'tidemark rebuild --back' returns to it\n", p.Serving, p.Keep)
	_, err := io.WriteString(to, b.String())
	return err
}
