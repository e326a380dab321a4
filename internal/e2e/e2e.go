// Package e2e runs the real program for tests: built once, started on free
// ports and a temporary directory, killed at will.
//
// A [Process] is all of that (e2e.go). [Lines] has what it prints while more comes (lines.go),
// [Unpack] what it packs (packed.go), and [Disk] is a file system of its own that can be
// full (disk_linux.go, disk_other.go).
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark"
	"github.com/tidemark-io/tidemark/internal/walls"
)

// Root is the repository's root directory.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tidemark-e2e-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "tidemark")
	return binary, Build(binary, "./cmd/tidemark")
})

// Build compiles a program of this repository, with further flags of go build. It is without
// cgo, like what make build makes; what make check has compiled serves it.
func Build(binary, pkg string, flags ...string) error {
	c := exec.Command("go", append(append([]string{"build", "-o", binary}, flags...), pkg)...)
	c.Dir, c.Env = Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// Binary is the program's path; it is built on the first call.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Clean removes the program; for TestMain.
func Clean() {
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
}

// Process is one `tidemark run`, which may be killed and started again on the
// same data and ports.
type Process struct {
	once   bool // the default rules are as they are
	t      testing.TB
	binary string
	env    []string
	config string
	fixed  string // what every version of the config says
	URL    string // of its NATS server
	Key    string // file of the key that is inside; "": the server is somebody else's
	HTTP   string // http://host:port
	Dir    string // holds the config and the data

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	log  *os.File
}

// Free ports lie below those that systems choose themselves (Linux from 32768 on): no
// other process gets one while its owner does not listen, because it is not started yet
// or was killed.
const (
	portMin, portMax = 10_000, 32_767
	portTries        = 1000
)

var portsGiven sync.Map // int: in this process, each once

// FreePort is a port that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	for range portTries {
		port := portMin + rand.IntN(portMax-portMin+1)
		if _, given := portsGiven.LoadOrStore(port, true); given {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("none of %d ports from %d to %d is free", portTries, portMin, portMax)
	return 0
}

// Run starts a node with its own embedded server. settings are further lines
// of its config file.
func Run(t testing.TB, settings string) *Process {
	t.Helper()
	p := Prepare(t, Setup{Settings: settings})
	p.Start()
	return p
}

// RunOn starts a node on somebody else's server.
func RunOn(t testing.TB, url, settings string) *Process {
	t.Helper()
	p := Prepare(t, Setup{URL: url, Settings: settings})
	p.Start()
	return p
}

// Setup says how a process is to be. Zero fields take their defaults.
type Setup struct {
	Settings string   // further lines of the config file
	URL      string   // of somebody else's server, or several with commas; default: its own, embedded
	NATS     string   // further keys of nats: "replicas: 3, nkey: FILE"
	Key      string   // file of a key that is inside; default: of an embedded server, the node's own
	Dir      string   // for the config and the log; default: a temporary one
	DataDir  string   // default: "data" in Dir
	Binary   string   // default: Binary
	Env      []string // besides this process's own
	// Once: the default rules count a like once. Else each like counts, or what counts
	// twice would not be seen.
	Once bool
}

// Prepare makes a process that is not started yet. It is killed when the test
// ends.
func Prepare(t testing.TB, s Setup) *Process {
	t.Helper()
	p := &Process{t: t, binary: s.Binary, env: s.Env, once: s.Once, URL: s.URL, Dir: s.Dir}
	if p.binary == "" {
		p.binary = Binary(t)
	}
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	if s.Key != "" {
		s.NATS = fmt.Sprintf("nkey: %q, %s", s.Key, s.NATS)
	}
	nats := fmt.Sprintf("nats: {url: %q, %s}\n", s.URL, s.NATS)
	if s.URL == "" {
		port := FreePort(t)
		p.URL = fmt.Sprintf("nats://127.0.0.1:%d", port)
		nats = fmt.Sprintf("nats: {listen: \"127.0.0.1:%d\", %s}\n", port, s.NATS)
	}
	data := s.DataDir
	if data == "" {
		data = filepath.Join(p.Dir, "data")
	}
	p.Key = s.Key
	if s.URL == "" && s.Key == "" {
		p.Key = filepath.Join(data, walls.KeyFile)
	}
	port := FreePort(t)
	p.HTTP = fmt.Sprintf("http://127.0.0.1:%d", port)
	p.config = filepath.Join(p.Dir, "config.yaml")
	p.fixed = fmt.Sprintf("data_dir: %s\nhttp: {listen: \"127.0.0.1:%d\"}\n%s", data, port, nats)
	p.Configure(s.Settings)
	log, err := os.Create(filepath.Join(p.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p.log = log
	t.Cleanup(func() {
		p.Kill()
		log.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.URL, tail(log.Name()))
		}
	})
	return p
}

// Configure replaces the settings, for the next Start.
func (p *Process) Configure(settings string) {
	p.t.Helper()
	if !p.once {
		settings = EachLikeCounts(settings)
	}
	if err := os.WriteFile(p.config, []byte(p.fixed+settings), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// once is what config.yaml states after a rule's other keys.
var once = regexp.MustCompile(`, *once: (\w+|\[[^]]*\])`)

// EachLikeCounts adds to settings without rules of their own the default ones, but that
// no like is in a set: a test that counts likes sees what counts twice.
func EachLikeCounts(settings string) string {
	if strings.Contains("\n"+settings, "\nrules:") {
		return settings
	}
	rules := regexp.MustCompile(`(?m)^rules:\n(?: .*\n|\n)+`).Find(tidemark.DefaultConfig)
	return strings.TrimSuffix(settings, "\n") + "\n" + once.ReplaceAllString(string(rules), "")
}

// Use has the next Start, and commands from now on, be of another program.
func (p *Process) Use(binary string) { p.binary = binary }

// Config is the path of the config file.
func (p *Process) Config() string { return p.config }

// Log is the path of what the process has printed, over all its starts.
func (p *Process) Log() string { return p.log.Name() }

// tail is the end of a log, for a failed test.
func tail(path string) string {
	b, _ := os.ReadFile(path)
	if n := len(b) - 8000; n > 0 {
		b = append([]byte("…"), b[n:]...)
	}
	return string(b)
}

// Start starts the process and returns once it answers.
func (p *Process) Start() {
	p.t.Helper()
	p.Spawn()
	p.WaitHealthy()
}

// Spawn starts the process and does not wait.
func (p *Process) Spawn() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.binary, "run", "--config", p.config)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.Env = append(os.Environ(), p.env...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	p.cmd, p.done = cmd, done
}

// Patience bounds a wait for what must come true in the end. A test that passes does not
// wait longer for it, and one beside which others run does not fail because they do.
const Patience = 2 * time.Minute

// Until waits until something is true.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("within %v it is not so: %s", Patience, what)
		}
	}
}

