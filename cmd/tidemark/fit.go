package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/fit"
)

type fitCommand struct {
	settings
	remote
}

func (fitCommand) Help() string {
	return `Looks at this machine and the configuration, and says of each thing what it is and how it should be: open files, disk space, the time of a synced write, files of keys, the NATS server, its clock, the settings and replicas of the streams, what the key may do. It changes nothing.

The server is the one of the configuration (nats.url, else nats.listen), with its credentials, unless --nats or $NATS_URL names another. If no server answers there and the configuration has an embedded one, the node does not run: then it looks whether the ports are free.

The exit code is 0 when all is fit (what could not be looked at is unknown, and not bad), 1 when something is bad, 2 for wrong usage or a configuration with mistakes.

EXAMPLE

    tidemark check
    tidemark check --config /etc/tidemark/config.yaml
    tidemark check --json | jq -r '.findings[] | select(.verdict != "good") | .name'`
}

func (f *fitCommand) Run(t *terminal) error {
	c, path, err := f.load()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	report := f.look(ctx, c, path)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := f.print(t, &report); err != nil {
		return err
	}
	if !report.Fit {
		return errTold
	}
	return nil
}

// look looks as the node of a configuration would, which came from path; "": from no file.
func (r *remote) look(ctx context.Context, c *config.Config, path string) fit.Report {
	return fit.Look(ctx, fit.Options{Config: c, File: cmp.Or(path, "built-in defaults"), Connect: r.asNode(c).options(true), Within: r.Timeout})
}

func (f *fitCommand) print(t *terminal, r *fit.Report) error {
	if f.JSON {
		return printJSON(t.out, r)
	}
	out := &table{left: []bool{true, true, true}}
	bad := 0
	for _, finding := range r.Findings {
		out.add(string(finding.Verdict), finding.Name, harmless(finding.Is))
		if finding.Do != "" && finding.Verdict == fit.Bad {
			bad++
			out.add("", "", "-> "+harmless(finding.Do))
		}
	}
	if err := out.print(t.out); err != nil {
		return err
	}
	verdict := "fit"
	if !r.Fit {
		verdict = fmt.Sprintf("not fit: %d of %d are bad", bad, len(r.Findings))
	}
	_, err := fmt.Fprintln(t.out, verdict)
	return err
}
