package sim

import (
	"context"
	"io"

	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Dump writes what the disk holds of a store. Files are known by what they
// hold: which of two owners made the first is nobody's choice.
func (d *Disk) Dump(to io.Writer) error {
	return cold.Dump(NewServer().NewClient(0, nil).Mount(context.Background(), d), to)
}
