package node

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// registerProcess adds the figures of the process and the Go runtime.
func registerProcess(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// figure is one of the node's own metrics: described once, read at each scrape.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(emit func(value float64, labels ...string))
}

// collector reads the node's figures when they are asked for; nothing is
// counted twice.
type collector struct{ figures []figure }

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		ch <- f.desc
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, f := range c.figures {
		f.value(func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
		})
	}
}

func (c *collector) add(kind prometheus.ValueType, name, help string, labels []string, value func(emit func(float64, ...string))) {
	c.figures = append(c.figures, figure{prometheus.NewDesc("tidemark_"+name, help, labels, nil), kind, value})
}

func (c *collector) counter(name, help string, value func() float64) {
	c.add(prometheus.CounterValue, name, help, nil, func(emit func(float64, ...string)) { emit(value()) })
}

func (c *collector) gauge(name, help string, value func() float64) {
	c.add(prometheus.GaugeValue, name, help, nil, func(emit func(float64, ...string)) { emit(value()) })
}

func newCollector(n *Node) *collector {
	c := new(collector)
	n.routerFigures(c)
	n.stateFigures(c)
	n.streamFigures(c)
	c.add(prometheus.GaugeValue, "info", "1; the labels say what runs.", []string{"version", "node"}, func(emit func(float64, ...string)) {
		emit(1, n.o.Version, n.dir.marker.Node)
	})
	return c
}

func (n *Node) routerFigures(c *collector) {
	s := &n.router.Stats
	load := func(a interface{ Load() uint64 }) func() float64 {
		return func() float64 { return float64(a.Load()) }
	}
	c.gauge("router_active", "1 while this process routes, 0 while it stands by.", func() float64 {
		if s.Active.Load() {
			return 1
		}
		return 0
	})
	c.counter("messages_total", "Messages read from EVENTS by this router.", load(&s.Messages))
	c.counter("events_total", "Events routed: understood and counted.", load(&s.Events))
	c.counter("windows_total", "Windows appended to DELTAS.", load(&s.Windows))
	c.counter("window_bytes_total", "Bytes of windows appended to DELTAS.", load(&s.Bytes))
	c.counter("changes_total", "Changes of cells derived, before merging.", load(&s.Changes))
	c.counter("changes_merged_total", "Changes of cells in windows, after merging.", load(&s.Merged))
	c.gauge("merge_factor", "Changes derived for each one in a window, since the start.", func() float64 {
		return float64(s.Changes.Load()) / math.Max(1, float64(s.Merged.Load()))
	})
	c.gauge("routed_position", "End of the last window appended to DELTAS.", load(&s.Position))
	c.add(prometheus.CounterValue, "deadletters_total", "Events kept in DEADLETTER.", []string{"reason"}, func(emit func(float64, ...string)) {
		for _, reason := range pipeline.Reasons {
			emit(float64(s.LetterCount(reason).Load()), string(reason))
		}
	})
}

