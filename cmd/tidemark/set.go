package main

import "github.com/tidemark-io/tidemark/query/client"

type setCommand struct {
	Cell cell   `arg:"" name:"count" help:"ID.SUFFIX, or ID.COUNTER.COLUMN."`
	N    amount `arg:"" help:"The value."`
	remote
}

func (setCommand) Help() string {
	return `Sets a count, whatever it was, and prints the new value. A negative value is kept and answered as 0, as every sum below zero is.

EXAMPLE

    tidemark set 42.cntcm 987654
    tidemark set 42.post.comment 0`
}

func (s *setCommand) Run(t *terminal) error {
	return s.change(t, s.Cell, func(at column, id uint64) client.Event {
		return client.AdjustSet(at.counter, id, at.name, int64(s.N))
	})
}
