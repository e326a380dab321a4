package importer

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// childEnv makes the test binary a process that imports, and that the test
// can kill: "URL PATH".
const childEnv = "TIDEMARK_TEST_IMPORT"

func TestMain(m *testing.M) {
	if url, path, ok := strings.Cut(os.Getenv(childEnv), " "); ok {
		os.Exit(child(url, path))
	}
	goleak.VerifyTestMain(m)
}

func child(url, path string) int {
	nc, err := nats.Connect(url)
	if err == nil {
		defer nc.Close()
		_, err = Run(context.Background(), nc, path, nil, Options{Pack: childPack, saveEvery: 20 * time.Millisecond})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const childPack = 16

// bench is a server with Tidemark's streams.
type bench struct {
	testing.TB
	ctx    context.Context
	server *embed.Server
	nc     *nats.Conn
	js     jetstream.JetStream
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	server := natstest.Server(tb)
	_, js := natstest.Streams(tb, server)
	return benchOf(tb, server, js)
}

func benchOf(tb testing.TB, server *embed.Server, js jetstream.JetStream) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	return &bench{tb, ctx, server, natstest.Connect(tb, server), js}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// run imports any lines, as the command does with --force.
func (b *bench) run(text string, o Options) (Result, error) {
	o.Force = true
	return Run(b.ctx, b.nc, "-", strings.NewReader(text), o)
}

// imported are the lines of all packs, in log order.
func (b *bench) imported() []string {
	b.Helper()
	consumer, err := b.events().CreateConsumer(b.ctx, jetstream.ConsumerConfig{FilterSubject: jetlog.PackSubject, AckPolicy: jetstream.AckNonePolicy})
	b.must(err)
	var lines []string
	for left := int(consumer.CachedInfo().NumPending); left > 0; {
		batch, err := consumer.Fetch(min(left, 1000), jetstream.FetchMaxWait(10*time.Second))
		b.must(err)
		for m := range batch.Messages() {
			left--
			if m.Headers().Get(headerImport) != "" {
				lines = append(lines, strings.Split(string(m.Data()), "\n")...)
			}
		}
		b.must(batch.Error())
	}
	return lines
}

func (b *bench) want(lines []string) {
	b.Helper()
	got := b.imported()
	for i := range min(len(got), len(lines)) {
		if got[i] != lines[i] {
			b.Fatalf("line %d is %.100q, want %.100q (%d lines, want %d)", i+1, got[i], lines[i], len(got), len(lines))
		}
	}
	if len(got) != len(lines) {
		b.Fatalf("%d lines, want %d", len(got), len(lines))
	}
}

// events are n lines, each of its own.
func events(n int) (lines []string, text string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"type":"like","actor":%d,"post":%d,"author":%d,"at":1700000000000}`, i%977+1, i+1, i%31+1))
	}
	return lines, strings.Join(lines, "\n") + "\n"
}

// entry is the one import's record; nil: there is none.
func (b *bench) entry() (jetstream.KeyValue, jetstream.KeyValueEntry) {
	b.Helper()
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	keys, err := kv.Keys(b.ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return kv, nil
	}
	b.must(err)
	at := slices.IndexFunc(keys, func(key string) bool { return strings.HasPrefix(key, "import.") })
	if at < 0 {
		return kv, nil
	}
	e, err := kv.Get(b.ctx, keys[at])
	b.must(err)
	return kv, e
}

func zip(text string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return out.Bytes()
}

// onRead calls something when a reader has given so many bytes.
type onRead struct {
	r     io.Reader
	left  int
	event func()
}

func (o *onRead) Read(p []byte) (int, error) {
	n, err := o.r.Read(p[:min(len(p), 32<<10)])
	if o.left -= n; o.left <= 0 && o.event != nil {
		o.event()
		o.event = nil
	}
	return n, err
}

func atBytes(text string, bytes int, event func()) io.Reader {
	return &onRead{strings.NewReader(text), bytes, event}
}

func write(tb testing.TB, path string, data []byte) string {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func repeat(s string, n int) string { return string(bytes.Repeat([]byte(s), n)) }
