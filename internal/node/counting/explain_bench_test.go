package counting

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/history"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/explain"
)

// What it takes to find the ten events about a post in a log of 2 million, in
// packs of 256. cpu-ms is the processor time of the process, which the server is
// in, too.
func BenchmarkExplain(b *testing.B) {
	const packs, pack, places, post = 8_000, 256, 10, 3_141_592_653_589_793
	s, silent := newSite(b), slog.New(slog.DiscardHandler)
	streams, err := jetlog.OpenStreams(b.Context(), s.NC, jetlog.StreamOptions{})
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(s.NC, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range packs {
		var body bytes.Buffer
		for line := range pack {
			of := uint64(1_000_000_000 + r.IntN(1<<20))
			if i%(packs/places) == packs/places/2 && line == 7 {
				of = post
			}
			fmt.Fprintf(&body, `{"type":"like","actor":%d,"post":%d,"author":%d}`+"\n", 1+r.IntN(1<<20), of, 1+r.IntN(1<<20))
		}
		if _, err := js.PublishAsync("events.pack", body.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	c := config.Default()
	schema, err := c.Schema()
	if err != nil {
		b.Fatal(err)
	}
	program, err := operators.Compile(schema, c.Rules(), 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		b.Fatal(err)
	}
	column, _ := schema.Find("post.like")
	for _, rate := range []int{math.MaxInt32, 0} {
		x := explain.New(explain.Options{
			Schema: schema, Tracer: func() pipeline.Tracer { return program.NewTracer() },
			Log: eventLog{history.New(streams, "", true, silent), silent}, Dir: b.TempDir(), Upto: func() uint64 { return packs },
			Rate: rate, BytesMax: 1 << 40,
		})
		if rate > 0 {
			if err := x.Make(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.Run([]string{"all", "filters"}[min(rate, 1)], func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				page := query.Explanation{}
				ask := &query.ExplainAsk{ID: post, Columns: []pipeline.Column{column}, AsOf: pipeline.EndOf(packs), Before: pipeline.PositionMax, Limit: 20, Soft: time.Now().Add(time.Hour)}
				if err := x.Explain(b.Context(), ask, &page); err != nil {
					b.Fatal(err)
				}
				if len(page.Events) != places {
					b.Fatalf("%d events", len(page.Events))
				}
				b.ReportMetric(float64(page.Read), "messages")
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
