package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
)

func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", e2e.FreePort(t))
}

func TestThreads(t *testing.T) {
	for _, c := range []struct {
		processors, machine int
		environment         string
		want                int
	}{
		{4, 4, "", 16},
		{2, 8, "", 2}, // a quota
		{4, 4, "4", 4},
		{3, 8, "3", 3},
	} {
		if got := threads(c.processors, c.machine, c.environment); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// docs/contract.md: "SIGTERM: stop taking work, checkpoint, close": a restart keeps all;
// "kill -9 at any moment loses and doubles nothing". A directory belongs to one process, one name
// and one kind of server; a file that counts otherwise is said to.
func TestStartStopKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(t, "node: a\n")
	n := p.start(t)
	n.want("1", "incr", "42.cntcm")
	// "A second process on the same `data_dir` is refused, with words"
	p.refuses(t, p.data, "in use by another tidemark process")
	if code := n.stop(syscall.SIGTERM); code != 0 || n.out.String() != "" {
		t.Errorf("exit code %d:\n%s%s", code, n.out.String(), n.log.String())
	}

	p.configure(t, "node: b\n")
	p.refuses(t, "was made as node a", "set node: a")
	p.configure(t, "node: a\nnats: {cluster: {listen: '"+freeAddress(t)+"', routes: ['nats://"+freeAddress(t)+"']}, replicas: 3}\n")
	p.refuses(t, "were stored by a server on its own", "start without nats.cluster")
	p.configure(t, "") // the name is the directory's
	n = p.start(t)
	if out := n.good("slowlog"); !strings.HasPrefix(out, "a since ") {
		t.Errorf("%s", out)
	}
	n.want("2", "incr", "42.cntcm")
	if code := n.stop(syscall.SIGKILL); code != -1 {
		t.Errorf("exit code %d", code)
	}

	p.configure(t, "shards: 8\n")
	n = p.start(t)
	n.want("3", "incr", "42.cntcm")
	differs := func() bool { return strings.Contains(n.do("nodes").out, "counts differently from what serves") }
	e2e.Until(t, "it says that its file differs", differs)
	link := filepath.Join(t.TempDir(), "linked.yaml")
	if err := os.Symlink(p.config, link); err != nil {
		t.Fatal(err)
	}
	adopt := []string{"config", "adopt", "--config", link} // which stays a link
	if out := n.good(adopt...); !strings.Contains(out, "shards 8 → 4") || !strings.Contains(out, p.config+".bak is the file as it was") {
		t.Error(out)
	}
	if to, err := os.Readlink(link); err != nil || to != p.config {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if out := n.good(adopt...); !strings.Contains(out, "nothing is changed") {
		t.Error(out)
	}
	if code := n.stop(os.Interrupt); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// Of a damaged directory it says what to do, and that does it.
	counts := filepath.Join(p.data, "generations", "1", "badger")
	if err := os.WriteFile(filepath.Join(counts, "MANIFEST"), []byte("not this"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refuses(t, "if it is damaged, move it away and run 'tidemark repair --replay'")
	if err := os.RemoveAll(counts); err != nil {
		t.Fatal(err)
	}
	p.configure(t, "shards: 8\n")
	if r := tidemark(t, "repair", "--replay", "--config", p.config); r.code != 0 || !strings.Contains(r.out, p.data) {
		t.Fatalf("%+v", r)
	}
	n = p.start(t)
	e2e.Until(t, "counted again", func() bool { return n.do("get", "42.cntcm").out == "3\n" })
}

// refuses starts a node that must not start.
func (p place) refuses(t testing.TB, why ...string) {
	t.Helper()
	r := tidemark(t, "run", "--config", p.config)
	if strings.Contains(r.err, "goroutine ") {
		t.Errorf("it shows what users cannot read:\n%s", r.err)
	}
	r.err = r.err[strings.LastIndex(strings.TrimSpace(r.err), "\n")+1:] // behind the log
	r.fails(t, 1, why...)
}

// A start that fails makes no directory, leaves an empty one empty, and one of something else as it is.
func TestStartThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPlace(t)
	for settings, why := range map[string]string{
		"http: {listen: '" + l.Addr().String() + "'}\n": l.Addr().String(),
		"nats: {listen: '" + l.Addr().String() + "'}\n": "in use",
	} {
		p.configure(t, settings)
		p.refuses(t, why)
		absent(t, p.data)
	}
	p.configure(t, "nats: {listen: '"+l.Addr().String()+"'}\n")
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	p.refuses(t, "in use")
	if entries, err := os.ReadDir(p.data); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	p.configure(t, "")
	if err := os.WriteFile(filepath.Join(p.data, "letters.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refuses(t, p.data, "not tidemark's", "choose another data_dir")
	if entries, err := os.ReadDir(p.data); err != nil || len(entries) != 1 {
		t.Errorf("the directory was touched: %v %v", entries, err)
	}
}

// Some garbage gathers before it is collected, however little the process keeps.
func TestHeapFloor(t *testing.T) {
	defer runtime.KeepAlive(ballast())
	collectSooner()
	runtime.GC()
	const some = heapFloor / 2 * garbageShare / 100 / config.MiB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range some {
		garbage = make([]byte, config.MiB)
	}
	runtime.ReadMemStats(&after)
	if after.NumGC != before.NumGC {
		t.Errorf("%d MiB of garbage were collected %d times", some, after.NumGC-before.NumGC)
	}
}

var garbage []byte
