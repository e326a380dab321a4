package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	// packOf is how many events a message has, as a Packer makes them by default.
	packOf   = 256
	bare     = "a bare ordered consumer"
	decoding = "encoding/json, decoding it once"
)

// backlog is a server in this process whose EVENTS is full of events that are not counted
// yet. Each reader reads the same.
type backlog struct {
	*bench
	server           *embed.Server
	nc               *nats.Conn
	js               jetstream.JetStream
	dir              string
	pack             int // events in a message
	messages, events int
}

func (b *bench) backlog(pack int, next source) *backlog {
	dir := filepath.Join(b.dir, "backlog")
	l := &backlog{bench: b, server: startServer("127.0.0.1:0", dir), dir: dir, pack: pack, messages: b.size.backlog / pack}
	l.nc = must(jetlog.Connect(jetlog.ConnectOptions{URL: l.server.URL()}))
	must(jetlog.OpenStreams(ctx, l.nc, jetlog.StreamOptions{}))
	l.js, l.events = must(jetstream.New(l.nc)), l.messages*pack
	to := publishing(l.nc)
	for range l.messages {
		names, lines := prepared(next, pack)
		if pack > 1 {
			names[0] = "pack"
		}
		to.add(names[0], bytes.Join(lines, []byte{'\n'}))
	}
	to.wait()
	return l
}

// startServer starts a server as the program embeds it.
func startServer(address, dir string) *embed.Server {
	return must(embed.StartServer(embed.ServerOptions{
		Listen: address, StoreDir: filepath.Join(dir, "streams"),
		StoreBytesMax: jetlog.StreamOptions{}.BytesMax(), SyncInterval: 200 * time.Millisecond,
	}))
}

func (l *backlog) close() {
	l.nc.Close()
	l.server.Close()
	os.RemoveAll(l.dir)
}

// bare is how many events a second an ordered consumer reads that does nothing else: what
// the stream gives.
func (l *backlog) bare() float64 {
	runtime.GC()
	begun := time.Now()
	it := must(must(l.js.OrderedConsumer(ctx, jetlog.EventsStream, jetstream.OrderedConsumerConfig{})).Messages())
	defer it.Stop()
	for range l.messages {
		must(it.Next())
	}
	return float64(l.events) / time.Since(begun).Seconds()
}

// ingestion is what came of a backlog.
type ingestion struct {
	rate    float64 // events a second from the first answer on
	seconds sample  // those of each full second
	busy    float64 // processor time for an event until all were counted, in µs
}

// count starts the program without any counts on the backlog, and waits until it has
// counted all of it. It then runs on.
func (l *backlog) count() (r ingestion, p *program) {
	for _, stream := range []string{jetlog.DeltasStream, jetlog.DeadLetterStream, "KV_" + jetlog.Bucket} {
		if err := l.js.DeleteStream(ctx, stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
			check(err)
		}
	}
	p = l.prepare(l.server.URL(), "")
	runtime.GC()
	p.spawn()
	c := client.New(l.nc)
	p.until("wait for the first answer", time.Millisecond, func() error { return applied(c, 0) })
	begun, counted, watched := time.Now(), make(chan struct{}), make(chan error)
	go func() { watched <- caught(func() { r.seconds = l.watch(p, counted) }) }()
	err := applied(c, pipeline.EndOf(uint64(l.messages)))
	rate := float64(l.events) / time.Since(begun).Seconds()
	close(counted)
	check(errors.Join(err, <-watched))
	r.rate, r.busy = rate, l.each(p)
	return r, p
}

// each is the processor time for an event so far, in µs.
func (l *backlog) each(p *program) float64 { return p.busy().Seconds() * 1e6 / float64(l.events) }

// watch gives how many events were counted in each second.
func (l *backlog) watch(p *program, enough <-chan struct{}) (seconds sample) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := 0; ; {
		select {
		case <-tick.C:
		case <-enough:
			return seconds
		}
		now := int(pipeline.Position(p.figures()["tidemark_applied_position"]).Sequence()) * l.pack
		seconds, before = append(seconds, float64(now-before)), now
	}
}

// ingest is a backlog of one event a message.
func (b *bench) ingest() {
	l := b.backlog(1, community(1))
	defer l.close()
	out, _ := l.turns("ingest, one event a message")
	out.target = ratioAtLeast(0.9)
	b.table.add(out)
}

// packs is the same in packs, and what an event costs whose key is hot.
func (b *bench) packs() {
	b.inPacks("ingest, packs of 256", community, 1_100_000, ratioAtMost(1.2))
}

// likes is likes alone in packs: each is looked for in two sets, and most are new in both.
func (b *bench) likes() {
	b.inPacks("ingest, packs of likes alone", likesAlone, 600_000, target{})
}

func (b *bench) inPacks(what string, next func(seed uint64) source, least float64, cost target) {
	l := b.backlog(packOf, next(1))
	defer l.close()
	out, busy := l.turns(what)
	out.target = atLeast(least)
	b.table.add(out, line{
		what: "the same, processor time for an event", unit: "µs", ours: busy,
		beside: decoding, theirs: slices.Repeat(sample{decodingCost(next(1))}, len(busy)), target: cost,
	})
}

// turns counts the backlog, round by round, beside who only reads it. busy is processor
// time for an event.
func (l *backlog) turns(what string) (out line, busy sample) {
	out = line{what: what, unit: "events/s", beside: bare}
	for range l.size.rounds {
		out.theirs = append(out.theirs, l.bare())
		r, p := l.count()
		p.discard()
		out.ours, busy = append(out.ours, r.rate), append(busy, r.busy)
		l.say("%s: %s a second, %s µs each; bare %s", what, out.ours.last(), busy.last(), out.theirs.last())
	}
	return out, busy
}

// sustained is a backlog of events of which no two change the same row: what is changed
// must be written while more comes.
func (b *bench) sustained() {
	l := b.backlog(packOf, distinct())
	defer l.close()
	decoded, reading := decodingCost(distinct()), l.bare()
	r, p := l.count()
	defer p.discard()
	begun := time.Now()
	disk := p.rest() / float64(l.events)
	rest, busy, lowest := time.Since(begun), l.each(p), r.rate
	if len(r.seconds) > 0 {
		lowest = slices.Min(r.seconds)
	}
	b.say("sustained: %s a second, the lowest second %s, %s µs each", number(r.rate), number(lowest), number(busy))
	b.table.add(
		line{what: "ingest, packs, distinct keys", unit: "events/s", ours: sample{r.rate}, beside: bare, theirs: sample{reading}, target: atLeast(600_000)},
		line{what: "the same, its lowest second", unit: "events/s", ours: sample{lowest}, beside: "all seconds", theirs: sample{r.rate}, target: ratioAtLeast(0.5)},
		line{what: "the same, processor time for an event", unit: "µs", ours: sample{busy}, beside: decoding, theirs: sample{decoded}, target: ratioAtMost(2)},
		line{what: "the same, on disk for an event", unit: "bytes", ours: sample{disk}})
	b.table.note("distinct keys: of the processor time %s µs were spent when the last event was counted, and all %s s later, with the store at rest.", number(r.busy), number(rest.Seconds()))
}
