package main

import "github.com/tidemark-io/tidemark/query/client"

type incrCommand struct {
	Cell cell   `arg:"" name:"count" help:"ID.SUFFIX, or ID.COUNTER.COLUMN."`
	N    amount `arg:"" optional:"" default:"1" help:"How much; may be negative (${default})."`
	remote
}

func (incrCommand) Help() string {
	return `Adds to a count and prints the new value. It goes through the event log like everything else, in order with the events of producers.

EXAMPLE

    tidemark incr 42.cntrn             one more
    tidemark incr 42.cntcm 10          ten more
    tidemark incr 42.post.comment -5   five less`
}

func (i *incrCommand) Run(t *terminal) error {
	return i.change(t, i.Cell, func(at column, id uint64) client.Event {
		return client.AdjustAdd(at.counter, id, at.name, int64(i.N))
	})
}
