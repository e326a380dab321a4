package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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

// next is the position of the event after the one at p.
func next(t testing.TB, p any) string {
	t.Helper()
	n, err := strconv.ParseUint(fmt.Sprint(p), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(n+1024, 10)
}

func TestThreads(t *testing.T) {
	for _, c := range []struct {
		processors, machine int
		environment         string
		want                int
	}{
		{4, 4, "", 8},
		{2, 8, "", 2}, // a quota
		{4, 4, "4", 4},
		{3, 8, "3", 3},
	} {
		if got := threads(c.processors, c.machine, c.environment); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// docs/contract.md: "SIGTERM: stop taking work, checkpoint, close": and a restart keeps
// all.
func TestStop(t *testing.T) {
	p := newPlace(t)
	for i, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGTERM} {
		n := p.start(t)
		n.want(strconv.Itoa(i+1), "incr", "42.cntcm")
		if code := n.stop(signal); code != 0 {
			t.Errorf("exit code %d after %s:\n%s", code, signal, n.log.String())
		}
		if n.out.String() != "" {
			t.Errorf("standard output: %s", n.out.String())
		}
	}
}

// docs/contract.md: "kill -9 at any moment loses and doubles nothing"
func TestKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for i := range 3 {
		n := p.start(t)
		n.want(strconv.Itoa(i+1), "incr", "42.cntcm")
		if code := n.stop(syscall.SIGKILL); code != -1 {
			t.Errorf("exit code %d", code)
		}
	}
	p.start(t).want("3", "get", "42.cntcm")
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, key := range []string{"http", "nats"} {
		p := newPlace(t)
		p.configure(t, key+": {listen: '"+l.Addr().String()+"'}\n")
		p.refuses(t, l.Addr().String(), "in use")
		absent(t, p.data)
	}
}

// refuses starts a node that must not start.
func (p place) refuses(t testing.TB, why ...string) {
	t.Helper()
	tidemark(t, "run", "--config", p.config).fails(t, 1, why...)
}

func TestServerOutOfReach(t *testing.T) {
	p := newPlace(t)
	address := freeAddress(t)
	p.configure(t, "nats: {url: 'nats://u:secret@"+address+"'}\n")
	p.refuses(t, "nats://u:xxxxx@"+address)
	absent(t, p.data)
}

func TestDataDirOfAnother(t *testing.T) {
	p := newPlace(t)
	n := p.start(t)
	n.want("5", "incr", "42.cntcm", "5")

	// "A second process on the same `data_dir` is refused, with words"
	p.refuses(t, p.data, "in use by another tidemark process")
	n.want("5", "get", "42.cntcm")
	if code := n.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}

	p.configure(t, "shards: 8\n")
	n = p.start(t)
	n.want("5", "get", "42.cntcm")
	differs := func() bool { return strings.Contains(n.do("nodes").out, "counts differently from what serves") }
	e2e.Until(t, "it says that its file differs", differs)
	adopt := []string{"config", "adopt", "--config", p.config}
	if r := n.do(adopt...); r.code != 0 || !strings.Contains(r.out, "shards 8 → 4") || !strings.Contains(r.out, p.config+".bak is the file as it was") {
		t.Errorf("%+v", r)
	}
	if r := n.do(adopt...); r.code != 0 || !strings.Contains(r.out, "nothing is changed") {
		t.Errorf("%+v", r)
	}
	n.stop(syscall.SIGTERM)
	n = p.start(t)
	n.want("5", "get", "42.cntcm")
	if differs() {
		t.Error(n.do("nodes").out)
	}
	n.stop(syscall.SIGTERM)

	p.configure(t, "shards: 8\n")
	if r := tidemark(t, "repair", "--replay", "--config", p.config); r.code != 0 || !strings.Contains(r.out, p.data) {
		t.Fatalf("%+v", r)
	}
	n = p.start(t)
	e2e.Until(t, "counted again", func() bool { return n.do("get", "42.cntcm").out == "5\n" })
}

func TestDataDirOfSomethingElse(t *testing.T) {
	p := newPlace(t)
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(p.data, "letters.txt")
	if err := os.WriteFile(precious, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refuses(t, p.data, "not tidemark's", "choose another data_dir")
	entries, err := os.ReadDir(p.data)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory was touched: %v %v", entries, err)
	}
}

// A start that fails in an empty directory leaves it empty.
func TestEmptyDataDirStaysEmpty(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPlace(t)
	p.configure(t, "nats: {listen: '"+l.Addr().String()+"'}\n")
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	p.refuses(t, "in use")
	if entries, err := os.ReadDir(p.data); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestDataDirDamaged(t *testing.T) {
	p := newPlace(t)
	n := p.start(t)
	n.want("5", "incr", "42.cntcm", "5")
	n.stop(syscall.SIGTERM)
	manifest := filepath.Join(p.data, "badger", "MANIFEST")
	if err := os.WriteFile(manifest, []byte("not this"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := tidemark(t, "run", "--config", p.config)
	last := r.err[strings.LastIndex(strings.TrimSpace(r.err), "\n")+1:]
	if r.code != 1 || !strings.HasPrefix(last, "tidemark: ") || strings.Contains(r.err, "goroutine ") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	if !strings.Contains(last, "--replay") {
		t.Logf("does not say what to do: %s", last)
	}
}

// Some garbage gathers before it is collected, however little the process keeps.
func TestHeapFloor(t *testing.T) {
	defer runtime.KeepAlive(ballast())
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range heapFloor / 2 / config.MiB {
		garbage = make([]byte, config.MiB)
	}
	runtime.ReadMemStats(&after)
	if after.NumGC != before.NumGC {
		t.Errorf("%d MiB of garbage were collected %d times", heapFloor/2/config.MiB, after.NumGC-before.NumGC)
	}
}

var garbage []byte
