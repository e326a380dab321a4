package service

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's own figures. Every series exists from the start,
// so a rate never misses its first step and no label is looked up on the way.
type metrics struct {
	inFlight prometheus.Gauge
	ids      prometheus.Observer

	cold, coldRefused        prometheus.Counter
	far, farRefused          prometheus.Counter
	diskEntries, diskSeconds prometheus.Counter
	slow, misdirected        prometheus.Counter
	stale, missing           prometheus.Counter // answers that are not whole
}

// series is one endpoint's part: a histogram and a count for each code.
type series struct {
	seconds [len(codes)]prometheus.Observer
	answers [len(codes)]atomic.Uint64
	took    atomic.Int64 // of all answers, in nanoseconds
}

func newMetrics(r prometheus.Registerer, endpoints []*endpoint, l lanes) (*metrics, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tidemark_query_seconds",
		Help:    "Time from a request's arrival in this process to its answer, waiting for min_position included.",
		Buckets: []float64{20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 200e-3, 1, 5},
	}, []string{"endpoint", "code"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidemark_query_in_flight",
		Help: "Requests in work, those that wait for min_position included.",
	})
	ids := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tidemark_query_ids",
		Help:    "Ids in one request.",
		Buckets: []float64{1, 10, 50, 100, 500, 1000, 5000, 10000},
	})
	coldInFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_query_cold_in_flight",
		Help: "Requests in the cold lane: those that read the disk, and those in line for that.",
	}, func() float64 { return float64(l.cold.in.Load()) })
	farInFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_query_far_in_flight",
		Help: "Places taken in the far lane: by requests that wait for other nodes, one more for each 4 KiB of one.",
	}, func() float64 { return float64(l.far.in.Load()) })
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_query_" + name, Help: help})
	}
	m := &metrics{
		inFlight:    inFlight,
		ids:         ids,
		cold:        counter("cold_total", "Requests that went to the cold lane, because a part of the answer was on disk."),
		coldRefused: counter("cold_refused_total", "Requests that were refused because the cold lane was full."),
		far:         counter("far_total", "Requests of which other nodes were asked a part."),
		farRefused:  counter("far_refused_total", "Requests that were refused because the far lane was full."),
		diskEntries: counter("disk_entries_total", "Entries read from disk for answers, those of large requests included."),
		diskSeconds: counter("disk_seconds_total", "Time that requests spent on reading the disk."),
		slow:        counter("slow_total", "Requests that took longer than slow.threshold, not counting what they waited for a position."),
		misdirected: counter("misdirected_total", "Requests that were dropped because their answer was to go to a subject that is not for answers."),
	}
	degraded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_answers_degraded_total",
		Help: "Answers that said degraded: stale, because they could be older than freshness; missing, because a part could not be read.",
	}, []string{"reason"})
	m.stale, m.missing = degraded.WithLabelValues("stale"), degraded.WithLabelValues("missing")
	for _, e := range endpoints {
		for i, c := range codes {
			e.series.seconds[i] = seconds.WithLabelValues(e.name, strconv.Itoa(int(c)))
		}
	}
	if r != nil {
		var errs []error
		for _, c := range []prometheus.Collector{
			seconds, inFlight, ids, coldInFlight, farInFlight, m.cold, m.coldRefused, m.far, m.farRefused, m.diskEntries, m.diskSeconds, m.slow, m.misdirected, degraded,
		} {
			errs = append(errs, r.Register(c))
		}
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("query: register metrics: %w", err)
		}
	}
	return m, nil
}

func (s *series) answered(c code, took time.Duration) {
	for i := range codes {
		if codes[i] == c {
			s.seconds[i].Observe(took.Seconds())
			s.answers[i].Add(1)
			s.took.Add(int64(took))
		}
	}
}

// byCode is what `nats micro stats` shows as data.
func (s *series) byCode() map[string]uint64 {
	counts := map[string]uint64{}
	for i, c := range codes {
		if n := s.answers[i].Load(); n > 0 {
			counts[strconv.Itoa(int(c))] = n
		}
	}
	return counts
}
