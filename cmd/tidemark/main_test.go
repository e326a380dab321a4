package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/walls"
)

// These tests use the program as its users do: the built binary, its exit
// codes and what it prints. Sentences in quotation marks are the contract's.

// binary is the program, built once, and environ what a process of its own begins with.
var (
	binary  string
	environ []string
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidemark-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "tidemark")
	if err := e2e.Build(binary, "./cmd/tidemark"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Unsetenv("NATS_URL")
	environ = os.Environ()
	exit = func(code int) { panic(exited(code)) }
	natstest.SideBySide()
	return m.Run()
}

// result is what a command left.
type result struct {
	out, err string
	code     int
}

// tidemark runs a command to its end.
func tidemark(t testing.TB, args ...string) result {
	t.Helper()
	return command(t, nil, "", args...)
}

// exited is what a command panics with where it would end the process.
type exited int

// command runs a command in this process, as main does. What ends, waits for signals or reads the
// working directory is a process of its own: see asProcess.
func command(t testing.TB, env []string, stdin string, args ...string) (r result) {
	t.Helper()
	var out, err bytes.Buffer
	environment.with(t, env, func() {
		defer func() {
			switch fault := recover().(type) {
			case nil:
			case exited:
				r.code = int(fault)
			default:
				panic(fault)
			}
		}()
		r.code = run(args, terminal{strings.NewReader(stdin), &out, &err})
	})
	r.out, r.err = out.String(), err.String()
	return r
}

