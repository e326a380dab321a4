package acceptance_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// freePorts is the first of some ports in a row that nobody has.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for first := 20_000; first < 30_000; first += 10 {
		var taken []net.Listener
		for i := range n {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(first+i))
			if err != nil {
				break
			}
			taken = append(taken, l)
		}
		for _, l := range taken {
			l.Close()
		}
		if len(taken) == n {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

// 'make cluster' starts three nodes and one that only answers, prints what to look at and what to
// kill, starts again what was killed, and stops all in order.
func TestClusterScript(t *testing.T) {
	natstest.Long(t)
	dir := t.TempDir()
	first := freePorts(t, 10)
	nats, route, http := strconv.Itoa(first), strconv.Itoa(first+3), strconv.Itoa(first+6)
	script := exec.Command("../../examples/cluster.sh")
	script.Env = append(os.Environ(), "TIDEMARK="+e2e.Binary(t), "DIR="+dir, "RESTART=3", "NATS="+nats, "ROUTE="+route, "HTTP="+http)
	var out e2e.Lines
	script.Stdout, script.Stderr = &out, &out
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	pid := func(node string) int {
		text, _ := os.ReadFile(filepath.Join(dir, node, "pid"))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return pid
	}
	t.Cleanup(func() {
		_ = script.Process.Kill()
		for _, node := range []string{"a", "b", "c", "thin"} {
			if pid := pid(node); pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	e2e.Until(t, "it says what to kill", func() bool { return out.Has("kill -9 " + strconv.Itoa(pid("c")) + "    node c") })
	answers := func() string {
		said, _ := exec.Command(e2e.Binary(t), "unread", "1", "--nats", "nats://127.0.0.1:"+nats).Output()
		return string(said)
	}
	e2e.Until(t, "it answers", func() bool { return strings.Contains(answers(), "games") })
	if err := syscall.Kill(pid("c"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "it says that c has ended", func() bool { return out.Has("node c has ended (137). It starts again in 3 s") })
	e2e.Until(t, "the others answer", func() bool { return strings.Contains(answers(), "games") })
	e2e.Until(t, "c is there again", func() bool { return out.Has("node c is started again") })
	if err := script.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := script.Wait(); err != nil || !strings.HasSuffix(out.String(), "\nThe nodes have stopped.\n") {
		t.Errorf("stopped: %v", err)
	}
}
