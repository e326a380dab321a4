package node

import (
	"context"
	"math"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/door"
	"github.com/tidemark-io/tidemark/query/spread"
)

// serves says that this process answers requests: all of them, or, if it only holds, those
// about events, which a process without shards cannot answer.
func (n *Node) serves() bool { return n.config.Has(config.RoleAnswer) || n.config.Has(config.RoleHold) }

// openAnswers answers, if that is a role of this process.
func (n *Node) openAnswers() error {
	n.register()
	if n.serves() {
		if err := n.serveAll(n.Serving(), nil, nil); err != nil {
			return err
		}
	}
	return n.show()
}

// show opens the doors for HTTP.
func (n *Node) show() error {
	if n.serves() {
		names := door.NewHosts(n.config.API.Listen, n.config.HTTP.Hosts)
		err := n.api.Show(door.Options{
			Now:        func() *door.Answering { return &n.answers.Load().Answering },
			Serve:      func(l net.Listener, h http.Handler) *http.Server { return n.apart.Serve(l, names.Only(h)) },
			Bodies:     int64(n.config.Limits.Bodies),
			Version:    n.o.Version,
			Registerer: n.registry,
		})
		if err != nil {
			return err
		}
	}
	n.showHTTP(n.pages())
	return nil
}

// serveAll answers everybody by a generation; counted nil: by what it counts here. ready returns why nothing can be asked;
// nil: it can. If this process answers already, what is new answers before what was
// there stops.
func (n *Node) serveAll(g *counting.Generation, counted *spread.Counted, ready func() error) error {
	before, err := n.answer(g, counted, ready)
	if err == nil {
		n.stopAnswers(before)
	}
	return err
}

// answer begins to answer everybody by a generation. It returns what answered before,
// which does so still.
func (n *Node) answer(g *counting.Generation, counted *spread.Counted, ready func() error) (before *counting.Answers, err error) {
	a, err := g.NewAnswers(counted, ready)
	if err != nil {
		return nil, err
	}
	return n.answers.Swap(a), nil
}

// stopAnswers has before answer the requests that have arrived, and stops it.
func (n *Node) stopAnswers(before *counting.Answers) {
	ctx, cancel := context.WithTimeout(n.ctx, drainWithin)
	defer cancel()
	if err := before.Stop(ctx); err != nil && n.ctx.Err() == nil {
		n.log.Warn("tidemark: requests may be unanswered: what answered them stopped late", "error", err)
	}
}

// asked returns why others cannot be asked, of a process that holds nothing
// itself.
func (n *Node) asked() error {
	if a := n.answers.Load(); a != nil {
		return a.Nobody()
	}
	return nil
}

// register makes the figures of the process, those of what answers excepted.
func (n *Node) register() {
	registerProcess(n.registry)
	c := &figures.Collector{Look: func() {}}
	n.generationFigures(c)
	c.Gauge("http_connections", "HTTP connections that are open.", func() float64 { return float64(n.servers.Connections() + n.apart.Connections()) })
	c.Counter("http_connections_refused_total", "HTTP connections that were answered 503: as many were in work as there may be.", func() float64 { return float64(n.servers.Refused.Load() + n.apart.Refused.Load()) })
	c.Counter("http_connections_displaced_total", "Silent HTTP connections that were closed for new ones.", func() float64 { return float64(n.servers.Displaced.Load() + n.apart.Displaced.Load()) })
	n.registry.MustRegister(c)
}

// Gather implements prometheus.Gatherer: the figures of the process and of
// what answers.
func (n *Node) Gather() ([]*dto.MetricFamily, error) {
	g, done := n.use()
	defer done()
	all := prometheus.Gatherers{n.registry, g.Registry()}
	if a := n.answers.Load(); a != nil {
		all = append(all, a.Registry)
	}
	return all.Gather()
}

// stats are all figures, flat, for tidemark.stats: name, or
// name{label="value"}, to number. Histograms give their count and sum.
func (n *Node) stats() map[string]any {
	families, err := n.Gather()
	out := make(map[string]any, len(families))
	if err != nil {
		n.log.Warn("metrics: gathered in part", "error", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, labels := f.GetName(), labelsOf(m)
			switch {
			case m.GetCounter() != nil:
				put(out, name+labels, m.GetCounter().GetValue())
			case m.GetGauge() != nil:
				put(out, name+labels, m.GetGauge().GetValue())
			case m.GetHistogram() != nil:
				put(out, name+"_count"+labels, float64(m.GetHistogram().GetSampleCount()))
				put(out, name+"_sum"+labels, m.GetHistogram().GetSampleSum())
			case m.GetSummary() != nil:
				put(out, name+"_count"+labels, float64(m.GetSummary().GetSampleCount()))
				put(out, name+"_sum"+labels, m.GetSummary().GetSampleSum())
			}
		}
	}
	return out
}

// put leaves out what JSON cannot say.
func put(out map[string]any, name string, v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		out[name] = v
	}
}

func labelsOf(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	s := "{"
	for i, l := range m.GetLabel() {
		if i > 0 {
			s += ","
		}
		s += l.GetName() + `="` + l.GetValue() + `"`
	}
	return s + "}"
}

// registerProcess adds the figures of the process and the Go runtime.
func registerProcess(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
