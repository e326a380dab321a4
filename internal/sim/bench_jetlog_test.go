package sim

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

// The real log keeps it too: so the fake is one to trust.
func TestJetlogKeepsTheContract(t *testing.T) {
	holdContract(t, func(t *testing.T) bench { return newRealBench(t) })
}

// realBench is the embedded server with its directory in the test's.
type realBench struct {
	*testing.T
	dir, kepts string
	listen     string
	server     *embed.Server
	nc         *nats.Conn
	streams    *jetlog.Streams
	js         jetstream.JetStream
}

func newRealBench(t *testing.T) *realBench {
	b := &realBench{T: t, dir: t.TempDir(), listen: freeAddress(t)}
	b.start()
	t.Cleanup(func() { b.server.Close() })
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: b.server.URL()})
	b.must(err)
	t.Cleanup(nc.Close)
	b.nc = nc
	b.js, err = jetstream.New(nc)
	b.must(err)
	b.streams, err = jetlog.OpenStreams(b.ctx(), nc, natstest.Options())
	b.must(err)
	return b
}

func (b *realBench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *realBench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	b.Cleanup(cancel)
	return ctx
}

func (b *realBench) start() {
	b.Helper()
	server, err := embed.StartServer(embed.ServerOptions{Listen: b.listen, StoreDir: b.dir, SyncInterval: time.Minute})
	b.must(err)
	b.server = server
}

func (b *realBench) publish(subject, id string, header map[string][]string, data []byte) uint64 {
	b.Helper()
	var options []jetstream.PublishOpt
	if id != "" {
		options = append(options, jetstream.WithMsgID(id))
	}
	ack, err := b.js.PublishMsg(b.ctx(), &nats.Msg{Subject: subject, Header: header, Data: data}, options...)
	b.must(err)
	return ack.Sequence
}

func (b *realBench) many(n int) {
	b.Helper()
	for i := range n {
		_, err := b.js.PublishAsync("events.like", []byte("many"), jetstream.WithStallWait(time.Minute))
		b.must(err)
		if i%2000 == 1999 || i == n-1 {
			<-b.js.PublishAsyncComplete()
		}
	}
}

func (b *realBench) stream(name string) jetstream.Stream {
	b.Helper()
	s, err := b.js.Stream(b.ctx(), name)
	b.must(err)
	return s
}

func (b *realBench) deleteMessage(stream string, sequence uint64) {
	b.Helper()
	b.must(b.stream(stream).DeleteMsg(b.ctx(), sequence))
}

func (b *realBench) purge(stream string, below uint64) {
	b.Helper()
	b.must(b.stream(stream).Purge(b.ctx(), jetstream.WithPurgeSequence(below)))
}

func (b *realBench) recreate(stream string) {
	b.Helper()
	config := b.stream(stream).CachedInfo().Config
	b.must(b.js.DeleteStream(b.ctx(), stream))
	if stream == jetlog.DeltasStream {
		b.must(b.streams.Restore(b.ctx()))
		return
	}
	_, err := b.js.CreateStream(b.ctx(), config)
	b.must(err)
}

func (b *realBench) intrude(data []byte) {
	b.Helper()
	_, err := b.js.Publish(b.ctx(), b.stream(jetlog.DeltasStream).CachedInfo().Config.Subjects[0], data)
	b.must(err)
}

func (b *realBench) source(ctx context.Context, from pipeline.Position, o jetlog.RunOptions) (pipeline.Source, error) {
	return jetlog.OpenSource(ctx, b.streams, from, o)
}

func (b *realBench) tailer(ctx context.Context, after uint64) (pipeline.Tailer, error) {
	return jetlog.OpenTailer(ctx, b.streams, after, jetlog.RunOptions{})
}

func (b *realBench) guarded() pipeline.Events {
	return jetlog.NewEvents(b.streams, jetlog.RunOptions{})
}

func (b *realBench) log() pipeline.Log { return jetlog.NewDeltaLog(b.streams) }

func (b *realBench) letters() pipeline.DeadLetters {
	b.Helper()
	letters, err := letters.NewDeadLetters(b.streams, nil)
	b.must(err)
	return letters
}

func (b *realBench) kept() (all []pipeline.Position) {
	b.Helper()
	s := b.stream(jetlog.DeadLetterStream)
	for seq := range s.CachedInfo().State.LastSeq {
		m, err := s.GetMsg(b.ctx(), seq+1)
		b.must(err)
		p, err := pipeline.ParsePosition(strings.Split(m.Header.Get(msgID), "-")[1])
		b.must(err)
		all = append(all, p)
	}
	return all
}

func (b *realBench) lease(owner string) pipeline.Lease {
	b.Helper()
	l, err := bucket.NewLease(b.streams, bucket.LeaseOptions{Owner: owner, Renew: 50 * time.Millisecond, Expiry: time.Second})
	b.must(err)
	return l
}

func (b *realBench) streamsDir(of string) string {
	return filepath.Join(of, "jetstream", "$G", "streams")
}

// keep copies the directories while the server is down.
func (b *realBench) keep() {
	b.Helper()
	b.kepts = b.TempDir()
	b.restart(func() {
		for _, name := range []string{jetlog.EventsStream, jetlog.DeltasStream} {
			b.must(os.CopyFS(filepath.Join(b.kepts, name), os.DirFS(filepath.Join(b.streamsDir(b.dir), name))))
		}
	})
}

// cut puts the copies back.
func (b *realBench) cut() {
	b.Helper()
	b.restart(func() {
		for _, name := range []string{jetlog.EventsStream, jetlog.DeltasStream} {
			dir := filepath.Join(b.streamsDir(b.dir), name)
			b.must(os.RemoveAll(dir))
			b.must(os.CopyFS(dir, os.DirFS(filepath.Join(b.kepts, name))))
		}
	})
}

// restart does something while the server is down.
func (b *realBench) restart(do func()) {
	b.Helper()
	back := b.nc.StatusChanged(nats.CONNECTED)
	b.server.Close()
	do()
	b.start()
	select {
	case <-back:
	case <-time.After(2 * time.Minute):
		b.Fatal("the connection does not come back")
	}
	b.nc.RemoveStatusListener(back)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
