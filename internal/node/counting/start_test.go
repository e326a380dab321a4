package counting_test

import (
	"context"
	"log/slog"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/internal/node/counting"
)

func init() {
	counting.StartNode = func(ctx context.Context, c *config.Config, log *slog.Logger) (counting.Node, error) {
		n, err := node.Start(ctx, c, node.Options{Version: "test", Processors: 2, Logger: log})
		if err != nil { // not a nil *Node
			return nil, err
		}
		return n, nil
	}
}
