package counting

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// What it takes to hold a generation to a log of a million events, in packs of 256, as
// a rebuild does: all ids, and all that is stored. Likes by 400,000 users, most of them
// of posts that are liked once; one event in ten a post, one a follow. cpu-ms is the
// processor time of the process, which the server is in, too.
func BenchmarkCompare(b *testing.B) {
	const packs, pack, users = 4_000, 256, 400_000
	s := newSite(b)
	c := s.Config("a", "route hold answer")
	c.Shards, c.Audit.Rate, c.Audit.Memory = 64, 0, 4*config.GiB
	n := s.Start(c)
	js, err := jetstream.New(s.NC, jetstream.WithPublishAsyncMaxPending(packs))
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	posts := rand.NewZipf(r, 1.1, 10, 5_000_000)
	for i := range packs {
		var body bytes.Buffer
		for line := range pack {
			actor, other := 1+r.IntN(users), 1+r.IntN(users)
			switch line % 10 {
			case 0:
				fmt.Fprintf(&body, `{"type":"post","actor":%d,"post":%d}`+"\n", actor, 1<<40+i*pack+line)
			case 1:
				fmt.Fprintf(&body, `{"type":"follow","actor":%d,"target":%d}`+"\n", actor, other)
			default:
				fmt.Fprintf(&body, `{"type":"like","actor":%d,"post":%d,"author":%d}`+"\n", actor, 1<<41+posts.Uint64(), other)
			}
		}
		if _, err := js.PublishAsync("events.pack", body.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if err := n.WaitApplied(b.Context(), pipeline.EndOf(packs)); err != nil {
		b.Fatal(err)
	}
	before, ids := processorTime(b), 0
	for b.Loop() {
		r, err := n.Serving().hold(b.Context(), check.Task{Stored: true}, func(any) {})
		if err != nil || r.Differ+len(r.Skipped) > 0 {
			b.Fatalf("%v, %+v", err, r)
		}
		ids += r.IDs
	}
	b.ReportMetric(float64(ids)/b.Elapsed().Seconds(), "ids/s")
	b.ReportMetric(float64(ids)/float64(b.N), "ids")
	b.ReportMetric(float64(processorTime(b)-before)/1e6/float64(b.N), "cpu-ms/op")
}

func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
