package node

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/nodetest"
)

// site is one of processes of this package.
type site struct{ *nodetest.Site[*Node] }

func newSite(t testing.TB) *site {
	return &site{nodetest.NewSite(t, startOnSite)}
}

// siteOn is the site of a server that is there.
func siteOn(t testing.TB, nc *nats.Conn) *site { return &site{nodetest.SiteOn(t, nc, startOnSite)} }

func startOnSite(ctx context.Context, c *config.Config, log *slog.Logger) (*Node, error) {
	return Start(ctx, c, Options{Logger: log, Version: "1.2.3"})
}
