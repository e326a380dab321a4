package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// BenchmarkParts is the processor time of what an event costs a node between the
// message of EVENTS and the rows in memory, part by part, beside encoding/json
// decoding each event once. Nothing else runs: no server, no disk.
//
//	json    the rival
//	derive  events → windows
//	apply   windows → rows in memory, checks included
func BenchmarkParts(b *testing.B) {
	const events, pack, run = 1 << 21, 256, 32
	for _, load := range []string{"skewed", "distinct"} {
		messages := partsMessages(load, events, pack)
		c := twin.EveryTime(config.Default())
		schema, err := c.Schema()
		if err != nil {
			b.Fatal(err)
		}
		program, err := operators.Compile(schema, c.Rules(), c.Shards, operators.Limits{Events: c.Windows.Events, Bytes: int(c.Windows.Bytes)})
		if err != nil {
			b.Fatal(err)
		}
		// Other processes' time is none of ours, the collector's is.
		measure := func(b *testing.B, do func()) {
			took := time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				b.StartTimer()
				begun, _ := cpuNow()
				do()
				ended, ok := cpuNow()
				if !ok {
					b.Skip("the system does not tell processor time")
				}
				took += ended.ours - begun.ours
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/events, "ns/event")
			b.ReportMetric(0, "ns/op")
		}
		b.Run(load+"/json", func(b *testing.B) {
			measure(b, func() {
				for i := range messages {
					for line := range bytes.Lines(messages[i].Data) {
						var e struct {
							Type     string `json:"type"`
							Actor    uint64 `json:"actor"`
							Post     uint64 `json:"post"`
							RepostOf uint64 `json:"repost_of"`
							Author   uint64 `json:"author"`
							Target   uint64 `json:"target"`
							At       int64  `json:"at"`
						}
						if err := json.Unmarshal(line, &e); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
		derive := func(lane pipeline.Deriver, each func(pipeline.Derived)) {
			from := pipeline.Position(0)
			for rest := messages; len(rest) > 0; rest = rest[min(run, len(rest)):] {
				batch := rest[:min(run, len(rest))]
				derived, err := pipeline.DeriveRun(lane, from, batch, nil)
				if err != nil {
					b.Fatal(err)
				}
				from = pipeline.EndOf(batch[len(batch)-1].Sequence)
				for _, d := range derived {
					each(d)
				}
			}
		}
		b.Run(load+"/derive", func(b *testing.B) {
			lane, size, merged, changes := program.NewLane(), 0, 0, 0
			measure(b, func() {
				size, merged, changes = 0, 0, 0
				derive(lane, func(d pipeline.Derived) {
					size, merged, changes = size+len(d.Window), merged+d.Merged, changes+d.Changes
				})
			})
			b.ReportMetric(float64(size)/events, "window-B/event")
			b.ReportMetric(float64(changes)/events, "changes/event")
			b.ReportMetric(float64(merged)/events, "cells/event")
		})
		var windows [][]byte
		derive(program.NewLane(), func(d pipeline.Derived) { windows = append(windows, d.Window) })
		b.Run(load+"/apply", func(b *testing.B) {
			measure(b, func() {
				retention := int64(c.Feed.Retention.Seconds())
				clock := shard.NewClock(retention)
				shards := make([]*shard.Shard, c.Shards)
				for i := range shards {
					shards[i] = shard.New(pipeline.Shard(i), schema, shard.Limits{
						PostsMax: c.Feed.PostsPerAuthor, PostsKept: c.Feed.Kept(), Retention: retention, Inactive: retention,
					}, clock, cold.State{})
				}
				var columns []pipeline.Column
				for n, encoded := range windows {
					w, err := pipeline.DecodeWindow(encoded)
					if err != nil {
						b.Fatal(err)
					}
					if columns == nil {
						for i := range w.Columns {
							columns = append(columns, pipeline.Column(i))
						}
					}
					clock.Note(w.Marks)
					for _, s := range shards {
						if err := s.Apply(uint64(n+1), w, columns); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

// partsMessages are packs of the community's events, or of likes of posts by
// authors that nobody else names.
func partsMessages(load string, events, pack int) (messages []pipeline.Message) {
	c := newCommunity(1)
	r := rand.New(rand.NewPCG(3, 3))
	for sequence := uint64(1); len(messages) < events/pack; sequence++ {
		m := pipeline.Message{Sequence: sequence, Time: 1_341_286_912_000 + int64(sequence), Subject: "events.pack"}
		for line := range pack {
			if line > 0 {
				m.Data = append(m.Data, '\n')
			}
			if load == "skewed" {
				_, m.Data = c.event(m.Data)
				continue
			}
			m.Data = fmt.Appendf(m.Data, `{"type":"like","actor":%d,"post":%s,"author":%d,"at":1341286912000}`,
				1+r.Uint64N(users), strconv.FormatUint(firstPost+r.Uint64N(1<<40), 10), 1+r.Uint64N(1<<30))
		}
		messages = append(messages, m)
	}
	return messages
}
