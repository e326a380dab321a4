package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// answeredWithin is how long an answer may take where nobody is killed, on a machine that does
// much besides.
const answeredWithin = 10 * time.Second

// Half of Higgs is imported; a column and a rule are added by `rebuild --config` while
// the other half arrives. In the end all old columns equal the expected files, and the
// new column equals its own count over all of history. Not one answer during it is wrong,
// missing or late: a client asks throughout. On one process; of Higgs a part.
func TestRebuild(t *testing.T) {
	t.Parallel()
	f := newRebuildFeed(t, follows-15_000, follows+20_000)
	p := e2e.Run(t, "rebuild: {keep: 4s}\n")
	f.importHalf(t, p)
	nc := p.Connect()
	c := f.checker(t, nc, 64)
	c.patience = answeredWithin
	p.WaitReady()
	end, flips, ready := c.begin(f.seed), watchColumns(t, nc), watchReady(t, p)
	if _, err := client.New(nc).Get(t.Context(), client.GetRequest{Counter: "post", IDs: f.posts[:1], Columns: []string{"touched"}}); !unknown(err) {
		t.Errorf("a column that is not counted yet: %v", err)
	}

	next := written(t, moreColumns)
	t.Log(strings.TrimSpace(doSoon(t, p, "rebuild", "--yes", "--config", next)))
	enough := f.keepsArriving(t, nc, 0.8)
	seen := until(t, p, "switched", serves(2))
	if err := progresses(seen); err != nil || seen[0].State != "building" || seen[0].Serving != 1 {
		t.Errorf("%v: %s", err, glimpse(seen))
	}
	if last := seen[len(seen)-1]; last.Differs != 0 || last.Kept != 1 || last.Why != "" {
		t.Errorf("%+v", last)
	}
	t.Log(glimpse(seen))
	if log, err := os.ReadFile(p.Log()); err != nil || strings.Count(string(log), "both are compared with the log") != 1 {
		t.Errorf("they are not compared once: %v\n%s", err, log)
	}
	enough()
	ready()
	<-f.arrives(t, nc, 0.9, time.Second)

	// "`rebuild.keep` later" the first one goes.
	until(t, p, "dropped", func(s rebuildStatus) bool { return s.Kept == 0 })
	data := filepath.Join(p.Dir, "data")
	gone(t, filepath.Join(data, "badger"))
	streamGone(t, nc, jetlog.DeltasStream)
	<-f.arrives(t, nc, 1, time.Second)
	if n := flips(); n != 1 {
		t.Errorf("what a reply holds has changed %d times, want once: at the switch", n)
	}
	end()
	f.ends(t, p, nc)
	if applied := stats(t, p)["tidemark_applied_position"]; uint64(applied) != uint64(lastPosition(t, nc)) {
		t.Errorf("the figures are of position %.0f, not %d", applied, lastPosition(t, nc))
	}

	// What is backed up is the generation that serves.
	to, other := filepath.Join(t.TempDir(), "backups"), e2e.Prepare(t, e2e.Setup{Settings: moreColumns})
	t.Log(strings.TrimSpace(p.Do("backup", to)))
	t.Log(strings.TrimSpace(p.Do("restore", to, "--data-dir", filepath.Join(other.Dir, "data"), "--config", other.Config())))
	other.Start()
	restored := other.Connect()
	check(t, restored, f.want, 0)
	checkMore(t, restored, f.want, f.lines, 0)
	other.Stop()

	// A file that counts otherwise is refused with what to do; the one that counts
	// alike is taken.
	p.Stop()
	p.Spawn()
	said(t, p, "tidemark rebuild --config")
	p.Kill()
	p.Configure(moreColumns)
	p.Start()
	p.WaitReady()
	f.ends(t, p, nc)
}

// checker asks for what is in the feed; begin begins.
func (f *rebuildFeed) checker(t *testing.T, nc *nats.Conn, shards int) *checker {
	c := &checker{t: t, feed: f.feedOf, nc: nc, shards: shards}
	c.down.Store(&map[pipeline.Shard]bool{})
	return c
}

// arrives publishes the second half up to a part of it; the channel is closed then.
func (f *rebuildFeed) arrives(t *testing.T, nc *nats.Conn, upTo float64, over time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.publish(t, nc, f.part(upTo), over)
	}()
	return done
}

