package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// product is where the packages lie that are built and tested from here.
const product = "github.com/tidemark-io/tidemark"

// build is the path of the program.
func (b *bench) build(ctx context.Context) (string, error) {
	if b.binary != "" {
		return b.binary, nil
	}
	path := filepath.Join(b.dir, "tidemark")
	c := exec.CommandContext(ctx, goCommand(), "build", "-o", path, product+"/cmd/tidemark")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	b.binary = path
	return path, nil
}

// goCommand is Go as the Makefile calls it.
func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

const (
	startWithin = 5 * time.Minute // for a start and what comes with it

	dataDir    = "data"      // of a program, in its directory
	streamsDir = "jetstream" // of its own server, in there
)

// program is `tidemark run` on free ports, with its own server unless it was
// prepared for another: a process that may be ended and started again on its
// data.
type program struct {
	*child
	b    *bench
	dir  string
	url  string // of its NATS server
	http string
}

// prepare makes a directory for a program with its own server; settings are
// further lines of its configuration. spawn starts it.
func (b *bench) prepare(ctx context.Context, settings string) (*program, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	return b.prepareOn(ctx, fmt.Sprintf("nats://127.0.0.1:%d", ports[0]),
		fmt.Sprintf("nats: {listen: \"127.0.0.1:%d\", streams: {events: {max_bytes: 256GiB}}}\n%s", ports[0], settings))
}

// prepareOn makes a directory for a program that is reached by a server at
// url; settings must say how it comes to that one.
func (b *bench) prepareOn(ctx context.Context, url, settings string) (*program, error) {
	if _, err := b.build(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "node-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	p := &program{b: b, dir: dir, url: url, http: fmt.Sprintf("http://127.0.0.1:%d", ports[0])}
	config := fmt.Sprintf("data_dir: %s\nhttp: {listen: \"127.0.0.1:%d\"}\nlimits: {timeout_max: 1h}\n%s",
		filepath.Join(dir, dataDir), ports[0], settings)
	return p, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o644)
}

// launch prepares and starts a program, and connects to it once it is ready.
func (b *bench) launch(ctx context.Context, settings string) (*program, *client.Client, error) {
	p, err := b.prepare(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := p.spawn(); err != nil {
		return nil, nil, err
	}
	c, err := p.ready(ctx)
	if err != nil {
		p.discard()
		return nil, nil, err
	}
	return p, c, nil
}

// spawn starts the process and does not wait. Each collection of the garbage
// collector leaves a line in its log (see pauses).
func (p *program) spawn() (err error) {
	p.child, err = p.b.children.start(filepath.Join(p.dir, "log"), []string{"GODEBUG=gctrace=1"},
		p.b.binary, "run", "--config", filepath.Join(p.dir, "config.yaml"))
	return err
}

// connect is a connection of one's own.
func (p *program) connect() (*client.Client, error) { return client.Connect(p.url) }

// inside is the option of a connection with the program's key, if the server is its own.
func (p *program) inside() nats.Option {
	if option, err := nats.NkeyOptionFromSeed(filepath.Join(p.dir, dataDir, walls.KeyFile)); err == nil {
		return option
	}
	return nil
}

// ready connects once /readyz says so.
func (p *program) ready(ctx context.Context) (*client.Client, error) {
	if err := p.until(ctx, "wait for /readyz", 5*time.Millisecond, p.isReady); err != nil {
		return nil, err
	}
	return p.connect()
}

func (p *program) isReady() error {
	body, err := p.page("/readyz")
	if err == nil {
		body.Close()
	}
	return err
}

// page is a page of the program's; what is not 200 is an error.
func (p *program) page(path string) (io.ReadCloser, error) {
	r, err := http.Get(p.http + path)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(r.Body)
		r.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", path, r.Status, said)
	}
	return r.Body, nil
}

// figures are /metrics: name{labels} to value.
func (p *program) figures() (map[string]float64, error) {
	body, err := p.page("/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseFigures(body)
}

// parseFigures reads the text of /metrics, as far as this bench needs it.
func parseFigures(from io.Reader) (map[string]float64, error) {
	all := make(map[string]float64)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		text := lines.Text()
		at := strings.LastIndexByte(text, ' ')
		if at < 0 || text[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(text[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: %q: %w", text, err)
		}
		all[text[:at]] = v
	}
	return all, lines.Err()
}

// discard ends the process and takes away its data.
func (p *program) discard() {
	if p.child != nil {
		p.end(syscall.SIGKILL)
	}
	os.RemoveAll(p.dir)
}

// applyWithin bounds the wait for what was published.
const applyWithin = time.Hour

// applied returns when answers reflect everything up to a position.
func applied(ctx context.Context, c *client.Client, at pipeline.Position) error {
	_, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{1}, MinPosition: at, Timeout: applyWithin})
	if err != nil {
		return fmt.Errorf("wait for position %s: %w", at, err)
	}
	return nil
}
