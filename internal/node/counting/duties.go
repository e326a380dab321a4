package counting

import (
	"context"
	"sync"

	"github.com/tidemark-io/tidemark/internal/config"
)

// duties are what a generation does besides counting while it serves: the audit that
// never ends, backups, the making of filters, and dead letters.
type duties struct {
	stop context.CancelFunc // nil: it does not serve
	work sync.WaitGroup
}

// BeginServing begins them.
func (g *Generation) BeginServing() {
	ctx, stop := context.WithCancel(g.ctx)
	g.duties.stop = stop
	g.letters.on()
	g.sayDiffers()
	g.duties.work.Go(func() { g.explainer.Run(ctx) })
	if g.audits.Auditor != nil {
		g.duties.work.Go(func() { g.audit(ctx) })
	}
	if g.Config.Has(config.RoleRoute) && g.Config.Backup.To != "" {
		g.duties.work.Go(func() { g.backups.Run(ctx) })
	}
}

// EndServing ends them.
func (g *Generation) EndServing() {
	if g.duties.stop == nil {
		return
	}
	g.letters.off()
	g.duties.stop()
	g.duties.work.Wait()
	g.duties.stop = nil
}
