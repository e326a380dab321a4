package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// sustained is a long backlog of events of which no two change the same row:
// what is changed must be written while more comes. The server with the streams
// is in this process and the node in one of its own, so that the node's
// processor time and what it writes are its own.
func (b *bench) sustained(ctx context.Context) error {
	b.say("sustained: a backlog of %s events with distinct keys", number(float64(b.size.sustained)))
	drawn := newDistinct(b.size.sustained)
	l, err := openBacklog(ctx, filepath.Join(b.dir, "sustained"), b.size.sustained, packed, drawn.event)
	if err != nil {
		return err
	}
	defer l.close()
	decoding := newDecoding(b.size.sustained)
	decoded, err := decoding.run(nil)
	if err != nil {
		return err
	}
	reading, err := l.bare(ctx)
	if err != nil {
		return err
	}
	p, err := b.prepareOn(ctx, l.server.URL(), fmt.Sprintf("log: {level: error}\nnats: {url: %q}\n", l.server.URL()))
	if err != nil {
		return err
	}
	defer p.discard()
	r, err := p.ingestAll(ctx, l)
	if err != nil {
		return err
	}
	if decoded, err = decoding.run(decoded); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	schema, err := c.Schema(ctx)
	if err != nil {
		return err
	}
	all, rows := drawn.rows(), 0
	for _, n := range all {
		rows += n
	}
	if err := counted(p, rows); err != nil {
		return err
	}
	events, changed := float64(l.events), float64(packedBytes(schema, all, drawn.posts()))
	b.say("sustained: %s a second, the lowest second %s", number(l.rate(r.took)), number(slices.Min(r.seconds)))

	what := fmt.Sprintf("ingest, %s events with distinct keys", number(events))
	b.table.add(line{
		what: what, unit: "events/s", ours: sample{l.rate(r.took)}, among: r.seconds,
		beside: "a bare ordered consumer", theirs: sample{l.rate(reading)}, target: atLeast(sustainedRate),
	})
	b.table.add(line{
		what: "the same, its lowest second", unit: "events/s", ours: sample{slices.Min(r.seconds)}, among: r.seconds,
		beside: "its median second", theirs: sample{r.seconds.median()}, target: atLeast(sustainedRate / 2),
	})
	b.table.add(line{
		what: "the same, processor time for an event", unit: "µs", ours: sample{r.busy.Seconds() * 1e6 / events},
		beside: "encoding/json, decoding it once", theirs: sample{decoded.median()}, target: ratioAtMost(1),
	})
	b.table.add(line{
		what: "the same, on disk for an event", unit: "bytes", ours: sample{r.disk / events},
		beside: "the event, as JSON", theirs: sample{decoding.bytes()},
	})
	b.table.add(line{
		what: "the same, on disk for a changed row", unit: "bytes", ours: sample{r.disk / float64(rows)},
		beside: "the row, packed", theirs: sample{changed / float64(rows)},
	})
	if r.written > 0 {
		b.table.add(line{
			what: "the same, written to disk", unit: "MiB", ours: sample{r.written / (1 << 20)},
			beside: "what changed, packed", theirs: sample{changed / (1 << 20)},
		})
	}
	b.table.note("ingest with distinct keys: they change %s rows and add %s posts to outboxes, %s µs of processor time a row. Of %s µs for an event %s were spent when the last was answered, and all %s s later, with the store at rest at %s MiB. In the first two lines, rounds are seconds.",
		number(float64(rows)), number(float64(drawn.posts())), number(r.busy.Seconds()*1e6/float64(rows)), number(r.busy.Seconds()*1e6/events),
		number(r.busyApplied.Seconds()*1e6/events), number(r.rest.Seconds()), number(r.disk/(1<<20)))
	return nil
}

// sustainedRate is the target: so many events a second, and no second with
// less than half of it.
const sustainedRate = 1_200_000

// ingestion is what came of a backlog.
type ingestion struct {
	took              time.Duration // from the start of the process until all was answered
	seconds           sample        // events a second of each full second
	busyApplied, busy time.Duration // processor time until then, and until the store was at rest
	rest              time.Duration // from then on
	disk, written     float64       // bytes, at rest; written is 0 where the system does not tell
}

// ingestAll starts the program on a backlog and waits until it has counted all
// of it, and then has nothing left to write.
func (p *program) ingestAll(ctx context.Context, l *backlog) (r ingestion, err error) {
	if err := p.spawn(); err != nil {
		return r, err
	}
	asking := client.New(l.nc)
	watching, end := context.WithCancel(ctx)
	defer end()
	var seen []sight
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		seen = watchApplied(watching, asking)
	}()
	err = p.until(ctx, "wait for the first answer", time.Millisecond, func() error { return applied(ctx, asking, 0) })
	if err != nil {
		return r, err
	}
	if err := applied(ctx, asking, pipeline.EndOf(uint64(l.messages))); err != nil {
		return r, err
	}
	r.took, r.busyApplied = time.Since(p.begun), p.busy()
	end()
	<-watched
	if r.seconds = rates(append(seen, sight{p.begun.Add(r.took), l.events}), time.Second); len(r.seconds) == 0 {
		r.seconds = sample{l.rate(r.took)} // it took less than one
	}
	if r.disk, err = p.rest(ctx); err != nil {
		return r, err
	}
	r.rest, r.busy = time.Since(p.begun)-r.took, p.busy()
	r.written, _ = p.written()
	return r, nil
}

