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
	binary, sharedDir = filepath.Join(dir, "tidemark"), filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(sharedDir, 0o700), e2e.Build(binary, "./cmd/tidemark")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { endShared() }()
	os.Unsetenv("NATS_URL")
	environ = os.Environ()
	exit = func(code int) { panic(exited(code)) }
	natstest.SideBySide(4)
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
	within(t, env, func() {
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
	return commandIn(t, t.TempDir(), env, args...)
}

// commandIn runs the program to its end in a directory.
func commandIn(t testing.TB, dir string, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(environ, env)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return result{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

// environment is this process's: commands that need another one have it alone.
var environment sync.RWMutex

// within does something with more in the environment.
func within(t testing.TB, env []string, do func()) {
	t.Helper()
	if len(env) == 0 {
		environment.RLock()
		defer environment.RUnlock()
		do()
		return
	}
	environment.Lock()
	defer environment.Unlock()
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		if err := os.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
		defer os.Unsetenv(name)
	}
	do()
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
	p := placeIn(t.TempDir())
	p.configure(t, "")
	return p
}

func placeIn(dir string) place {
	return place{dir, filepath.Join(dir, "data"), filepath.Join(dir, "tidemark.yaml")}
}

// smallStreams are settings of nats: a test needs little room.
const smallStreams = "streams: {events: {max_bytes: 1GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}"

// configure writes the configuration: small, on free ports, and more of it.
func (p place) configure(t testing.TB, more string) {
	t.Helper()
	if err := p.write(e2e.EachLikeCounts(more)); err != nil {
		t.Fatal(err)
	}
}

func (p place) write(more string) error {
	text := "data_dir: " + p.data + "\nlog: {format: json}\n" +
		"badger: {memtable: 8MiB}\ncheckpoint: {rows: 4000, interval: 100ms}\n" + more
	for key, value := range map[string]string{
		"\nshards:": "shards: 4\n",
		"\nhttp:":   "http: {listen: '127.0.0.1:0'}\n",
		"\nnats:":   "nats: {listen: '127.0.0.1:0', " + smallStreams + "}\n",
	} {
		if !strings.Contains(text, key) {
			text += value
		}
	}
	return os.WriteFile(p.config, []byte(text), 0o600)
}

// process is a running node, as a test has it.
type process struct {
	t testing.TB
	*daemon
}

// daemon is a running node.
type daemon struct {
	place
	cmd       *exec.Cmd
	nats, url string // of NATS, of HTTP
	key       string // the node's
	out, log  e2e.Lines
	running   chan struct{} // closed when it answers
	ended     chan struct{}
}

// sharedNode is the node that most tests ask, started by the first of them, and what ends it.
var (
	sharedDir  string
	sharedNode = sync.OnceValues(func() (*daemon, error) {
		p := placeIn(sharedDir)
		if err := p.write("node: a\n"); err != nil {
			return nil, err
		}
		d, err := p.launch()
		if err == nil {
			endShared = d.kill
		}
		return d, err
	})
	endShared = func() {}
)

// shared returns the node of all tests that change neither it nor its streams; users and posts keep
// them apart, and none of them runs beside others. A like counts once here, as by default; on the
// nodes of other places each does.
func shared(t testing.TB) *process {
	t.Helper()
	d, err := sharedNode()
	if err != nil {
		t.Fatal(err)
	}
	n := &process{t, d}
	n.await()
	return n
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
	d, err := p.launch(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("the node's log:\n%s", d.log.String())
		}
	})
	return &process{t, d}
}

func (p place) launch(flags ...string) (*daemon, error) {
	d := &daemon{place: p, key: filepath.Join(p.data, walls.KeyFile), running: make(chan struct{}), ended: make(chan struct{})}
	d.cmd = exec.Command(binary, append([]string{"run", "--config", p.config}, flags...)...)
	d.cmd.Dir, d.cmd.Env = p.dir, environ
	d.cmd.Stdout = &d.out
	pipe, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go d.read(pipe)
	return d, nil
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
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

func (d *daemon) read(pipe io.Reader) {
	defer close(d.ended)
	s := bufio.NewScanner(pipe)
	for s.Scan() {
		fmt.Fprintln(&d.log, s.Text())
		var line struct{ Msg, NATS, HTTP string }
		if json.Unmarshal(s.Bytes(), &line) == nil && strings.HasPrefix(line.Msg, "tidemark: running") {
			d.nats, d.url = line.NATS, "http://"+line.HTTP
			close(d.running)
		}
	}
	_ = d.cmd.Wait()
}

// do runs a command against the node.
func (n *process) do(args ...string) result {
	n.t.Helper()
	return n.feed("", args...)
}

func (n *process) feed(stdin string, args ...string) result {
	n.t.Helper()
	return command(n.t, nil, stdin, append(n.flags(), args...)...)
}

// flags lead a command to the node.
func (d *daemon) flags() []string {
	flags := []string{"--nats", d.nats}
	if _, err := os.Stat(d.key); err == nil { // the server is its own
		flags = append(flags, "--nkey", d.key)
	}
	return flags
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

// good runs a command that must not fail, and returns what it prints.
func (n *process) good(args ...string) string {
	n.t.Helper()
	r := n.do(args...)
	if r.code != 0 || r.err != "" {
		n.t.Errorf("tidemark %s: %+v", strings.Join(args, " "), r)
	}
	return r.out
}

// publish publishes events, one a line, and waits until they count.
func (n *process) publish(events ...string) {
	n.t.Helper()
	for _, event := range events {
		n.good(append([]string{"publish", "--wait"}, strings.Fields(event)...)...)
	}
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
