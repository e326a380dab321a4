package counting

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// looked is what figures of one scrape share.
type looked struct {
	shards   []shard.Stats
	counters []shard.CounterStats
	columns  []shard.ColumnStats
	probes   []sinks.Probe
}

// showFigures has the figures of a generation shown from now on.
func (g *Generation) showFigures() { g.figures.MustRegister(newCollector(g)) }

// Registry has the figures of a generation.
func (g *Generation) Registry() *prometheus.Registry { return g.figures }

func newCollector(g *Generation) *figures.Collector {
	c := &figures.Collector{Look: func() {}}
	if g.sinks != nil {
		g.heldFigures(c)
	}
	g.ladderFigures(c)
	c.Gauge("ready", "1 when /readyz says ok.", func() float64 {
		if g.host.Ready() != nil {
			return 0
		}
		return 1
	})
	c.Gauge("lease_seconds", "For how long this process may still give answers that are not degraded, by when it last heard where EVENTS ends; 0: it may not.", func() float64 {
		return g.fresh.Left().Seconds()
	})
	c.Add(prometheus.GaugeValue, "info", "1; the labels say what runs.", []string{"version", "node"}, func(emit func(float64, ...string)) {
		emit(1, g.Version, g.Name)
	})
	return c
}

// heldFigures are those of a process that does more than answer: of the router,
// of what it holds and of the streams.
func (g *Generation) heldFigures(c *figures.Collector) {
	l := new(looked)
	c.Look = func() {
		l.shards = g.sinks.ShardStats()
		l.counters, l.columns = sinks.CounterStats(g.sinks.Schema(), l.shards), sinks.ColumnStats(g.sinks.Schema(), l.shards)
		l.probes = l.probes[:0]
		for counter := range g.sinks.Schema().Counters {
			l.probes = append(l.probes, g.sinks.Probe(counter))
		}
	}
	g.routerFigures(c)
	g.stateFigures(c)
	g.counterFigures(c, l)
	g.memoryFigures(c, l)
	g.streamFigures(c)
	g.auditFigures(c)
	g.backups.Figures(c)
	g.explainFigures(c)
	c.Counter("unread_followees_elsewhere_total", "Followees in unread polls whom other nodes hold.", func() float64 {
		return float64(g.sinks.Stats.Elsewhere.Load())
	})
	c.Counter("unread_followees_quiet_total", "Followees whom other nodes hold and nobody was asked for: they have posted nothing since.", func() float64 {
		return float64(g.sinks.Stats.Quiet.Load())
	})
	c.Counter("left_on_disk_total", "Rows, users, lists and outboxes that were missing from answers because reads were from memory only.", func() float64 {
		return float64(g.sinks.Stats.Left.Load())
	})
}

func (g *Generation) routerFigures(c *figures.Collector) {
	s := &g.router.Stats
	load := func(a interface{ Load() uint64 }) func() float64 {
		return func() float64 { return float64(a.Load()) }
	}
	c.Gauge("router_active", "1 while this process routes, 0 while it stands by.", func() float64 {
		if s.Active.Load() {
			return 1
		}
		return 0
	})
	c.Counter("messages_total", "Messages read from EVENTS by this router.", load(&s.Messages))
	c.Counter("events_total", "Events routed: understood and counted.", load(&s.Events))
	c.Counter("windows_total", "Windows appended to DELTAS.", load(&s.Windows))
	c.Counter("window_bytes_total", "Bytes of windows appended to DELTAS.", load(&s.Bytes))
	c.Counter("changes_total", "Changes of cells derived, before merging.", load(&s.Changes))
	c.Counter("changes_merged_total", "Changes of cells in windows, after merging.", load(&s.Merged))
	c.Gauge("merge_factor", "Changes derived for each one in a window, since the start.", func() float64 {
		return float64(s.Changes.Load()) / math.Max(1, float64(s.Merged.Load()))
	})
	c.Gauge("routed_position", "End of the last window appended to DELTAS.", load(&s.Position))
	c.Add(prometheus.CounterValue, "deadletters_total", "Events kept in DEADLETTER.", []string{"reason"}, func(emit func(float64, ...string)) {
		for _, reason := range pipeline.Reasons {
			emit(float64(s.Count(reason).Load()), string(reason))
		}
	})
}

