package spread

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/query/wire"
)

// outcome is what became of a part, as an asker sees it: a wire.Status, or what
// no node says.
type outcome int

const (
	outAnswered = outcome(wire.Answered)
	outBehind   = outcome(wire.Behind)
	outRefused  = outcome(wire.Refused)
	outGarbled  = outcome(wire.Garbled)
	outNobody   = outGarbled + 1 // no server on the subject
	outLate     = outGarbled + 2 // not in time
	outUnsent   = outGarbled + 3 // the link has no room, or the connection is gone

	outcomesCount = int(outUnsent) + 1
)

// statuses are the words for wire.Status in metrics.
var statuses = [...]string{"answered", "elsewhere", "stopped", "behind", "busy", "refused", "failed", "damaged"}

// outcomes are the words for outcome.
var outcomes = append(statuses[:len(statuses):len(statuses)], "no_responders", "late", "unsent")

// readerMetrics are an asker's figures. Every series exists from the start.
type readerMetrics struct {
	batches          prometheus.Counter
	bytes            prometheus.Counter
	parts            [outcomesCount]prometheus.Counter
	retries, damaged prometheus.Counter
	missing          prometheus.Counter
	recent           [2]prometheus.Counter // known, asked
}

func newReaderMetrics(r prometheus.Registerer, of *Reader) (*readerMetrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_nodes_" + name, Help: help})
	}
	parts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_nodes_parts_total",
		Help: "Parts of requests that other nodes were asked, by what became of them.",
	}, []string{"result"})
	m := &readerMetrics{
		batches: counter("requests_total", "Requests sent to other nodes, each with the parts that had gathered."),
		bytes:   counter("request_bytes_total", "Bytes of these requests."),
		retries: counter("retries_total", "Parts that were asked again, of another node where there was one."),
		damaged: counter("damaged_total", "Answers of other nodes that came damaged; they were asked again."),
		missing: counter("missing_total", "Ids, users and followees that no node answered for."),
	}
	for i, name := range outcomes {
		m.parts[i] = parts.WithLabelValues(name)
	}
	recent := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_nodes_recent_total",
		Help: "Followees of other nodes who may have posted since a feed was read, by whether their newest posts were known to this process, or asked for.",
	}, []string{"result"})
	for i, name := range [...]string{"known", "asked"} {
		m.recent[i] = recent.WithLabelValues(name)
	}
	recentBytes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_nodes_recent_bytes",
		Help: "Memory for the newest posts of authors whom other nodes hold.",
	}, func() float64 { return float64(of.recent.Bytes()) })
	return m, register(r, parts, m.batches, m.bytes, m.retries, m.damaged, m.missing, recent, recentBytes)
}

// batchResult is what a Server did with a batch.
type batchResult int

const (
	batchTaken batchResult = iota
	batchBusy
	batchRefused
	batchDamaged
	batchMisdirected
	batchResults
)

var batchWords = [batchResults]string{"taken", "busy", "refused", "damaged", "misdirected"}

// serverMetrics are a holder's figures.
type serverMetrics struct {
	batches [batchResults]prometheus.Counter
	parts   [wire.Kinds][len(statuses)]prometheus.Counter // [0] is of kinds that are not known
	cold    prometheus.Counter
}

func newServerMetrics(r prometheus.Registerer, s *Server) (*serverMetrics, error) {
	batches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_hold_requests_total",
		Help: "Requests of other nodes, by what was done with them.",
	}, []string{"result"})
	parts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_hold_parts_total",
		Help: "Parts of these requests, by what they asked and what was answered.",
	}, []string{"kind", "result"})
	m := &serverMetrics{cold: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidemark_hold_cold_total", Help: "Reads of the disk for other nodes.",
	})}
	for i, word := range batchWords {
		m.batches[i] = batches.WithLabelValues(word)
	}
	for kind := range wire.Kinds {
		name := kind.String()
		if kind == 0 {
			name = "unknown"
		}
		for i, word := range statuses {
			m.parts[kind][i] = parts.WithLabelValues(name, word)
		}
	}
	inWork := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_hold_parts_in_flight",
		Help: "Parts of other nodes' requests in work, those that wait for a position or the disk included.",
	}, func() float64 { return float64(s.parts.Load()) })
	return m, register(r, batches, parts, m.cold, inWork)
}

func (m *serverMetrics) batch(r batchResult) { m.batches[r].Inc() }

func (m *serverMetrics) part(kind wire.Kind, status wire.Status) {
	if kind >= wire.Kinds {
		kind = 0
	}
	m.parts[kind][status].Inc()
}

func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range all {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("spread: register metrics: %w", err)
	}
	return nil
}
