package main

import (
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/node"
)

type repairCommand struct {
	Replay bool `help:"Throw away what is counted; the next start counts all events again, by today's rules and shards."`
	Adopt  bool `help:"Keep what is counted, and go on with the stream EVENTS that is there, recreated or not."`
	Record bool `help:"Have what is counted here serve, whatever the bucket's record of generations says."`
	Demo   bool `help:"The demo's data directory."`
	settings
}

func (repairCommand) Help() string {
	return `Works on the data directory of a node that is stopped. Choose one of --replay, --adopt and --record.

EXAMPLE

    tidemark repair --replay      after a change of rules or shards
    tidemark repair --adopt       after EVENTS was lost or recreated
    tidemark repair --record      when /readyz says that no node knows which generation serves`
}

// Validate is called by kong.
func (r *repairCommand) Validate() error {
	chosen := 0
	for _, is := range []bool{r.Replay, r.Adopt, r.Record} {
		if is {
			chosen++
		}
	}
	if chosen != 1 {
		return errors.New("choose one of --replay, --adopt and --record")
	}
	return nil
}

func (r *repairCommand) Run(t *terminal) error {
	c, _, err := r.load()
	if err != nil {
		return err
	}
	if r.Demo {
		c.DataDir = demoDir(c.DataDir)
	}
	err = node.Repair(c, node.RepairOptions{Replay: r.Replay, Adopt: r.Adopt, Record: r.Record, Demo: r.Demo, Logger: logger(t.err, c.Log)})
	if err != nil {
		return err
	}
	what := "the next start counts all events again"
	switch {
	case r.Record:
		what = "what is counted here serves from the next start on"
	case r.Adopt:
		what = "the counts stand, and the next start goes on with the events that are there"
	}
	_, err = fmt.Fprintf(t.out, "%s: %s\n", c.DataDir, what)
	return err
}