func (g *Generation) stateFigures(c *figures.Collector) {
	s := &g.sinks.Stats
	c.Counter("windows_applied_total", "Windows handed to the shards.", func() float64 { return float64(s.Windows.Load()) })
	c.Gauge("applied_position", "Every answer reflects all events up to here.", func() float64 { return float64(g.sinks.Applied()) })
	c.Gauge("lag_messages", "Messages of EVENTS not yet applied.", func() float64 {
		return math.Max(0, float64(g.state.Load().Events.Last)-float64(g.sinks.Applied().Sequence()))
	})
	c.Gauge("lag_seconds", "How long the oldest event not yet applied has been seen waiting.", func() float64 {
		lag, _ := g.seen.lag(time.Now(), g.sinks.Applied().Sequence())
		return lag.Seconds()
	})
	c.Counter("checkpoints_total", "Commits of checkpoints: up to one a shard each checkpoint.interval.", func() float64 { return float64(s.Checkpoints.Load()) })
	c.Counter("checkpoint_errors_total", "Commits of checkpoints that failed; their rows are tried again.", func() float64 { return float64(s.CheckpointErrors.Load()) })
	c.Counter("checkpoint_rows_total", "Rows written by checkpoints.", func() float64 { return float64(s.CheckpointRows.Load()) })
	c.Counter("checkpoint_seconds_total", "Time spent making and committing checkpoints; two of an owner may overlap.", func() float64 { return float64(s.CheckpointNanos.Load()) / 1e9 })
	c.Gauge("checkpoint_age_seconds", "Since the last checkpoint was committed.", func() float64 {
		return time.Since(time.UnixMilli(s.LastCheckpoint.Load())).Seconds()
	})
	c.Gauge("shards_failed", "Shards that have stopped; their ids are missing from answers.", func() float64 { return float64(g.sinks.Failed()) })
	c.Gauge("shards_coming", "Shards assigned to this node that are on their way here: from another node, or derived from EVENTS.", func() float64 {
		coming, _ := g.holdings.figures()
		return float64(coming)
	})
	c.Counter("shards_retaken_total", "Times that a shard that had stopped was given up to be taken again from another node.", func() float64 {
		_, healed := g.holdings.figures()
		return float64(healed)
	})
	c.Counter("shards_given_up_total", "Shards that were given up because they are assigned to other nodes, which answer for them.", func() float64 {
		g.holdings.mu.Lock()
		defer g.holdings.mu.Unlock()
		return float64(g.holdings.given)
	})
	c.Gauge("shards_spare", "Shards that were given up and are still stored.", func() float64 {
		shards, _ := g.spareFigures()
		return float64(shards)
	})
	c.Gauge("shards_spare_bytes", "Bytes that these take on disk.", func() float64 {
		_, bytes := g.spareFigures()
		return float64(bytes)
	})
	g.diskFigures(c)
}

// diskFigures are those of what is on disk: runs, merges, Badger.
func (g *Generation) diskFigures(c *figures.Collector) {
	s := &g.store.Stats
	c.Counter("checkpoint_bytes_total", "Bytes of runs that checkpoints wrote.", func() float64 { return float64(s.CheckpointBytes.Load()) })
	c.Counter("merges_total", "Merges of runs done.", func() float64 { return float64(s.Merges.Load()) })
	c.Counter("merge_errors_total", "Merges of runs that failed; they are tried again.", func() float64 { return float64(s.MergeErrors.Load()) })
	c.Counter("merge_bytes_total", "Bytes of runs that merges wrote.", func() float64 { return float64(s.MergeBytes.Load()) })
	c.Counter("merge_seconds_total", "Time that merges took, their rests included.", func() float64 { return float64(s.MergeNanos.Load()) / 1e9 })
	c.Counter("run_lookups_total", "Keys looked up in a run, because its filter let them through.", func() float64 { return float64(s.Lookups.Load()) })
	c.Counter("run_lookups_nothing_total", "Of these, keys that the run does not have.", func() float64 { return float64(s.LookupsNothing.Load()) })
	c.Gauge("runs", "Runs of all shards on disk.", func() float64 { all, _ := g.store.Runs(); return float64(all) })
	c.Gauge("runs_most", "Runs of the shard that has most.", func() float64 { _, most := g.store.Runs(); return float64(most) })
	c.Gauge("run_bytes", "Bytes of runs on disk.", func() float64 { return float64(g.store.RunBytes()) })
	c.Gauge("run_index_bytes", "Memory of the indexes and filters of runs, within memory.budget.", func() float64 { return float64(g.store.Memory()) })
	c.Add(prometheus.GaugeValue, "badger_bytes", "Bytes on disk of Badger, which has the lists of runs.", []string{"part"}, func(emit func(float64, ...string)) {
		tables, log := g.store.Sizes()
		emit(float64(tables), "tables")
		emit(float64(log), "log")
	})
}

