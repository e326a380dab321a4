package acceptance_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// docs/operations.md of a full disk: "make room; it goes on by itself".
func TestDiskFull(t *testing.T) {
	for name, embedded := range map[string]bool{"the node's": false, "the embedded server's, too": true} {
		t.Run(name, func(t *testing.T) {
			disk, err := e2e.NewDisk(t, filepath.Join(t.TempDir(), "disk"), 768<<20)
			if err != nil {
				t.Skip(err)
			}
			s := e2e.Setup{
				DataDir:  filepath.Join(disk.Path, "data"),
				Settings: "shards: 4\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 2048}\n",
			}
			told := "the disk is full"
			if embedded {
				told = "the embedded server cannot write"
			} else {
				s.URL = natstest.Server(t).URL()
			}
			p := e2e.Prepare(t, s)
			p.Start()
			likes(t, p.URL, 100)
			liked(t, p, 100)

			insisted := insist(t, p.URL)
			disk.Fill(t)
			log := logged(t, p, told)
			if r, err := http.Get(p.HTTP + "/readyz"); err != nil {
				t.Error(err)
			} else if r.Body.Close(); embedded && r.StatusCode == http.StatusOK {
				t.Error("ready, while nothing can be stored")
			}
			time.Sleep(time.Second)
			disk.Free(t)
			p.WaitReady()
			time.Sleep(time.Second)
			n := insisted()
			t.Logf("%d likes stored; %s", n, log)
			liked(t, p, 100+n)
			p.Stop()
			p.Start()
			liked(t, p, 100+n)
		})
	}
}

// insist publishes likes of post 42, each with an id and again and again until
// it is acknowledged, until told to end; it says how many there are then.
func insist(t *testing.T, url string) (end func() int64) {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stop, count := make(chan struct{}), make(chan int64, 1)
	go func() {
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				count <- n
				return
			default:
			}
			for stored := false; !stored; {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := js.Publish(ctx, "events.like", []byte(`{"actor":1,"post":42,"author":7}`),
					jetstream.WithMsgID(fmt.Sprint("like ", n)), jetstream.WithRetryAttempts(0))
				cancel()
				if stored = err == nil; !stored {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-count
	}
}

// logged waits for a line of the log.
func logged(t *testing.T, p *e2e.Process, what string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^.*` + regexp.QuoteMeta(what) + `.*$`)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if p.Ended() != nil {
			t.Fatalf("it ended by itself: %v", p.Ended())
		}
		log, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		if found := line.Find(log); found != nil {
			return string(found)
		}
	}
	t.Fatalf("it did not say %q within 30 s", what)
	return ""
}