// asProcess runs the program to its end in an empty directory.
func asProcess(t testing.TB, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat(environ, env)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return result{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

// environment is this process's: commands of tests that run side by side have it by turns, and
// those that need the same share it.
var environment = &turns{changed: make(chan struct{})}

type turns struct {
	mu      sync.Mutex
	changed chan struct{} // closed when nobody has it any longer
	users   int
	env     []string
}

func (e *turns) with(t testing.TB, env []string, do func()) {
	t.Helper()
	for !e.take(t, env) {
	}
	defer e.give()
	do()
}

// take waits until nobody needs another environment. It reports false if somebody was quicker.
func (e *turns) take(t testing.TB, env []string) bool {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users > 0 && !slices.Equal(e.env, env) {
		changed := e.changed
		e.mu.Unlock()
		<-changed
		e.mu.Lock()
		return false
	}
	if e.users++; e.users == 1 {
		e.env = env
		for _, line := range env {
			name, value, _ := strings.Cut(line, "=")
			if err := os.Setenv(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return true
}

func (e *turns) give() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	for _, line := range e.env {
		name, _, _ := strings.Cut(line, "=")
		_ = os.Unsetenv(name)
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// fails checks an exit code and that one line says why.
func (r result) fails(t testing.TB, code int, why ...string) {
	t.Helper()
	if r.code != code || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "tidemark: ") {
		t.Errorf("exit code %d, want %d with one line; standard error:\n%s", r.code, code, r.err)
	}
	for _, text := range why {
		if !strings.Contains(r.err, text) {
			t.Errorf("%q does not say %q", r.err, text)
		}
	}
}

// place is a data directory and a configuration for it.
type place struct{ dir, data, config string }

func newPlace(t testing.TB) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir, filepath.Join(dir, "data"), filepath.Join(dir, "tidemark.yaml")}
	p.configure(t, "")
	return p
}

// configure writes the configuration: small, on free ports, and more of it.
func (p place) configure(t testing.TB, more string) {
	t.Helper()
	text := "data_dir: " + p.data + "\nlog: {format: json}\n" +
		"badger: {memtable: 8MiB}\ncheckpoint: {rows: 4000, interval: 100ms}\n" + e2e.EachLikeCounts(more)
	for key, value := range map[string]string{
		"\nshards:": "shards: 4\n",
		"\nhttp:":   "http: {listen: '127.0.0.1:0'}\n",
		"\nnats:":   "nats: {listen: '127.0.0.1:0', streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}}\n",
	} {
		if !strings.Contains(text, key) {
			text += value
		}
	}
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// process is a running node.
type process struct {
	t         testing.TB
	cmd       *exec.Cmd
	nats, url string // of NATS, of HTTP
	key       string // the node's
	out, log  e2e.Lines
	running   chan struct{} // closed when it answers
	ended     chan struct{}
}

// start runs a node and returns when it answers.
func (p place) start(t testing.TB, flags ...string) *process {
	t.Helper()
	n := p.spawn(t, flags...)
	n.await()
	return n
}

// spawn runs a node and does not wait.
func (p place) spawn(t testing.TB, flags ...string) *process {
	t.Helper()
	n := &process{t: t, key: filepath.Join(p.data, walls.KeyFile), running: make(chan struct{}), ended: make(chan struct{})}
	n.cmd = exec.Command(binary, append([]string{"run", "--config", p.config}, flags...)...)
	n.cmd.Dir, n.cmd.Env = p.dir, environ
	n.cmd.Stdout = &n.out
	pipe, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go n.read(pipe)
	t.Cleanup(func() {
		n.cmd.Process.Kill()
		<-n.ended
		if t.Failed() {
			t.Logf("the node's log:\n%s", n.log.String())
		}
	})
	return n
}

// await returns when the node answers.
func (n *process) await() {
	n.t.Helper()
	select {
	case <-n.running:
	case <-n.ended:
		n.t.Fatalf("the node ended:\n%s", n.log.String())
	case <-time.After(e2e.Patience):
		n.t.Fatalf("the node does not start:\n%s", n.log.String())
	}
}

func (n *process) read(pipe io.Reader) {
	defer close(n.ended)
	s := bufio.NewScanner(pipe)
	for s.Scan() {
		fmt.Fprintln(&n.log, s.Text())
		var line struct{ Msg, NATS, HTTP string }
		if json.Unmarshal(s.Bytes(), &line) == nil && strings.HasPrefix(line.Msg, "tidemark: running") {
			n.nats, n.url = line.NATS, "http://"+line.HTTP
			close(n.running)
		}
	}
	_ = n.cmd.Wait()
}

// do runs a command against the node.
func (n *process) do(args ...string) result {
	n.t.Helper()
	return n.feed("", args...)
}

func (n *process) feed(stdin string, args ...string) result {
	n.t.Helper()
	return command(n.t, n.env(), stdin, args...)
}

// env leads a command to the node.
func (n *process) env() []string {
	env := []string{"NATS_URL=" + n.nats}
	if _, err := os.Stat(n.key); err == nil { // the server is its own
		env = append(env, "TIDEMARK_NKEY="+n.key)
	}
	return env
}

// connect gives a producer's way in.
func (n *process) connect(t testing.TB) nats.JetStreamContext {
	t.Helper()
	js, err := n.inside(t).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// inside is a connection with the node's key.
func (n *process) inside(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(n.nats, e2e.Inside(t, n.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// want runs a command that must print exactly that.
func (n *process) want(out string, args ...string) {
	n.t.Helper()
	if r := n.do(args...); r.code != 0 || r.out != out+"\n" || r.err != "" {
		n.t.Errorf("tidemark %s: exit code %d\n%s%s\nwant\n%s", strings.Join(args, " "), r.code, r.out, r.err, out)
	}
}

// stop sends a signal and gives the exit code, -1 when the signal ended it.
func (n *process) stop(s os.Signal) int {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.ended:
	case <-time.After(e2e.Patience):
		_ = n.cmd.Process.Signal(syscall.SIGQUIT)
		n.t.Fatal("the node does not stop")
	}
	return n.cmd.ProcessState.ExitCode()
}

func (n *process) page(path string) (status int, body string) {
	n.t.Helper()
	reply, err := http.Get(n.url + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

// absent checks that nothing is left behind.
func absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left behind", path)
	}
}
