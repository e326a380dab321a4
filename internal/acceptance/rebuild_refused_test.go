package acceptance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// What cannot be, is refused before anything begins, with what is wrong.
func TestRebuildRefused(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	likes(t, p.URL, 100)
	liked(t, p, 100)
	next := written(t, "shards: 8\n"+moreColumns)
	nothing := func(state string) {
		t.Helper()
		if s, err := statusOf(p); err != nil || s.State != state || s.Serving != 1 || s.Building != 0 || s.Kept != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		gone(t, filepath.Join(p.Dir, "data", "generations", "2"))
	}

	refusedCommand(t, p, 1, []string{"no rebuild under way"}, "rebuild", "--abort")
	refusedCommand(t, p, 1, []string{"no earlier generation"}, "rebuild", "--back")
	// docs/contract.md: "A config with a mistake is refused at start, all mistakes listed
	// with file and line."
	faulty := written(t, strings.Replace(moreColumns, "add: user.original,", "add: user.origin,", 1)+"shards: 0\n")
	refusedCommand(t, p, 2, []string{"next.yaml:10", "user.origin", "next.yaml:28", "shards: 0", "2 mistakes"}, "rebuild", "--config", faulty)
	refusedCommand(t, p, 2, []string{"nowhere.yaml"}, "rebuild", "--config", "nowhere.yaml")
	nothing("none")

	// "Of two rebuilds at once the second is refused"
	doSoon(t, p, "rebuild", "--yes", "--config", next)
	refusedCommand(t, p, 1, []string{"a rebuild is under way", "--status", "--abort"}, "rebuild", "--yes", "--config", next)
	until(t, p, "switched", serves(2))
	liked(t, p, 100)

	// "A rebuild needs all of the log: where the beginning of EVENTS is
	// gone and not archived, it is refused with what is missing."
	streams, err := jetlog.AttachEvents(t.Context(), p.Connect(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if went, err := streams.Trim(t.Context(), 11, "/backups", nil); err != nil || went != 10 {
		t.Fatalf("%d messages are trimmed: %v", went, err)
	}
	refusedCommand(t, p, 1, []string{"begins with message 11", "10 messages are missing", "/backups"}, "rebuild", "--yes", "--config", next)
	if s, err := statusOf(p); err != nil || s.Serving != 2 || s.Building != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	liked(t, p, 100)
}

// "A rebuild for which there is too little memory or disk is refused
// before it starts, with the numbers".
func TestRebuildMemory(t *testing.T) {
	t.Parallel()
	p := e2e.Prepare(t, e2e.Setup{Settings: "memory: {budget: 66MiB}\nrebuild: {memory: 40MiB}\n"})
	p.Spawn()
	said(t, p, "rebuild.memory is 40MiB of a memory.budget of 66MiB")
	p.Kill()
	p.Configure("shards: 4\nmemory: {budget: 35MiB}\n")
	p.Start()
	likes(t, p.URL, 10)
	liked(t, p, 10)
	refusedCommand(t, p, 1, []string{"memory.budget is 35MiB, and two generations need 68MiB"}, "rebuild", "--yes", "--config", written(t, "shards: 4\n"+moreColumns))
	if s, err := statusOf(p); err != nil || s.State != "none" {
		t.Errorf("%+v, %v", s, err)
	}
	gone(t, filepath.Join(p.Dir, "data", "generations"))
}

// slotOf is what there is of generations on a server: streams of windows, and keys
// of the bucket but for the record itself.
func slotOf(t *testing.T, nc *nats.Conn) (found []string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if strings.HasPrefix(name, jetlog.DeltasStream) {
			found = append(found, name)
		}
	}
	bucket, err := js.KeyValue(t.Context(), jetlog.Bucket)
	if err != nil || names.Err() != nil {
		t.Fatal(err, names.Err())
	}
	keys, err := bucket.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, slices.DeleteFunc(keys, func(key string) bool { return key == "generations" })...)
	slices.Sort(found)
	return found
}

// waitAssigned waits until shards are assigned.
func waitAssigned(t *testing.T, nc *nats.Conn) {
	t.Helper()
	e2e.Until(t, "shards are assigned", func() bool { return slices.Contains(slotOf(t, nc), "assignment") })
}

