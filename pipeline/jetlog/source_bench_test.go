package jetlog_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

const benchBodyBytes = 120

// BenchmarkRead compares Source with the library's ordered consumer, both
// reading the same stream from its start, with the server in this process.
// One iteration is one message.
func BenchmarkRead(b *testing.B) {
	server := natstest.Server(b)
	streams, js := natstest.Streams(b, server)
	ctx := context.Background()
	stored := 0

	prepare := func(b *testing.B) time.Duration {
		fillEvents(b, js, b.N-stored)
		stored = max(stored, b.N)
		runtime.GC()
		b.SetBytes(benchBodyBytes)
		b.ReportAllocs()
		b.ResetTimer()
		return cpu()
	}
	ordered := func(b *testing.B) jetstream.Consumer {
		c, err := js.OrderedConsumer(ctx, jetlog.EventsStream, jetstream.OrderedConsumerConfig{})
		if err != nil {
			b.Fatal(err)
		}
		return c
	}

	b.Run("bare=messages", func(b *testing.B) {
		before := prepare(b)
		it, err := ordered(b).Messages(jetstream.PullMaxMessages(8192))
		if err != nil {
			b.Fatal(err)
		}
		defer it.Stop()
		for range b.N {
			if _, err := it.Next(); err != nil {
				b.Fatal(err)
			}
		}
		report(b, before)
	})
	b.Run("bare=consume", func(b *testing.B) {
		before := prepare(b)
		n, done := 0, make(chan struct{})
		cc, err := ordered(b).Consume(func(jetstream.Msg) {
			if n++; n == b.N {
				close(done)
			}
		}, jetstream.PullMaxMessages(8192))
		if err != nil {
			b.Fatal(err)
		}
		defer cc.Stop()
		<-done
		report(b, before)
	})
	b.Run("source", func(b *testing.B) {
		before := prepare(b)
		source, err := jetlog.OpenSource(ctx, streams, 0, jetlog.RunOptions{Linger: 10 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		defer source.Close()
		for n := 0; n < b.N; {
			run, err := source.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			n += len(run)
		}
		report(b, before)
	})
}

// cpu is this process's CPU time so far, the server's part included.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, before time.Duration) {
	b.StopTimer()
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

func fillEvents(tb testing.TB, js jetstream.JetStream, n int) {
	tb.Helper()
	body := []byte(fmt.Sprintf("%-*s", benchBodyBytes, `{"type":"like","actor":1234567,"post":"98765432123","author":7654321}`))
	for i := range n {
		if _, err := js.PublishAsync("events.like", body, jetstream.WithStallWait(time.Minute)); err != nil {
			tb.Fatal(err)
		}
		if i%4000 == 3999 || i == n-1 {
			<-js.PublishAsyncComplete()
		}
	}
}
