package counting

import (
	"context"
	"errors"
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
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// Answers is what answers everybody, by one schema. It asks other nodes for what is not
// held here. The schema of a process that only answers may change; then all of answers is
// made again.
type Answers struct {
	directory *lookup.Holders
	Reader    *spread.Reader
	door.Answering
	Registry *prometheus.Registry // of its figures, which begin with it
	holds    bool                 // this process holds shards
}

// openQueries answers other nodes.
func (g *Generation) openQueries() error {
	g.showFigures()
	g.sinks.MemoryOnly(g.told().Reads == cluster.ReadsMemory)
	return g.serveNodes()
}

// countedHere is what this generation counts.
func (g *Generation) countedHere() *spread.Counted {
	return &spread.Counted{Schema: g.store.Schema(), Shards: g.Config.Shards, Types: g.Config.Rules().Types()}
}

// serveNodes answers other nodes, for the shards held here.
func (g *Generation) serveNodes() (err error) {
	if !g.Config.Has(config.RoleHold) {
		return nil
	}
	if g.runs, err = move.Serve(g.NC, g.Name, g.store, move.ServeOptions{Generation: g.Number, Holds: g.sinks.Holds, Logger: g.Log}); err != nil {
		return err
	}
	g.parts, err = spread.Serve(g.Queries, g.sinks, spread.ServerOptions{
		Node:       g.Name,
		Generation: g.Number,
		Schema:     g.store.Schema(),
		Types:      g.Config.Rules().Types(),
		Shards:     g.Config.Shards,
		Workers:    g.Processors,
		ColdReads:  g.Config.Limits.ColdReads,
		Registerer: g.figures,
		Logger:     g.Log,
	})
	return err
}

// recentShare bounds the memory for posts of authors whom other nodes hold: memory.budget
// divided by recentShare. It comes on top of the budget.
const recentShare = 128

// NewAnswers answers everybody by this generation; counted nil: by what it counts here.
func (g *Generation) NewAnswers(counted *spread.Counted, ready func() error) (a *Answers, err error) {
	if counted == nil {
		counted = g.countedHere()
	}
	a = &Answers{
		holds:     g.Config.Has(config.RoleHold),
		directory: lookup.NewHolders(g.Name, counted.Shards, g.View, g.own(), g.behind.Load),
		Answering: door.Answering{Rules: g.program},
		Registry:  prometheus.NewRegistry(),
	}
	a.Reader, err = spread.New(g.Queries, spread.Options{
		Schema:     counted.Schema,
		Directory:  a.directory,
		Generation: g.Number,
		ColdReads:  g.Config.Limits.ColdReads,
		Recent:     int(g.Config.Memory.Budget / recentShare),
		Fresh:      g.fresh,
		Wait:       g.freshnessWait,
		Silent:     g.unheardFor,
		Registerer: a.Registry,
	})
	if err != nil {
		return nil, err
	}
	o := service.Options{
		Schema:  counted.Schema,
		Types:   counted.Types,
		Reader:  a.Reader,
		Cluster: lookup.NewOverview(g.Name, g.View, g.unheardFor),
		Limits: service.Limits{
			IDs:        g.Config.Limits.IDs,
			Requests:   g.Config.Limits.Requests,
			Processors: g.Processors,
			ColdReads:  g.Config.Limits.ColdReads,
			Timeout:    g.Config.Limits.Timeout,
			TimeoutMax: g.Config.Limits.TimeoutMax,
		},
		Refuses:    g.refuses,
		Fresh:      g.fresh,
		Slow:       service.Slow(g.Config.Slow),
		Stats:      g.host.Stats,
		Ready:      ready,
		Shards:     counted.Shards,
		Version:    g.Version,
		Registerer: a.Registry,
		Logger:     g.Log,
		Metadata:   map[string]string{"node": g.Name},
	}
	if g.explainer != nil {
		o.Explainer, o.ExplainAlone = g.explainer, !g.Config.Has(config.RoleAnswer)
	}
	if g.streams != nil { // a system is there
		a.Publisher = jetlog.NewPublisher(g.streams)
		o.Publisher, o.LogEnd = a.Publisher, g.LogEnd
	}
	if a.Service, err = service.New(g.Queries, o); err != nil {
		return nil, errors.Join(err, a.Reader.Close())
	}
	return a, nil
}

// Nobody returns why other nodes cannot be asked, if this process holds nothing itself.
func (a *Answers) Nobody() error {
	if !a.holds && a.directory.Held() == 0 {
		return cluster.ErrNobody
	}
	return nil
}

// Stop answers what has arrived, and then nothing more.
func (a *Answers) Stop(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return errors.Join(a.Service.Stop(ctx), a.Reader.Close())
}

// unheardFor is for how long nothing has been heard of any node, this one included.
func (g *Generation) unheardFor() time.Duration {
	if members := g.watched.Load(); members != nil {
		return members.Silent()
	}
	return 0
}

func (g *Generation) LogEnd(ctx context.Context) (sequence uint64, err error) {
	state, err := g.streams.State(ctx, jetlog.EventsStream)
	return state.Last, err
}

// own is what this process holds; nil: nothing, ever.
func (g *Generation) own() query.Holder {
	if !g.Config.Has(config.RoleHold) {
		return nil
	}
	return g.sinks
}

// Sinks is the state that is held here.
func (g *Generation) Sinks() *sinks.Node { return g.sinks }

// View is what is known of the members; there are none before this process has
// joined.
func (g *Generation) View() *cluster.View {
	if m := g.watched.Load(); m != nil {
		return m.View()
	}
	return &cluster.View{Degrade: cluster.Normal}
}