// keepsArriving publishes the second half up to a part of it at most, until it is
// told that it is enough, so that events come at a switch, too.
func (f *rebuildFeed) keepsArriving(t *testing.T, nc *nats.Conn, most float64) (enough func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		const step = 0.02
		for upTo := step; upTo <= most; upTo += step {
			if f.part(upTo) <= int(f.acked.Load()) {
				continue
			}
			select {
			case <-stop:
				return
			case <-t.Context().Done(): // the test has failed
				return
			default:
				f.publish(t, nc, f.part(upTo), 250*time.Millisecond)
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// watchColumns asks one question after the other, and counts how often the columns
// of a reply are others than the reply's before.
func watchColumns(t *testing.T, nc *nats.Conn) (end func() (flips int)) {
	stop, count := make(chan struct{}), make(chan int, 1)
	go func() {
		flips, was, c := 0, "", client.New(nc)
		for {
			select {
			case <-stop:
				count <- flips
				return
			case <-t.Context().Done(): // the test has failed
				return
			case <-time.After(5 * time.Millisecond):
			}
			got, err := c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{1}, Timeout: answeredWithin})
			if t.Context().Err() != nil {
				return
			}
			if err != nil || got.Degraded {
				t.Errorf("%+v: %v", got, err)
				continue
			}
			now := fmt.Sprint(got.Columns)
			if was != "" && now != was {
				flips++
			}
			was = now
		}
	}()
	return func() int {
		close(stop)
		return <-count
	}
}

// watchReady has a process say again and again whether it is ready, which it must be.
func watchReady(t *testing.T, p *e2e.Process) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-t.Context().Done(): // the test has failed
				return
			case <-time.After(50 * time.Millisecond):
			}
			r, err := http.Get(p.HTTP + "/readyz")
			if err != nil {
				t.Error(err)
				continue
			}
			body, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Errorf("%s it is not ready: %s", time.Now().Format("15:04:05.000"), body)
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// unknown says that a request was for what there is not.
func unknown(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == 404
}

// gone waits until a path is not there.
func gone(t *testing.T, path string) {
	t.Helper()
	e2e.Until(t, path+" is gone", func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	})
}

// streamGone waits until there is no such stream.
func streamGone(t *testing.T, nc *nats.Conn, name string) {
	t.Helper()
	e2e.Until(t, "stream "+name+" is gone", func() bool { return !slices.Contains(slotOf(t, nc), name) })
}

// killing kills a process that alone answers, and has it back; meanwhile requests
// may be lost.
func (f *rebuildFeed) killing(c *checker, p *e2e.Process) {
	c.t.Helper()
	all := everyShard(c.shards)
	c.down.Store(&all)
	c.kills.Add(1)
	p.Kill()
	time.Sleep(time.Duration(f.rand.IntN(300)) * time.Millisecond)
	p.Start()
	p.WaitReady()
	c.down.Store(&map[pipeline.Shard]bool{})
}

// goes runs a command that has another generation serve, and kills the node
// meanwhile, until it does.
func (f *rebuildFeed) goes(c *checker, p *e2e.Process, to uint32) {
	t := c.t
	t.Helper()
	for try, begun := 0, time.Now(); time.Since(begun) < rebuildWithin; try++ {
		command := p.Command(t.Context(), "rebuild", "--back")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(f.rand.IntN(250)) * time.Millisecond)
		if try < 2 { // else nobody comes to it on a slow machine
			f.killing(c, p)
		}
		_ = command.Wait() // it is lost with the node, or done
		if stateOf(t, p).Serving == to {
			return
		}
	}
	t.Fatalf("generation %d does not come to serve within %v", to, rebuildWithin)
}

// The same with kill -9 of every process at random, and from 64 to 16 shards: one
// process, with the server in it; back to the first generation, and forward again.
// "A node that is killed at any moment of a rebuild goes on where it
// was."
func TestRebuildKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	f := newRebuildFeed(t, follows-8_000, follows+12_000)
	p := e2e.Run(t, "checkpoint: {interval: 100ms, rows: 4096}\n")
	f.importHalf(t, p)
	nc := p.Connect()
	c := f.checker(t, nc, 64)
	c.patience = answeredWithin / 2
	end := c.begin(f.seed)
	shards := func(want int) {
		t.Helper()
		var got struct{ Shards []json.RawMessage }
		for deadline := time.Now().Add(e2e.Patience); len(got.Shards) != want; time.Sleep(50 * time.Millisecond) {
			if out := p.Do("shards", "--json"); json.Unmarshal([]byte(out), &got) != nil || time.Now().After(deadline) {
				t.Fatalf("there are not %d shards: %s", want, out)
			}
		}
	}
	shards(64)

	t.Log(strings.TrimSpace(doSoon(t, p, "rebuild", "--yes", "--config", written(t, "shards: 16\n"+moreColumns))))
	enough := f.keepsArriving(t, nc, 0.5)
	kills := 3
	if *rebuildFull {
		kills = 20
	}
	for range kills {
		time.Sleep(time.Duration(f.rand.IntN(1200)) * time.Millisecond)
		f.killing(c, p)
	}
	seen := until(t, p, "switched", serves(2))
	t.Log(glimpse(seen))
	enough()
	shards(16)

	enough = f.keepsArriving(t, nc, 0.75)
	f.goes(c, p, 1)
	shards(64)
	if _, err := client.New(nc).Get(t.Context(), client.GetRequest{Counter: "post", IDs: f.posts[:1], Columns: []string{"touched"}}); !unknown(err) {
		t.Errorf("a column that the first generation does not count: %v", err)
	}
	enough()
	enough = f.keepsArriving(t, nc, 0.95)
	f.goes(c, p, 2)
	shards(16)
	enough()
	<-f.arrives(t, nc, 1, time.Second)
	f.killing(c, p)
	end()
	f.ends(t, p, nc)
}