func (n *Node) stateFigures(c *collector) {
	s := &n.sinks.Stats
	c.counter("windows_applied_total", "Windows handed to the shards.", func() float64 { return float64(s.Windows.Load()) })
	c.gauge("applied_position", "Every answer reflects all events up to here.", func() float64 { return float64(n.sinks.Applied()) })
	c.gauge("lag_messages", "Messages of EVENTS not yet applied.", func() float64 {
		return math.Max(0, float64(n.state.Load().Events.Last)-float64(n.sinks.Applied().Sequence()))
	})
	c.gauge("lag_seconds", "How long the oldest event not yet applied has been seen waiting.", func() float64 {
		lag, _ := n.seen.lag(time.Now(), n.sinks.Applied().Sequence())
		return lag.Seconds()
	})
	c.counter("checkpoints_total", "Checkpoints committed.", func() float64 { return float64(s.Checkpoints.Load()) })
	c.counter("checkpoint_errors_total", "Checkpoints that failed; their rows are tried again.", func() float64 { return float64(s.CheckpointErrors.Load()) })
	c.counter("checkpoint_rows_total", "Rows written by checkpoints.", func() float64 { return float64(s.CheckpointRows.Load()) })
	c.counter("checkpoint_seconds_total", "Time spent committing checkpoints.", func() float64 { return float64(s.CheckpointNanos.Load()) / 1e9 })
	c.gauge("checkpoint_age_seconds", "Since the last checkpoint was committed.", func() float64 {
		return time.Since(time.UnixMilli(s.LastCheckpoint.Load())).Seconds()
	})
	c.add(prometheus.GaugeValue, "rows", "Counter rows in memory.", []string{"counter"}, func(emit func(float64, ...string)) {
		rows := make([]int, len(n.sinks.Schema().Counters))
		for _, shard := range n.sinks.ShardStats() {
			for counter, count := range shard.Rows {
				rows[counter] += count
			}
		}
		for counter, count := range rows {
			emit(float64(count), n.sinks.Schema().Counters[counter].Name)
		}
	})
	for _, sum := range []struct {
		name, help string
		of         func(rows, dirty int, saturated uint64) float64
	}{
		{"rows_bytes", "Memory of the counter rows.", func(bytes, _ int, _ uint64) float64 { return float64(bytes) }},
		{"rows_dirty", "Rows changed since their last checkpoint.", func(_, dirty int, _ uint64) float64 { return float64(dirty) }},
		{"saturated", "Changes that left a cell at the end of 63 bits, since the start.", func(_, _ int, n uint64) float64 { return float64(n) }},
	} {
		c.gauge(sum.name, sum.help, func() (total float64) {
			for _, shard := range n.sinks.ShardStats() {
				total += sum.of(shard.Bytes, shard.Dirty, shard.Saturated)
			}
			return total
		})
	}
	c.add(prometheus.GaugeValue, "entries", "Entries in memory besides counter rows: edges by who follows and by who is followed, posts in outboxes, users with marks, channels and their live notices.", []string{"kind"}, func(emit func(float64, ...string)) {
		var following, followers, posts, users int
		for _, shard := range n.sinks.ShardStats() {
			following, followers, posts, users = following+shard.Following, followers+shard.Followers, posts+shard.Posts, users+shard.Users
		}
		channels, notices := n.sinks.Channels()
		for kind, count := range map[string]int{
			"following": following, "followers": followers, "posts": posts, "users": users, "channels": channels, "notices": notices,
		} {
			emit(float64(count), kind)
		}
	})
	c.gauge("ready", "1 when /readyz says ok.", func() float64 {
		if n.Ready() != nil {
			return 0
		}
		return 1
	})
	c.gauge("shards_failed", "Shards that have stopped; their ids are missing from answers.", func() float64 { return float64(n.sinks.Failed()) })
	c.add(prometheus.GaugeValue, "badger_bytes", "Bytes on disk.", []string{"part"}, func(emit func(float64, ...string)) {
		tables, log := n.store.Sizes()
		emit(float64(tables), "tables")
		emit(float64(log), "log")
	})
}

func (n *Node) streamFigures(c *collector) {
	each := func(of func(jetlog.StreamState) float64) func(emit func(float64, ...string)) {
		return func(emit func(float64, ...string)) {
			s := n.state.Load()
			for _, state := range []jetlog.StreamState{s.Events, s.Deltas, s.DeadLetters} {
				emit(of(state), state.Name)
			}
		}
	}
	label := []string{"stream"}
	c.add(prometheus.GaugeValue, "stream_bytes", "Bytes in a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Bytes) }))
	c.add(prometheus.GaugeValue, "stream_bytes_max", "The configured limit of a stream.", label, func(emit func(float64, ...string)) {
		streams := n.config.NATS.Streams
		emit(float64(streams.Events.MaxBytes), jetlog.EventsStream)
		emit(float64(streams.Deltas.MaxBytes), jetlog.DeltasStream)
		emit(float64(streams.DeadLetter.MaxBytes), jetlog.DeadLetterStream)
	})
	c.add(prometheus.GaugeValue, "stream_messages", "Messages in a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Messages) }))
	c.add(prometheus.GaugeValue, "stream_last_sequence", "The newest message of a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Last) }))
}

// figures are the registry's, flat, for tidemark.stats: name, or
// name{label="value"}, to number. Histograms give their count and sum.
func (n *Node) figures() map[string]any {
	families, err := n.registry.Gather()
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
