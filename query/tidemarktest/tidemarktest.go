// Package tidemarktest runs a whole Tidemark within a Go test: the NATS server, the streams,
// the rules, the shards and the answers of 'tidemark run', in the test's own process and in a
// temporary directory. Nothing is faked, so what a test sees is what production does.
//
//	func TestLike(t *testing.T) {
//		c, _ := tidemarktest.Start(t)
//		at, err := c.Publish(t.Context(), client.Like(8, 62, 7))
//		…
//		counts, _, err := c.Counts(t.Context(), "post", 62, client.Wait(at))
//	}
//
// [Start] counts by the default configuration, [StartFile] by your own file. Tests may run in
// parallel: each has a server on a free port of this machine, and data of its own. All of it
// ends with the test, after the cleanups that the test itself has registered. A test that
// fails shows the log.
package tidemarktest

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/query/client"
)

// shards is how many a test's Tidemark has: a node starts sooner with few, and answers the
// same.
const shards = 4

// Start starts a Tidemark that counts by the default configuration. It returns a client, and
// the address of the NATS server for other clients. Both are closed when the test ends.
func Start(t testing.TB) (c *client.Client, url string) {
	t.Helper()
	return start(t, config.Default())
}

// StartFile does the same with what a configuration file says of what is counted: counters,
// rules, channels, feed.* and limits.*. Of the rest of the file, like data_dir and nats,
// nothing is used; all of it must be right.
func StartFile(t testing.TB, path string) (c *client.Client, url string) {
	t.Helper()
	file, _, err := config.Load(path, os.Environ())
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	counting, err := file.Counting()
	if err != nil {
		t.Fatalf("tidemarktest: %s: %v", path, err)
	}
	counts, err := config.Default().CountingBy(counting)
	if err != nil {
		t.Fatalf("tidemarktest: %s: %v", path, err)
	}
	return start(t, counts)
}

func start(t testing.TB, c *config.Config) (*client.Client, string) {
	t.Helper()
	c.DataDir, c.NATS.Listen, c.HTTP.Listen, c.Shards = t.TempDir(), "127.0.0.1:0", "", shards
	shown := new(shownLog)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("tidemarktest: the log:\n%s", shown)
		}
	})
	n, err := node.Start(context.Background(), c, node.Options{Logger: slog.New(slog.NewTextHandler(shown, nil))})
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("tidemarktest: close: %v", err)
		}
	})
	awaitReady(t, n)
	answers, err := client.Connect(n.URL())
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	t.Cleanup(answers.Close)
	return answers, n.URL()
}

// readyMax is how long a start may take; it takes a part of a second.
const readyMax = time.Minute

// awaitReady returns when the node routes and answers: what is published now counts at once.
func awaitReady(t testing.TB, n *node.Node) {
	t.Helper()
	end := time.Now().Add(readyMax)
	for err := n.Ready(); err != nil; err = n.Ready() {
		if time.Now().After(end) {
			t.Fatalf("tidemarktest: not ready within %s: %v", readyMax, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// shownLog keeps the beginning of the log: why a start failed stands there.
type shownLog struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// logBytesMax bounds what is kept of the log.
const logBytesMax = 1 << 20

func (l *shownLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len()+len(line) <= logBytesMax {
		l.text.Write(line)
	}
	return len(line), nil
}

func (l *shownLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