// sight is how many events were applied at a time.
type sight struct {
	at     time.Time
	events int
}

// watchApplied looks until ctx ends. An answer is as of the shard that is
// furthest behind of those asked, so it asks all of them: once in 50 ms, which
// costs next to nothing.
func watchApplied(ctx context.Context, c *client.Client) (seen []sight) {
	const every = 50 * time.Millisecond
	ids := idOfEachShard()
	for tick := time.NewTicker(every); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return seen
		}
		reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns[likesAt:]})
		if err == nil { // not while the node starts
			seen = append(seen, sight{time.Now(), eventsUpTo(reply.AsOf)})
		}
	}
}

// idOfEachShard are the lowest ids that are in different shards.
func idOfEachShard() []uint64 {
	ids := make([]uint64, defaultShards)
	for left, id := len(ids), uint64(1); left > 0; id++ {
		if at := &ids[pipeline.ShardOf(id, defaultShards)]; *at == 0 {
			*at = id
			left--
		}
	}
	return ids
}

// eventsUpTo is how many events of full packs there are up to a position.
func eventsUpTo(at pipeline.Position) int {
	if at == 0 {
		return 0
	}
	return int(at.Sequence()-1)*packed + min(at.Line()+1, packed)
}

// rates are the events a second of each full stretch of that length, from the
// first sight of any event on. Between two sights they are taken to come
// evenly.
func rates(seen []sight, each time.Duration) (s sample) {
	begin := slices.IndexFunc(seen, func(one sight) bool { return one.events > 0 })
	if begin < 0 {
		return nil
	}
	from := seen[begin]
	before, due := float64(from.events), from.at.Add(each)
	for last, i := from, begin+1; i < len(seen); i++ {
		now := seen[i]
		for !due.After(now.at) {
			events := float64(last.events)
			if span := now.at.Sub(last.at); span > 0 {
				events += float64(now.events-last.events) * due.Sub(last.at).Seconds() / span.Seconds()
			}
			s = append(s, (events-before)/each.Seconds())
			before, due = events, due.Add(each)
		}
		last = now
	}
	return s
}

// counted fails unless the program's rows are as many as the events change, as
// far as all of them are in memory.
func counted(p *program, rows int) error {
	figures, err := p.figures()
	if err != nil {
		return err
	}
	held := 0.0
	for _, counter := range []string{"post", "user", "unread"} {
		held += figures[fmt.Sprintf("tidemark_rows{counter=%q}", counter)]
	}
	if evicted := figures["tidemark_evictions_total"]; evicted == 0 && int(held) != rows {
		return fmt.Errorf("%v rows are in memory and none was evicted, the events change %d", held, rows)
	}
	return nil
}

// decoding is what encoding/json makes of events: the price of one is the
// measure of what counting it costs.
type decoding struct{ bodies [][]byte }

// decodingMost is how many different events are decoded in turn.
const decodingMost = 1 << 17

func newDecoding(events int) *decoding {
	drawn := newDistinct(events)
	d := &decoding{make([][]byte, min(events, decodingMost))}
	for i := range d.bodies {
		_, d.bodies[i] = drawn.event(nil)
	}
	return d
}

// bytes is the size of an event.
func (d *decoding) bytes() float64 {
	return float64(len(bytes.Join(d.bodies, nil))) / float64(len(d.bodies))
}

// decodedEvent has all fields of the events here.
type decodedEvent struct {
	Type     string `json:"type"`
	Actor    uint64 `json:"actor"`
	Post     uint64 `json:"post"`
	RepostOf uint64 `json:"repost_of"`
	Author   uint64 `json:"author"`
	Target   uint64 `json:"target"`
	At       int64  `json:"at"`
}

// run decodes for a while, and appends the processor time of one, in µs: that
// of this process, in which everything else rests for that time.
func (d *decoding) run(s sample) (sample, error) {
	const during = time.Second / 2
	n, before := 0, processorTime()
	for begun := time.Now(); time.Since(begun) < during; {
		for range 1000 {
			var e decodedEvent
			if err := json.Unmarshal(d.bodies[n%len(d.bodies)], &e); err != nil {
				return nil, err
			}
			if e.Actor == 0 || e.At == 0 {
				return nil, fmt.Errorf("%s: decoded as %+v", d.bodies[n%len(d.bodies)], e)
			}
			n++
		}
	}
	return append(s, (processorTime()-before).Seconds()*1e6/float64(n)), nil
}

// processorTime is what this process has taken.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		fmt.Fprintln(os.Stderr, "bench: getrusage:", err)
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
