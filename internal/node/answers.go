package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/door"
	"github.com/tidemark-io/tidemark/internal/node/lookup"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// answers is what answers everybody, by one schema. It asks other nodes for what is not
// held here. The schema of a process that only answers may change; then all of answers is
// made again.
type answers struct {
	directory *lookup.Holders
	reader    *spread.Reader
	door.Answering
	registry *prometheus.Registry // of its figures, which begin with it
	holds    bool                 // this process holds shards
}

// openQueries answers other nodes.
func (g *generation) openQueries() error {
	g.showFigures()
	g.openExplainer()
	g.sinks.MemoryOnly(g.told().Reads == cluster.ReadsMemory)
	return g.serveNodes()
}

// countedHere is what this generation counts.
func (g *generation) countedHere() *spread.Counted {
	return &spread.Counted{Schema: g.store.Schema(), Shards: g.config.Shards, Types: g.config.Rules().Types()}
}

// serveNodes answers other nodes, for the shards held here.
func (g *generation) serveNodes() (err error) {
	if !g.config.Has(config.RoleHold) {
		return nil
	}
	if g.runs, err = move.Serve(g.nc, g.name, g.store, move.ServeOptions{Generation: g.number, Holds: g.sinks.Holds, Digest: g.digest, Logger: g.log}); err != nil {
		return err
	}
	g.parts, err = spread.Serve(g.queries, g.sinks, spread.ServerOptions{
		Node:       g.name,
		Generation: g.number,
		Schema:     g.store.Schema(),
		Types:      g.config.Rules().Types(),
		Shards:     g.config.Shards,
		Untold:     g.untold,
		Workers:    g.processors,
		ColdReads:  g.config.Limits.ColdReads,
		Registerer: g.figures,
		Logger:     g.log,
	})
	return err
}

// untold returns why a process that only answers must not use this generation: it is kept,
// and does not serve. A version that knows of generations does not ask; an earlier one
// would go on with the generation that served before.
func (g *generation) untold() error {
	if g.host.generations().Kept == g.number {
		return fmt.Errorf("generation %d does not serve any more: a version that knows of generations is needed", g.number)
	}
	return nil
}

// recentShare bounds the memory for posts of authors whom other nodes hold: memory.budget
// divided by recentShare. It comes on top of the budget.
const recentShare = 128

// newAnswers answers everybody by this generation; counted nil: by what it counts here.
func (g *generation) newAnswers(counted *spread.Counted, ready func() error) (a *answers, err error) {
	if counted == nil {
		counted = g.countedHere()
	}
	a = &answers{
		holds:     g.config.Has(config.RoleHold),
		directory: lookup.NewHolders(g.name, counted.Shards, g.view, g.own(), g.behind.Load),
		Answering: door.Answering{Rules: g.program},
		registry:  prometheus.NewRegistry(),
	}
	a.reader, err = spread.New(g.queries, spread.Options{
		Schema:     counted.Schema,
		Directory:  a.directory,
		Generation: g.number,
		ColdReads:  g.config.Limits.ColdReads,
		Recent:     int(g.config.Memory.Budget / recentShare),
		Fresh:      g.fresh,
		Wait:       g.freshnessWait,
		Silent:     g.unheardFor,
		Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	o := service.Options{
		Schema:  counted.Schema,
		Types:   counted.Types,
		Reader:  a.reader,
		Cluster: lookup.NewOverview(g.name, g.view, g.unheardFor),
		Limits: service.Limits{
			IDs:        g.config.Limits.IDs,
			Requests:   g.config.Limits.Requests,
			Processors: g.processors,
			ColdReads:  g.config.Limits.ColdReads,
			Timeout:    g.config.Limits.Timeout,
			TimeoutMax: g.config.Limits.TimeoutMax,
		},
		Refuses:    g.refuses,
		Fresh:      g.fresh,
		Slow:       service.Slow(g.config.Slow),
		Stats:      g.host.stats,
		Ready:      ready,
		Shards:     counted.Shards,
		Version:    g.version,
		Registerer: a.registry,
		Logger:     g.log,
		Metadata:   map[string]string{"node": g.name},
	}
	if g.explainer != nil {
		o.Explainer, o.ExplainAlone = g.explainer, !g.config.Has(config.RoleAnswer)
	}
	if g.streams != nil { // a system is there
		a.Publisher = jetlog.NewPublisher(g.streams)
		o.Publisher, o.LogEnd = a.Publisher, g.logEnd
	}
	if a.Service, err = service.New(g.queries, o); err != nil {
		return nil, errors.Join(err, a.reader.Close())
	}
	return a, nil
}

// nobody returns why other nodes cannot be asked, if this process holds nothing itself.
func (a *answers) nobody() error {
	if !a.holds && a.directory.Held() == 0 {
		return cluster.ErrNobody
	}
	return nil
}

// stop answers what has arrived, and then nothing more.
func (a *answers) stop(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return errors.Join(a.Service.Stop(ctx), a.reader.Close())
}

// unheardFor is for how long nothing has been heard of any node, this one included.
func (g *generation) unheardFor() time.Duration {
	if members := g.watched.Load(); members != nil {
		return members.Silent()
	}
	return 0
}

func (g *generation) logEnd(ctx context.Context) (sequence uint64, err error) {
	state, err := g.streams.State(ctx, jetlog.EventsStream)
	return state.Last, err
}

// own is what this process holds; nil: nothing, ever.
func (g *generation) own() query.Holder {
	if !g.config.Has(config.RoleHold) {
		return nil
	}
	return g.sinks
}

// here is the state that is held here.
func (g *generation) here() query.Reader { return g.sinks }

// view is what is known of the members; there are none before this process has
// joined.
func (g *generation) view() *cluster.View {
	if m := g.watched.Load(); m != nil {
		return m.View()
	}
	return &cluster.View{Degrade: cluster.Normal}
}