// WaitHealthy returns once the process serves HTTP.
func (p *Process) WaitHealthy() {
	p.t.Helper()
	p.wait("/healthz", Patience)
}

// WaitReady returns once the process has caught up.
func (p *Process) WaitReady() {
	p.t.Helper()
	p.wait("/readyz", 5*time.Minute)
}

func (p *Process) wait(path string, within time.Duration) {
	p.t.Helper()
	var last string
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("the process ended: %s\n%s", p.cmd.ProcessState, tail(p.log.Name()))
		default:
		}
		r, err := http.Get(p.HTTP + path)
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
		last = string(body)
	}
	said, _ := p.log.Seek(0, io.SeekEnd)
	p.end(syscall.SIGQUIT) // it prints where it stands
	stands, _ := os.ReadFile(p.log.Name())
	p.t.Fatalf("%s not good within %v: %s\n%.30000s", path, within, last, stands[said:])
}

// Signal sends a signal and does not wait. A process that has ended takes none.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.cmd.Process.Signal(s)
	}
}

// Ended is how the process ended; nil while it runs, or was never started.
func (p *Process) Ended() *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Kill is kill -9, and waits for the end.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop is SIGTERM, and waits for the end.
func (p *Process) Stop() *os.ProcessState { return p.end(syscall.SIGTERM) }

func (p *Process) end(s syscall.Signal) *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	p.cmd.Process.Signal(s)
	<-p.done
	return p.cmd.ProcessState
}

// Connect is a connection to the process's server, inside; it reconnects.
func (p *Process) Connect() *nats.Conn {
	p.t.Helper()
	return p.connect(Inside(p.t, p.Key))
}

// ConnectPlain is the same without credentials.
func (p *Process) ConnectPlain() *nats.Conn {
	p.t.Helper()
	return p.connect(nil)
}

// Inside is the option of a connection that has a key; "": of one that has none.
func Inside(t testing.TB, key string) nats.Option {
	t.Helper()
	if key == "" {
		return nil
	}
	option, err := nats.NkeyOptionFromSeed(key)
	if err != nil {
		t.Fatal(err)
	}
	return option
}

func (p *Process) connect(inside nats.Option) *nats.Conn {
	p.t.Helper()
	nc, err := nats.Connect(p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), inside)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	return nc
}

// Anonymous is the process's memory that no file stands behind, in bytes: what
// it holds itself, without the pages of mapped files, which the system takes
// back when it wants them. ok is false where the system does not tell.
func (p *Process) Anonymous() (bytes int, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	_, rest, found := strings.Cut(string(status), "RssAnon:")
	if !found {
		return 0, false
	}
	_, err = fmt.Sscanf(rest, "%d kB", &bytes)
	return bytes << 10, err == nil
}

// Command prepares the program with other arguments, against this process's server.
func (p *Process) Command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.binary, args...)
	c.Env = append(os.Environ(), "NATS_URL="+p.URL)
	if _, err := os.Stat(p.Key); err == nil { // a process that is lost has none
		c.Env = append(c.Env, "TIDEMARK_NKEY="+p.Key)
	}
	return c
}

// Do runs a command and returns what it prints; it must succeed.
func (p *Process) Do(args ...string) string {
	p.t.Helper()
	var out, errs bytes.Buffer
	c := p.Command(context.Background(), args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		p.t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}