// counterFigures are those of each counter and each column.
func (g *Generation) counterFigures(c *figures.Collector, l *looked) {
	schema := g.sinks.Schema()
	each := func(kind prometheus.ValueType, name, help string, of func(counter int, s shard.CounterStats) float64) {
		c.Add(kind, name, help, []string{"counter"}, func(emit func(float64, ...string)) {
			for i, s := range l.counters {
				emit(of(i, s), schema.Counters[i].Name)
			}
		})
	}
	each(prometheus.GaugeValue, "rows", "Counter rows in memory.", func(_ int, s shard.CounterStats) float64 { return float64(s.Rows) })
	each(prometheus.GaugeValue, "row_bytes", "Memory of counter rows, free places included.", func(_ int, s shard.CounterStats) float64 { return float64(s.Bytes) })
	each(prometheus.GaugeValue, "row_cached", "Rows in memory that were read from disk and not written since.", func(_ int, s shard.CounterStats) float64 { return float64(s.Cached) })
	each(prometheus.GaugeValue, "row_dirty", "Rows changed since they were last handed to a checkpoint.", func(_ int, s shard.CounterStats) float64 { return float64(s.Dirty) })
	each(prometheus.CounterValue, "row_gets_total", "Rows asked for.", func(_ int, s shard.CounterStats) float64 { return float64(s.Gets) })
	each(prometheus.CounterValue, "row_hits_total", "Rows asked for whose answer, or absence, was known in memory.", func(_ int, s shard.CounterStats) float64 { return float64(s.Hits) })
	each(prometheus.CounterValue, "row_misses_total", "Rows asked for that were not in memory.", func(_ int, s shard.CounterStats) float64 { return float64(s.Cold) })
	each(prometheus.CounterValue, "row_cold_reads_total", "Rows read from disk to answer.", func(_ int, s shard.CounterStats) float64 { return float64(s.Reads) })
	each(prometheus.CounterValue, "row_errors_total", "Reads of rows that the disk refused.", func(_ int, s shard.CounterStats) float64 { return float64(s.Errors) })
	each(prometheus.CounterValue, "row_evictions_total", "Rows evicted from memory.", func(_ int, s shard.CounterStats) float64 { return float64(s.Evictions) })
	each(prometheus.CounterValue, "row_sets_total", "Changes of cells applied.", func(i int, _ shard.CounterStats) float64 {
		sum := uint64(0)
		for _, column := range l.columns[schema.Counters[i].First:][:schema.Counters[i].Count] {
			sum += column.Sets
		}
		return float64(sum)
	})
	probe := func(name, help string, of func(p sinks.Probe) float64) {
		each(prometheus.GaugeValue, name, help, func(i int, _ shard.CounterStats) float64 { return of(l.probes[i]) })
	}
	probe("row_load", "Rows for each place in the tables.", func(p sinks.Probe) float64 { return p.Load })
	probe("row_probe_mean", "How far a row stands from its home, in places; of a sample.", func(p sinks.Probe) float64 { return p.Mean })
	probe("row_probe_longest", "The farthest that a row stands from its home, in places; of a sample.", func(p sinks.Probe) float64 { return float64(p.Longest) })

	column := func(kind prometheus.ValueType, name, help string, of func(s shard.ColumnStats) float64) {
		c.Add(kind, name, help, []string{"counter", "column"}, func(emit func(float64, ...string)) {
			for i, s := range l.columns {
				emit(of(s), schema.Counters[schema.Columns[i].Counter].Name, schema.Columns[i].Name)
			}
		})
	}
	column(prometheus.CounterValue, "column_sets_total", "Changes of cells applied.", func(s shard.ColumnStats) float64 { return float64(s.Sets) })
	column(prometheus.GaugeValue, "column_escapes", "Cells that do not fit the column's bits and stand beside the row.", func(s shard.ColumnStats) float64 { return float64(s.Escapes) })
	column(prometheus.CounterValue, "column_saturated_total", "Changes that left a cell at the end of 63 bits.", func(s shard.ColumnStats) float64 { return float64(s.Saturated) })
	c.Counter("saturated_total", "Changes that left a cell at the end of 63 bits, of all columns.", func() float64 {
		sum := uint64(0)
		for _, s := range l.columns {
			sum += s.Saturated
		}
		return float64(sum)
	})
}