// "`rebuild --abort` leaves nothing of what was built: no directory, no
// stream, no keys": at any moment of it, and the one that serves goes on. Then a rebuild
// is as good as ever.
func TestRebuildAborted(t *testing.T) {
	t.Parallel()
	f := newRebuildFeed(t, follows-10_000, follows+10_000)
	p := e2e.Run(t, "shards: 4\ncheckpoint: {interval: 100ms, rows: 4096}\n")
	f.importHalf(t, p)
	nc := p.Connect()
	c := f.checker(t, nc, 4)
	c.patience = answeredWithin
	end := c.begin(f.seed)
	arrives := f.arrives(t, nc, 1, 8*time.Second)
	waitAssigned(t, nc)
	before := slotOf(t, nc)
	next := written(t, "shards: 8\n"+moreColumns)
	for i := range 3 {
		doSoon(t, p, "rebuild", "--yes", "--config", next)
		time.Sleep(time.Duration(f.rand.IntN(700)) * time.Millisecond)
		number := uint32(i + 2)
		if out, err := p.Command(t.Context(), "rebuild", "--abort").CombinedOutput(); err != nil {
			if s := stateOf(t, p); s.Serving != number {
				t.Fatalf("%v: %s; %+v", err, out, s)
			}
			t.Log("it was quicker") // and it is the last one
			break
		}
		if s := stateOf(t, p); s.State != "aborted" || s.Serving != 1 || s.Building != 0 || s.Why == "" {
			t.Errorf("%+v", s)
		}
		gone(t, filepath.Join(p.Dir, "data", "generations", fmt.Sprint(number)))
		for deadline := time.Now().Add(e2e.Patience); ; time.Sleep(100 * time.Millisecond) {
			left := slotOf(t, nc)
			if slices.Equal(left, before) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("there was %v before the rebuild, and %v after it was aborted", before, left)
			}
		}
		if i == 1 { // also as a start finds it
			f.killing(c, p)
		}
	}
	if stateOf(t, p).Serving == 1 {
		doSoon(t, p, "rebuild", "--yes", "--config", next)
		until(t, p, "switched", func(s rebuildStatus) bool { return s.Serving != 1 })
	}
	<-arrives
	end()
	f.ends(t, p, nc)
}

// "A disk that is full while a generation builds leaves the serving one
// untouched": it answers and goes on, and the rebuild goes on when there is room.
func TestRebuildDiskFull(t *testing.T) {
	t.Parallel()
	disk, err := e2e.NewDisk(t, filepath.Join(t.TempDir(), "disk"), 512<<20)
	if err != nil {
		t.Skip(err)
	}
	f := newRebuildFeed(t, follows-10_000, follows+10_000)
	p := e2e.Prepare(t, e2e.Setup{
		URL: natstest.Apart(t).URL, DataDir: filepath.Join(disk.Path, "data"),
		Settings: "shards: 4\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 512}\n",
	})
	p.Start()
	f.importHalf(t, p)
	nc := p.Connect()
	c := f.checker(t, nc, 4)
	c.patience = answeredWithin
	end := c.begin(f.seed)
	doSoon(t, p, "rebuild", "--yes", "--config", written(t, "shards: 8\n"+moreColumns))
	time.Sleep(time.Duration(f.rand.IntN(600)) * time.Millisecond)
	disk.Fill(t)
	<-f.arrives(t, nc, 0.02, time.Second) // that there is something to write
	t.Log(logged(t, p, "the disk "))
	time.Sleep(time.Second)
	disk.Free(t)
	arrives := f.arrives(t, nc, 1, 2*time.Second)
	until(t, p, "switched", serves(2))
	<-arrives
	end()
	p.WaitReady()
	f.ends(t, p, nc)
}

// `tidemark rebuild --wait` is killed and run again: the rebuild goes on without it, and
// who waits again sees the end.
func TestRebuildWaits(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	likes(t, p.URL, 5000)
	liked(t, p, 5000)
	next := written(t, "shards: 8\n"+moreColumns)
	command := p.Command(t.Context(), "rebuild", "--yes", "--config", next, "--wait")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, p, "begun", func(s rebuildStatus) bool { return s.Building == 2 || s.Serving == 2 })
	_ = command.Process.Kill()
	_ = command.Wait()
	if out := p.Do("rebuild", "--status", "--wait"); !strings.Contains(out, "generation 2 serves") {
		t.Errorf("it says %q", out)
	}
	var s rebuildStatus
	if out := doSoon(t, p, "rebuild", "--yes", "--config", next, "--wait", "--json"); json.Unmarshal([]byte(out), &s) != nil || s.Serving != 3 || s.Kept != 2 {
		t.Errorf("it says %q", out)
	}
	liked(t, p, 5000)
	entries, err := os.ReadDir(filepath.Join(p.Dir, "data", "generations"))
	if err != nil || len(entries) > 2 || entries[len(entries)-1].Name() != "3" {
		t.Errorf("there are %v, %v", entries, err)
	}
}
