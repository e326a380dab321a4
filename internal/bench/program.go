package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// dataDir is that of a program, in its directory.
const dataDir = "data"

// program is `tidemark run` on free ports: a process that may be ended and started again on
// its data.
type program struct {
	*child
	b    *bench
	dir  string
	url  string // of its NATS server
	http string
}

// prepare makes a directory for a program; settings are further lines of its configuration.
// Its server is the one at url; "": its own. spawn starts it.
func (b *bench) prepare(url, settings string) *program {
	if b.binary == "" {
		path := filepath.Join(b.dir, "tidemark")
		out, err := exec.Command(cmp.Or(os.Getenv("GO"), "go"), "build", "-o", path, "github.com/tidemark-io/tidemark/cmd/tidemark").CombinedOutput()
		if err != nil {
			check(fmt.Errorf("build the program: %w\n%s", err, out))
		}
		b.binary = path
	}
	page, server := freeAddress(), fmt.Sprintf("nats: {url: %q}", url)
	if url == "" {
		address := freeAddress()
		url, server = "nats://"+address, fmt.Sprintf("nats: {listen: %q, streams: {events: {max_bytes: 256GiB}}}", address)
	}
	p := &program{b: b, dir: must(os.MkdirTemp(b.dir, "node-")), url: url, http: "http://" + page}
	config := fmt.Sprintf("log: {level: error}\ndata_dir: %s\nhttp: {listen: %q}\nlimits: {timeout_max: 1h}\n%s\n%s\n", filepath.Join(p.dir, dataDir), page, server, settings)
	check(os.WriteFile(filepath.Join(p.dir, "config.yaml"), []byte(config), 0o644))
	return p
}

// launch prepares and starts a program with its own server, and connects to it once it is
// ready.
func (b *bench) launch(settings string) (*program, *client.Client) {
	p := b.prepare("", settings)
	p.spawn()
	return p, p.ready()
}

// spawn starts the process and does not wait.
func (p *program) spawn() {
	p.child = p.b.children.start(filepath.Join(p.dir, "log"), p.b.binary, "run", "--config", filepath.Join(p.dir, "config.yaml"))
}

// ready connects once /readyz says so.
func (p *program) ready() *client.Client {
	p.until("wait for /readyz", 5*time.Millisecond, func() error { return caught(func() { p.page("/readyz") }) })
	return p.connect()
}

// connect is a connection of one's own.
func (p *program) connect() *client.Client { return must(client.Connect(p.url)) }

// inside is a connection with the program's key, if the server is its own.
func (p *program) inside() *nats.Conn {
	key, err := nats.NkeyOptionFromSeed(filepath.Join(p.dir, dataDir, walls.KeyFile))
	if err != nil {
		return must(nats.Connect(p.url))
	}
	return must(nats.Connect(p.url, key))
}

// page is a page of the program's; what is not 200 is a failure.
func (p *program) page(path string) []byte {
	r := must(http.Get(p.http + path))
	defer r.Body.Close()
	text := must(io.ReadAll(r.Body))
	if r.StatusCode != http.StatusOK {
		check(fmt.Errorf("%s: %s: %s", path, r.Status, text))
	}
	return text
}

var figure = regexp.MustCompile(`(?m)^([^# ].*) (\S+)$`)

// figures are /metrics: name{labels} to value.
func (p *program) figures() map[string]float64 {
	all := make(map[string]float64)
	for _, m := range figure.FindAllSubmatch(p.page("/metrics"), -1) {
		all[string(m[1])] = must(strconv.ParseFloat(string(m[2]), 64))
	}
	return all
}

// busy is the processor time that the process has taken.
func (p *program) busy() time.Duration { return spentBy(p.figures()) }

func spentBy(figures map[string]float64) time.Duration {
	return time.Duration(figures["process_cpu_seconds_total"] * float64(time.Second))
}

// command runs the program with other arguments, and gives what it prints.
func (p *program) command(args ...string) []byte {
	c := exec.Command(p.b.binary, args...)
	c.Dir = p.dir // its config.yaml
	out, err := c.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("tidemark %s: %w: %s", args[0], err, failed.Stderr)
	}
	return must(out, err)
}

// discard ends the process and takes away its data.
func (p *program) discard() {
	if p.child != nil {
		p.end(syscall.SIGKILL)
	}
	os.RemoveAll(p.dir)
}

// applied waits until answers reflect everything up to a position.
func applied(c *client.Client, at pipeline.Position) error {
	_, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{1}, MinPosition: at, Timeout: time.Hour})
	return err
}

// rest waits until the program has nothing left to write and to merge: it has no changed
// rows, little to compute, and its runs have kept their size for a while. It gives that
// size. The audit and the filters of explain, which read the log at a bounded rate however
// long it is, are not waited for: little is more than they take.
func (p *program) rest() (bytes float64) {
	const times, scrape = 3, 50 * time.Millisecond // at most, of processor time
	every := p.b.size.round
	same, spent := 0, p.busy()
	time.Sleep(every)
	p.until("wait for a store at rest", every, func() error {
		figures := p.figures()
		now, dirty, took := figures["tidemark_run_bytes"], figures["tidemark_rows_dirty"], spentBy(figures)-spent
		same++
		if dirty > 0 || now != bytes || took > scrape+every/10 {
			same = 0
		}
		spent, bytes = spent+took, now
		if same < times {
			return fmt.Errorf("%v rows are changed, %v of processor time in %v, %v bytes of runs", dirty, took, every, now)
		}
		return nil
	})
	return bytes
}