// memoryFigures are those of what shards hold, and of what they leave to the disk.
func (g *Generation) memoryFigures(c *figures.Collector, l *looked) {
	sum := func(kind prometheus.ValueType, name, help string, of func(s shard.Stats) float64) {
		c.Add(kind, name, help, nil, func(emit func(float64, ...string)) {
			total := 0.0
			for _, s := range l.shards {
				total += of(s)
			}
			emit(total)
		})
	}
	c.Gauge("memory_budget_bytes", "What memory.budget leaves to the shards.", func() float64 { return float64(g.memory.Load()) })
	c.Gauge("memory_bytes", "Memory of what the shards and the channels hold, of the indexes of runs, and of explanations.", func() float64 { return float64(g.sinks.Resident()) })
	sum(prometheus.CounterValue, "evictions_total", "Rows, users, outboxes and members evicted from memory.", func(s shard.Stats) float64 { return float64(s.Evictions) })
	sum(prometheus.GaugeValue, "rows_dirty", "Rows and entries changed since their last checkpoint, of all shards.", func(s shard.Stats) float64 { return float64(s.Dirty) })
	sum(prometheus.GaugeValue, "shards_whole", "Shards of which nothing is on disk only, but for members of sets, which have prints.", func(s shard.Stats) float64 {
		if s.Whole {
			return 1
		}
		return 0
	})
	c.Gauge("shards_warmed", "Shards that have been loaded since the start, as far as the budget allows.", func() float64 {
		loaded, _ := g.sinks.Warmth()
		return float64(loaded)
	})
	c.Counter("checkpoints_forced_total", "Rounds of checkpoints begun before their time or hastened: a shard held as many changed rows as it may, or memory was over its budget.", func() float64 {
		return float64(g.sinks.Stats.CheckpointsForced.Load())
	})
	entries := func(name, help string, of func(s shard.Stats) [4]int) {
		c.Add(prometheus.GaugeValue, name, help, []string{"kind"}, func(emit func(float64, ...string)) {
			var sums [4]int
			for _, s := range l.shards {
				for i, n := range of(s) {
					sums[i] += n
				}
			}
			for i, kind := range []string{"users", "authors", "edges", "members"} {
				emit(float64(sums[i]), kind)
			}
		})
	}
	entries("entries", "Entries in memory besides counter rows: users with marks and followees, authors with posts, prints of followers and of members of columns' sets.", func(s shard.Stats) [4]int {
		return [4]int{s.Users, s.Authors, s.Edges, s.Members}
	})
	entries("entry_bytes", "Memory of those entries.", func(s shard.Stats) [4]int {
		return [4]int{s.UserBytes, s.OutboxBytes, s.EdgeBytes, s.MemberBytes}
	})
	c.Gauge("channels", "Channels.", func() float64 { channels, _ := g.sinks.Channels(); return float64(channels) })
	c.Gauge("notice_bytes", "Memory of the channels and their notices.", func() float64 { return float64(g.sinks.ChannelBytes()) })
	c.Add(prometheus.CounterValue, "notices_passed_over_total", "Notices beyond limits.channels, which are passed over, and the oldest ones of a full channel (limits.notices), which are taken out.",
		[]string{"bound"}, func(emit func(float64, ...string)) {
			unopened, replaced := g.sinks.PassedOver()
			emit(float64(unopened), "channels")
			emit(float64(replaced), "notices")
		})
	c.Gauge("notices", "Live notices of all channels.", func() float64 { _, notices := g.sinks.Channels(); return float64(notices) })
}

func (g *Generation) streamFigures(c *figures.Collector) {
	each := func(of func(jetlog.StreamState) float64) func(emit func(float64, ...string)) {
		return func(emit func(float64, ...string)) {
			s := g.state.Load()
			for _, state := range []jetlog.StreamState{s.Events, s.Deltas, s.DeadLetters} {
				emit(of(state), state.Name)
			}
		}
	}
	label := []string{"stream"}
	c.Add(prometheus.GaugeValue, "stream_bytes", "Bytes in a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Bytes) }))
	c.Add(prometheus.GaugeValue, "stream_bytes_max", "The configured limit of a stream.", label, func(emit func(float64, ...string)) {
		streams := g.Config.NATS.Streams
		emit(float64(streams.Events.MaxBytes), jetlog.EventsStream)
		emit(float64(streams.Deltas.MaxBytes), g.Slot.Deltas())
		emit(float64(streams.DeadLetter.MaxBytes), jetlog.DeadLetterStream)
	})
	c.Gauge("events_damaged_messages", "Messages that EVENTS lacks between others: a disk has lost them.", func() float64 { return float64(g.SeenEvents().Damaged.Messages()) })
	c.Counter("events_purged_total", "Messages that went from the beginning of EVENTS before max_age.", func() float64 { return float64(g.front.gone()) })
	stats := g.streams.Stats()
	c.Add(prometheus.CounterValue, "deltas_damaged_total", "Times that a message was found in DELTAS that is no window: DELTAS is derived again.", label, func(emit func(float64, ...string)) {
		emit(float64(stats.NoWindow.Load()), g.Slot.Deltas())
	})
	c.Add(prometheus.CounterValue, "streams_remade_total", "Times that this node recreated a stream that was deleted, emptied or damaged.", label, func(emit func(float64, ...string)) {
		for _, name := range []string{g.Slot.Deltas(), jetlog.DeadLetterStream, jetlog.BucketStream} {
			emit(float64(stats.Remade(name)), name)
		}
	})
	c.Add(prometheus.GaugeValue, "stream_messages", "Messages in a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Messages) }))
	c.Add(prometheus.GaugeValue, "stream_last_sequence", "The newest message of a stream, at the last look.", label, each(func(s jetlog.StreamState) float64 { return float64(s.Last) }))
}
