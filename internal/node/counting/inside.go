package counting

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks/check"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Inside is what a generation is made of, for tests of the process that has it. Nothing of
// the product uses it (rules_test.go).
type Inside struct {
	Store     *cold.Store
	Members   *bucket.Members
	Router    *pipeline.Router
	Streams   *jetlog.Streams
	Auditor   *check.Auditor
	Backups   *upkeep.Schedule
	Nodes     *spread.Server   // answers other nodes
	Explained *history.History // what explanations read

	Memory *atomic.Int64
	Open   *atomic.Bool
	Same   cluster.Member // what this process says of itself that never changes
	Ctx    context.Context
	Cancel func()
	Fail   func(error)

	Held          func() cluster.ShardSet
	Self          func() cluster.Member
	Owner         func() jetlog.Owner
	Mixed         func() bool
	SetMixed      func()
	Observe       func(context.Context) error
	FreshnessWait func() time.Duration
	ComesFrom     func([]string) error
	Silent        func() time.Duration
}

func (g *Generation) Inside() *Inside {
	i := &Inside{
		Store: g.store, Members: g.members, Router: g.router, Streams: g.streams, Auditor: g.audits.Auditor, Backups: g.backups, Nodes: g.parts,
		Memory: &g.memory, Open: &g.open, Same: g.same, Ctx: g.ctx, Cancel: g.cancel, Fail: g.fail,
		Held: g.heldNow, Self: g.self, Owner: g.owner, Mixed: g.mixed, SetMixed: g.setMixed, Observe: g.observeStreams, FreshnessWait: g.freshnessWait, ComesFrom: g.comesFrom, Silent: g.silent,
	}
	if g.explainer != nil {
		i.Explained = g.explainer.Log.(eventLog).history
	}
	return i
}
