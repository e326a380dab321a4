package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestMain(m *testing.M) {
	code := m.Run()
	e2e.Clean()
	os.Exit(code)
}

// output is what the program has printed so far.
type output struct{ e2e.Lines }

// until waits for a match and gives its groups.
func (o *output) until(t *testing.T, pattern string) []string {
	t.Helper()
	return o.untilAfter(t, 0, pattern)
}

// untilAfter is until for what is printed after the first bytes.
func (o *output) untilAfter(t *testing.T, first int, pattern string) []string {
	t.Helper()
	look := regexp.MustCompile(pattern)
	var found []string
	e2e.Until(t, "it prints "+pattern, func() bool {
		found = look.FindStringSubmatch(o.String()[first:])
		return found != nil
	})
	return found
}

// alive says whether a process runs, one of this machine's, whoever's child.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// pids are the processes that the program has said it started.
func pids(t *testing.T, printed string) (all []int) {
	t.Helper()
	for _, found := range regexp.MustCompile(`\bpid (\d+)`).FindAllStringSubmatch(printed, -1) {
		pid, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

func page(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if strings.Contains(reply.Header.Get("Content-Type"), "event-stream") {
		b := make([]byte, 4<<10)
		n, _ := io.ReadAtLeast(reply.Body, b, 1)
		return string(b[:n])
	}
	b, _ := io.ReadAll(reply.Body)
	return reply.Status + " " + string(b)
}

// The example starts three processes on this machine with a fourth that only answers,
// feeds them the demo's community, and prints what to kill and what to look at. It takes long: a
// killed node is away for so long that the line tells of it.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make test-all runs it")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "cluster")
	if err := e2e.Build(program, "./examples/cluster"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-tidemark", e2e.Binary(t), "-dir", filepath.Join(dir, "data"), "-free-ports", "-restart", "8s")
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for _, pid := range pids(t, out.String()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})

	// It says what there is, and where.
	out.until(t, `Ctrl-C stops all in order`)
	urls := out.until(t, `export NATS_URL=(\S+)`)[1]
	thin := out.until(t, `(?m)^  thin .* (http://\S+)$`)[1]
	out.until(t, `nodes 4 up; shards 64 of 64 answered, 64 on both holders; .* asked \d+ times: \d+ whole, slowest`)
	if body := page(t, thin+"/readyz"); body != "200 OK ok\n" {
		t.Errorf("the thin node's /readyz: %s", body)
	}
	if body := page(t, thin+"/demo/events?user=1"); !strings.Contains(body, `"made_up":true`) ||
		!strings.Contains(body, `{"node":"c","state":"up","holds":true},{"node":"thin","state":"up","holds":false}`) {
		t.Errorf("the page at /demo/ is told: %s", body)
	}
	stats, err := exec.Command(e2e.Binary(t), "stats", "--nats", urls).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(stats), "nodes    up: a, b, c, thin\nanswers  come from the 3 of them that hold shards\n") {
		t.Errorf("stats: %v\n%.400s", err, stats)
	}

	// One is killed: answers go on, and it comes back.
	pid, _ := strconv.Atoi(out.until(t, `kill -9 (\d+) +node c`)[1])
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out.until(t, fmt.Sprintf(`node c \(pid %d\) has ended: signal: killed. It starts again in 8s`, pid))
	out.until(t, `(?s)node c is started again, pid \d+.*nodes 4 up; shards 64 of 64 answered, 64 on both holders`)
	for _, found := range regexp.MustCompile(`asked (\d+) times: (\d+) whole(?:, \d+ in part)?(?:, (\d+) perhaps old)?.*`).FindAllStringSubmatch(out.String(), -1) {
		// The question that the killed one had may fail, no other. With the node its NATS
		// server went: until the others agree on leaders an answer says that it may be old.
		asked, _ := strconv.Atoi(found[1])
		whole, _ := strconv.Atoi(found[2])
		old, _ := strconv.Atoi(found[3])
		if asked-whole-old > 1 {
			t.Errorf("%s", found[0])
		}
	}

	// Another run on the same directory is refused.
	second := exec.Command(program, "-tidemark", e2e.Binary(t), "-dir", filepath.Join(dir, "data"), "-free-ports")
	if said, err := second.CombinedOutput(); err == nil || !strings.Contains(string(said), "is in use by another run of this") {
		t.Errorf("a second run: %v\n%s", err, said)
	}

	// Two of three are killed: the line says only what was heard. They stay away for
	// longer than a line takes.
	since := len(out.String())
	for _, node := range []string{"b", "c"} {
		started := regexp.MustCompile(`(?:kill -9 (\d+) +node `+node+`|node `+node+` is started again, pid (\d+))`).FindAllStringSubmatch(out.String(), -1)
		last := started[len(started)-1]
		pid, _ := strconv.Atoi(last[1] + last[2])
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	out.untilAfter(t, since, `how the nodes are is not known: the node that answers has heard of none for \d+s; \d+ events stored; asked \d+ times`)

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	all := pids(t, out.String())
	if len(all) < 5 {
		t.Errorf("it told of %d processes", len(all))
	}
	for _, pid := range all {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if text := out.String(); !strings.HasSuffix(text, "\nThe nodes stop.\n") {
		t.Errorf("not all stopped in order: %s", text)
	}
}

// A run with a port in use fails with words, and nothing is started.
func TestPortInUse(t *testing.T) {
	if taken, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(routePort+1)); err == nil {
		defer taken.Close() // else somebody else has it, which is as good
	}
	o := options{binary: e2e.Binary(t), dir: filepath.Join(t.TempDir(), "data"), rate: 1}
	var out output
	err := run(t.Context(), o, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "node ") || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "-free-ports") {
		t.Errorf("%v", err)
	}
	if out.String() != "" {
		t.Errorf("%s", out.String())
	}

	l := layout{{node: "a", nats: "127.0.0.1:0", route: "127.0.0.1:0", http: "127.0.0.1:0"}}
	if err := l.takePorts(); err != nil {
		t.Fatal(err)
	}
	again := layout{{node: "thin", thin: true, http: l[0].http}}
	if err := again.takePorts(); err != nil {
		t.Errorf("a port that was looked at is not given back: %v", err)
	}
}

// A node that ends while the others start ends the run with its words, and
// leaves none.
func TestNodeThatFails(t *testing.T) {
	o := options{binary: e2e.Binary(t), dir: filepath.Join(t.TempDir(), "data"), freePorts: true, rate: 1}
	foreign := filepath.Join(o.dir, "b", "data", "letters.txt")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte("dear"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out output
	err := run(t.Context(), o, &out)
	if err == nil || !strings.Contains(err.Error(), "node b has ended while it started") || !strings.Contains(err.Error(), "is not tidemark's") {
		t.Errorf("%v", err)
	}
	for _, p := range layoutOf(t, o) {
		if conn, err := net.Dial("tcp", p.http); err == nil {
			conn.Close()
			t.Errorf("node %s is left", p.node)
		}
	}
}

// layoutOf reads back where a run had its nodes.
func layoutOf(t *testing.T, o options) (l layout) {
	t.Helper()
	for _, node := range []string{"a", "b", "c", "thin"} {
		text, err := os.ReadFile(filepath.Join(o.dir, node, "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		address := regexp.MustCompile(`http: \{listen: "(\S+)"\}`).FindSubmatch(text)
		if address == nil {
			t.Fatalf("%s", text)
		}
		l = append(l, &place{node: node, http: string(address[1])})
	}
	return l
}
