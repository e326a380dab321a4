package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// answers is what answers everybody, by one schema: other nodes are asked for
// what is not held here. The schema of a process that only answers may change;
// then all of it is made again.
type answers struct {
	directory *directory
	reader    *spread.Reader
	service   *query.Service
	registry  *prometheus.Registry // of its figures, which begin with it
}

// openQueries answers other nodes.
func (n *generation) openQueries() error {
	n.figures.MustRegister(newCollector(n))
	n.openExplainer()
	n.sinks.MemoryOnly(n.told().Reads == cluster.ReadsMemory)
	return n.serveNodes()
}

// serves says that this process answers somebody: everybody, or, where it holds,
// what is asked about events. Thin nodes cannot tell that.
func (n *Node) serves() bool { return n.config.Has(config.RoleAnswer) || n.config.Has(config.RoleHold) }

// openAnswers answers, if that is a role of this process.
func (n *Node) openAnswers() error {
	n.register()
	if n.serves() {
		if err := n.gen().serve(); err != nil {
			return err
		}
	}
	n.showHTTP(n.pages())
	return nil
}

// serve answers everybody by this generation.
func (n *generation) serve() error {
	return n.serveAll(n.countedHere(), nil)
}

// countedHere is what this generation counts.
func (n *generation) countedHere() *spread.Counted {
	return &spread.Counted{Schema: n.store.Schema(), Shards: n.config.Shards, Types: n.config.Rules().Types()}
}

// serveNodes answers other nodes, for the shards held here.
func (n *generation) serveNodes() (err error) {
	if !n.config.Has(config.RoleHold) {
		return nil
	}
	if n.runs, err = move.Serve(n.nc, n.name, n.store, move.ServeOptions{Generation: n.number, Holds: n.sinks.Holds, Digest: n.digest, Logger: n.log}); err != nil {
		return err
	}
	n.parts, err = spread.Serve(n.queries, n.sinks, spread.ServerOptions{
		Node:       n.name,
		Generation: n.number,
		Schema:     n.store.Schema(),
		Types:      n.config.Rules().Types(),
		Shards:     n.config.Shards,
		Untold:     n.untold,
		Workers:    n.o.Processors,
		ColdReads:  n.config.Limits.ColdReads,
		Registerer: n.figures,
		Logger:     n.log,
	})
	return err
}

// untold is why no process that only answers may answer by this generation: it is kept,
// and does not serve. One that knows of generations does not ask; an earlier version would
// go on with what served before.
func (n *generation) untold() error {
	if n.rebuilds.set().Kept == n.number {
		return fmt.Errorf("generation %d does not serve any more: a version that knows of generations is needed", n.number)
	}
	return nil
}

// serveAll answers everybody. ready tells why nothing can be asked, nil: it can.
// If this process answers already, it is answered anew before the one before
// stops.
func (n *generation) serveAll(counted *spread.Counted, ready func() error) error {
	before, err := n.answer(counted, ready)
	if err == nil {
		n.stopAnswers(before)
	}
	return err
}

// recentShare is how much of memory.budget the posts of authors of other nodes take
// at most, beside it, as one part in so many.
const recentShare = 128

// answer has everybody be answered anew, and gives what answered before: it does so
// still.
func (n *generation) answer(counted *spread.Counted, ready func() error) (before *answers, err error) {
	a := &answers{
		directory: &directory{view: n.view, own: n.own(), lags: n.behind.Load, me: n.name, shards: counted.Shards},
		registry:  prometheus.NewRegistry(),
	}
	a.reader, err = spread.New(n.queries, spread.Options{
		Schema:     counted.Schema,
		Directory:  a.directory,
		Generation: n.number,
		ColdReads:  n.config.Limits.ColdReads,
		Recent:     int(n.config.Memory.Budget / recentShare),
		Fresh:      n.fresh,
		Wait:       n.freshnessWait,
		Silent:     n.unheardFor,
		Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	o := query.Options{
		Schema:  counted.Schema,
		Types:   counted.Types,
		Reader:  a.reader,
		Cluster: clusterView{n.name, n.view, n.unheardFor},
		Limits: query.Limits{
			IDs:        n.config.Limits.IDs,
			Requests:   n.config.Limits.Requests,
			Processors: n.o.Processors,
			ColdReads:  n.config.Limits.ColdReads,
			Timeout:    n.config.Limits.Timeout,
			TimeoutMax: n.config.Limits.TimeoutMax,
		},
		Refuses:    n.refuses,
		Fresh:      n.fresh,
		Slow:       query.Slow(n.config.Slow),
		Stats:      n.stats,
		Ready:      ready,
		Shards:     counted.Shards,
		Version:    n.o.Version,
		Registerer: a.registry,
		Logger:     n.log,
		Metadata:   map[string]string{"node": n.name},
	}
	if n.explainer != nil {
		o.Explainer, o.ExplainAlone = n.explainer, !n.config.Has(config.RoleAnswer)
	}
	if n.streams != nil { // of a system that is there
		o.Publisher, o.LogEnd = jetlog.NewReads(n.streams), n.logEnd
	}
	if a.service, err = query.New(n.queries, o); err != nil {
		return nil, errors.Join(err, a.reader.Close())
	}
	return n.answers.Swap(a), nil
}

// stopAnswers has what answered before answer what has arrived, and stop.
func (n *Node) stopAnswers(before *answers) {
	ctx, cancel := context.WithTimeout(n.ctx, drainWithin)
	defer cancel()
	if err := before.stop(ctx); err != nil && n.ctx.Err() == nil {
		n.log.Warn("tidemark: requests may be unanswered: what answered them stopped late", "error", err)
	}
}

// stop answers what has arrived, and then nothing more.
func (a *answers) stop(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return errors.Join(a.service.Stop(ctx), a.reader.Close())
}

// unheardFor is for how long nothing has been heard of any node, this one included.
func (n *generation) unheardFor() time.Duration {
	if members := n.watched.Load(); members != nil {
		return members.Silent()
	}
	return 0
}

func (n *generation) logEnd(ctx context.Context) (sequence uint64, err error) {
	state, err := n.streams.State(ctx, jetlog.EventsStream)
	return state.Last, err
}

// own is what this process holds; nil: nothing, ever.
func (n *generation) own() query.Holder {
	if !n.config.Has(config.RoleHold) {
		return nil
	}
	return n.sinks
}

// view is what is known of the members; there are none before this process has
// joined.
func (n *generation) view() *cluster.View {
	if m := n.watched.Load(); m != nil {
		return m.View()
	}
	return &cluster.View{Degrade: cluster.Normal}
}

// asked says why others cannot be asked, of a process that holds nothing
// itself.
func (n *generation) asked() error {
	if a := n.answers.Load(); a != nil && n.own() == nil && a.directory.held() == 0 {
		return errNobody
	}
	return nil
}

// register makes the figures of the process, those of what answers excepted.
func (n *Node) register() {
	registerProcess(n.registry)
	c := &collector{look: func() {}}
	n.generationFigures(c)
	n.registry.MustRegister(c)
}

// Gather implements prometheus.Gatherer: the figures of the process and of
// what answers.
func (n *Node) Gather() ([]*dto.MetricFamily, error) {
	g, done := n.use()
	defer done()
	all := prometheus.Gatherers{n.registry, g.figures}
	if a := n.answers.Load(); a != nil {
		all = append(all, a.registry)
	}
	return all.Gather()
}
