package jetlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// damaged returns a server whose EVENTS has 400 messages and had one bit of one of them
// flipped while it was stopped, and a function that starts it again on whole files.
func damaged(t *testing.T, message uint64) (b *bench, mend func() *bench) {
	t.Helper()
	dir := t.TempDir()
	start := func() *bench {
		server, err := embed.StartServer(embed.ServerOptions{Listen: "127.0.0.1:0", StoreDir: dir, SyncInterval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		streams, js := natstest.Streams(t, server)
		return &bench{t, t.Context(), server, streams, js}
	}
	b = start()
	for i := range uint64(400) {
		body := []byte{'{', '}'}
		if i+1 == message {
			body = []byte("{this one}")
		}
		_, err := b.js.Publish(b.ctx, "events.like", body)
		b.must(err)
	}
	b.js.Conn().Close()
	b.server.Close()
	file, whole := flip(t, dir)
	b = start()
	return b, func() *bench {
		b.js.Conn().Close()
		b.server.Close()
		b.must(os.WriteFile(file, whole, 0o600))
		return start()
	}
}

// flip flips a bit of the message with the body {this one} in the EVENTS of a server that is
// stopped. It returns which file has it, and what was there.
func flip(t *testing.T, store string) (file string, whole []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "EVENTS", "msgs", "1.blk"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	if whole, err = os.ReadFile(files[0]); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte("{this one}"))
	if at < 0 {
		t.Fatalf("%s lacks the message", files[0])
	}
	flipped := slices.Clone(whole)
	flipped[at+3] ^= 1
	if err := os.WriteFile(files[0], flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	return files[0], whole
}

// What one server has lost is read from another one's copy, also where the one leads the
// stream; and as long as a server is away that may have it, no message is taken for lost.
func TestAnotherServersCopyIsRead(t *testing.T) {
	natstest.Long(t) // three servers, each of which starts again
	t.Parallel()
	b, c := newClusterBench(t)
	for i := range 400 {
		body := []byte("{}")
		if i+1 == 150 {
			body = []byte("{this one}")
		}
		_, err := b.js.Publish(b.ctx, "events.like", body)
		b.must(err)
	}
	c.WaitWhole()
	damage := func(m *natstest.Member) {
		m.Stop()
		flip(t, m.StoreDir())
		m.Start()
		c.WaitWhole()
	}
	var log e2e.Lines
	options := jetlog.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	readAll := func() error {
		source, err := jetlog.OpenSource(b.ctx, b.streams, 0, options)
		for end := time.Now().Add(e2e.Patience); err != nil && time.Now().Before(end); { // servers that lead are being chosen
			source, err = jetlog.OpenSource(b.ctx, b.streams, 0, options)
		}
		if err != nil {
			return err
		}
		defer source.Close()
		for read := 0; read < 400; {
			run, err := source.Next(b.ctx)
			if err != nil {
				return fmt.Errorf("after %d messages: %w", read, err)
			}
			read += len(run)
		}
		return nil
	}
	damage(c.Servers[0])
	c.Lead(c.Servers[0], jetlog.EventsStream)
	b.must(readAll())

	damage(c.Servers[1])
	c.Servers[2].Stop()
	failed := make(chan error, 1)
	go func() { failed <- readAll() }()
	e2e.Until(t, "the reader waits for the server that is away", func() bool {
		return log.Has("is missing in all copies of EVENTS but one, whose server is away")
	})
	c.Servers[2].Start()
	b.must(<-failed)
}

// The last message is no exception: nothing comes after it.
func TestFlippedBitAtTheEndIsDamage(t *testing.T) {
	t.Parallel()
	b, _ := damaged(t, 400)
	source := b.source(0, jetlog.RunOptions{Linger: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond})
	for read := 0; ; {
		run, err := source.Next(b.ctx)
		if read += len(run); err == nil {
			continue
		}
		if damage, is := errors.AsType[*pipeline.Hole](err); !is || *damage != (pipeline.Hole{First: 400, Last: 400}) || read != 399 {
			t.Errorf("%d messages came, then %v", read, err)
		}
		break
	}
	// What comes later is read after it.
	_, err := b.js.Publish(b.ctx, "events.like", []byte("401"))
	b.must(err)
	if got := sequences(b.read(b.source(pipeline.EndOf(400), jetlog.RunOptions{}), 1)); !slices.Equal(got, []uint64{401}) {
		t.Errorf("after it comes %v", got)
	}
}

// One flipped bit: the server passes over the message, and no reader does.
func TestFlippedBitIsDamage(t *testing.T) {
	b, mend := damaged(t, 150)
	if state, err := b.streams.State(b.ctx, jetlog.EventsStream); err != nil || len(state.Damaged) != 0 {
		t.Errorf("before anybody has read it: %v %v", state.Damaged, err)
	}
	want := pipeline.Hole{First: 150, Last: 150}
	for range 2 {
		source := b.source(0, jetlog.RunOptions{Linger: time.Second})
		read := 0
		for {
			run, err := source.Next(b.ctx)
			if read += len(run); err == nil {
				continue
			}
			if damage, is := errors.AsType[*pipeline.Hole](err); !is || *damage != want || read != 149 {
				t.Fatalf("%d messages came, then %v", read, err)
			}
			break
		}
		if _, err := source.Next(b.ctx); !errors.As(err, new(*pipeline.Hole)) {
			t.Errorf("after the error: %v", err)
		}
	}
	b.source(pipeline.EndOf(150), jetlog.RunOptions{})
	state, err := b.streams.State(b.ctx, jetlog.EventsStream)
	if b.must(err); !slices.Equal(state.Damaged, pipeline.Holes{want}) {
		t.Errorf("the metadata name %v", state.Damaged)
	}
	looks, _, _, err := jetlog.LookAt(b.ctx, b.connect(), natstest.Options())
	if b.must(err); !slices.Equal(looks[0].Damaged, pipeline.Holes{want}) {
		t.Errorf("a look at %s finds %v", looks[0].Name, looks[0].Damaged)
	}
	b = mend()
	state, err = b.streams.State(b.ctx, jetlog.EventsStream)
	if b.must(err); len(state.Damaged) != 0 {
		t.Errorf("with the file as it was the metadata name %v", state.Damaged)
	}
}
