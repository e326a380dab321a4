// Package figures shows numbers that a process counts as metrics of Prometheus.
//
// A [Collector] has functions that read the numbers where they are counted. They are called
// at each scrape, one scrape at a time; nothing is counted twice. Names begin with tidemark_,
// which the Collector adds.
package figures

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// figure is one metric: described once, read at each scrape.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(emit func(value float64, labels ...string))
}

// Collector reads figures when they are asked for, from where they are counted. It
// implements prometheus.Collector. Figures are added before it is registered.
type Collector struct {
	mu      sync.Mutex // one scrape at a time
	Look    func()     // called once a scrape, before the figures: reads what several of them share
	figures []figure
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Look()
	for _, f := range c.figures {
		f.value(func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
		})
	}
}

// Add adds a figure with labels: value calls emit once for each set of labels.
func (c *Collector) Add(kind prometheus.ValueType, name, help string, labels []string, value func(emit func(float64, ...string))) {
	c.figures = append(c.figures, figure{prometheus.NewDesc("tidemark_"+name, help, labels, nil), kind, value})
}

// Counter adds a figure that only grows.
func (c *Collector) Counter(name, help string, value func() float64) {
	c.Add(prometheus.CounterValue, name, help, nil, func(emit func(float64, ...string)) { emit(value()) })
}

// Gauge adds a figure that goes up and down.
func (c *Collector) Gauge(name, help string, value func() float64) {
	c.Add(prometheus.GaugeValue, name, help, nil, func(emit func(float64, ...string)) { emit(value()) })
}

// Steps adds a figure that is 1 for the step that is returns, and 0 for all others.
func (c *Collector) Steps(name, help string, all []string, is func() string) {
	c.Add(prometheus.GaugeValue, name, help, []string{"step"}, func(emit func(float64, ...string)) {
		now := is()
		for _, step := range all {
			value := 0.0
			if step == now {
				value = 1
			}
			emit(value, step)
		}
	})
}
