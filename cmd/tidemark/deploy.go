package main

import (
	"io"

	"github.com/tidemark-io/tidemark/internal/walls"
)

// deployCommand prints files that others need to run Tidemark.
type deployCommand struct {
	NATSConf natsConfCommand `cmd:"" name:"nats-conf" help:"Print accounts and permissions for a NATS server of yours, to include in its configuration."`
}

type natsConfCommand struct{}

func (*natsConfCommand) Run(t *terminal) error {
	_, err := io.WriteString(t.out, walls.Outside())
	return err
}
