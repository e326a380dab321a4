package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/cmd/tidemark/bundle"
	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/query/client"
)

type debugCommand struct {
	Bundle bundleCommand `cmd:"" help:"Pack what one looks at when a node is in trouble into one file, without secrets."`
}

type bundleCommand struct {
	File  string        `arg:"" help:"The file to write: a .tar.gz. It must not be there yet."`
	URL   string        `name:"url" placeholder:"URL" help:"The node's pages, instead of http.listen of the configuration."`
	Log   string        `type:"existingfile" placeholder:"FILE" help:"The node's log, where it goes to a file: its end is packed too."`
	Token string        `env:"TIDEMARK_TOKEN" placeholder:"TOKEN" help:"An operator's token of api.tokens: profiles need it where others than the node's machine reach http.listen."`
	CPU   time.Duration `name:"cpu" default:"5s" help:"How long to look what the processors do, in whole seconds; 0: not at all (${default})."`
	settings
	remote
}

func (bundleCommand) Help() string {
	return `Packs the configuration in force, what 'tidemark check' finds, /metrics, /readyz, the nodes, the shards, slow requests, profiles of heap, goroutines and processors, and the end of the log. What cannot be had is listed in missing.txt in the bundle.

Tokens, keys, passwords and what stands before the @ of a URL are taken out. Ids of users and posts, addresses and names stay: look into the file before you give it to others.

EXAMPLE

    tidemark debug bundle tidemark-debug.tar.gz
    tidemark debug bundle /tmp/a.tar.gz --config /etc/tidemark/config.yaml --log /var/log/tidemark.log`
}

// Validate is called by kong.
func (c *bundleCommand) Validate() error {
	if c.CPU < 0 || c.CPU%time.Second != 0 || c.CPU > time.Minute {
		return fmt.Errorf("--cpu %s: whole seconds up to a minute", c.CPU)
	}
	return c.remote.Validate()
}

func (c *bundleCommand) Run(t *terminal) error {
	settings, path, used, err := c.loadNamed()
	if err != nil {
		return err
	}
	shown, secrets := settings.Shown(used)
	ctx, stop := interruptible()
	defer stop()
	b, err := bundle.Create(c.File, bundle.NewScrubber(append(secrets, c.Token)))
	if err != nil {
		return err
	}
	b.Add("about.txt", func() ([]byte, error) { return c.about(path, used), nil })
	b.Add("config.txt", func() ([]byte, error) { return []byte(shown), nil })
	c.addCheck(ctx, b, settings, path)
	c.addPages(ctx, b, settings)
	c.addAnswers(ctx, b, settings)
	b.Add("log.txt", c.tail)
	if err := b.Close(); err != nil {
		return err
	}
	for _, missing := range b.Missing() {
		fmt.Fprintf(t.err, "without %s\n", harmless(missing))
	}
	_, err = fmt.Fprintf(t.out, "%s: %s; look into it before you give it to others\n", c.File, count(b.Parts(), "part"))
	return err
}

func (c *bundleCommand) about(path string, used []string) []byte {
	build := readBuild()
	return fmt.Appendf(nil, "tidemark %s, %s, %s/%s\nat %s\nconfiguration: %s\nfrom the environment: %s\n", build.Version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format(time.RFC3339), cmp.Or(path, "built-in defaults"), cmp.Or(strings.Join(used, ", "), "nothing"))
}

func (c *bundleCommand) addCheck(ctx context.Context, b *bundle.Bundle, settings *config.Config, path string) {
	b.Add("check.json", func() ([]byte, error) {
		return json.MarshalIndent(c.look(ctx, settings, path), "", "  ")
	})
}

// addPages adds what the node serves over HTTP.
func (c *bundleCommand) addPages(ctx context.Context, b *bundle.Bundle, settings *config.Config) {
	base := strings.TrimSuffix(c.URL, "/")
	if base == "" {
		address, err := here(settings.HTTP.Listen)
		if err != nil {
			b.Miss("metrics, readyz, profiles", "http.listen is off: "+err.Error())
			return
		}
		base = "http://" + address
	}
	pages := []struct{ name, path string }{
		{"metrics.txt", "/metrics"},
		{"readyz.txt", "/readyz"},
		{"heap.pb.gz", "/debug/pprof/heap"},
		{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
		{"goroutine.pb.gz", "/debug/pprof/goroutine"},
	}
	if seconds := int(c.CPU / time.Second); seconds > 0 {
		pages = append(pages, struct{ name, path string }{"cpu.pb.gz", fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds)})
	}
	for _, p := range pages {
		b.Add(p.name, func() ([]byte, error) { return c.fetch(ctx, base+p.path) })
	}
}

func (c *bundleCommand) fetch(ctx context.Context, page string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+c.CPU)
	defer cancel()
	method := http.MethodGet
	if strings.Contains(page, "/profile?") {
		method = http.MethodPost // a profile takes processor time
	}
	request, err := http.NewRequestWithContext(ctx, method, page, nil)
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	reply, err := nodeHere.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(io.LimitReader(reply.Body, bundle.PartMax+1))
	if err == nil && reply.StatusCode != http.StatusOK && !strings.HasSuffix(page, "/readyz") {
		err = fmt.Errorf("%s: %s%s", page, reply.Status, map[int]string{http.StatusUnauthorized: ": give --token"}[reply.StatusCode])
	}
	return data, err
}

// addAnswers adds what nodes answer over NATS.
func (c *bundleCommand) addAnswers(ctx context.Context, b *bundle.Bundle, settings *config.Config) {
	names := []string{"nodes", "shards", "slowlog"}
	r := c.asNode(settings)
	nc, err := r.dial(true)
	if err != nil {
		b.Miss(strings.Join(names, ", "), sentence(err))
		return
	}
	defer nc.Close()
	asked := client.New(nc)
	for _, name := range names {
		b.Add(name+".json", func() ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, r.Timeout)
			defer cancel()
			ctx, done := r.reach.untilDenied(ctx)
			defer done()
			reply, err := asked.Ask(ctx, name, []byte("{}"))
			if err != nil {
				return nil, errors.New(sentence(r.explain(err)))
			}
			var lines bytes.Buffer
			err = json.Indent(&lines, reply, "", "  ")
			return lines.Bytes(), err
		})
	}
}

// tailMax is how much of a log's end is packed.
const tailMax = 1 << 20

func (c *bundleCommand) tail() ([]byte, error) {
	if c.Log == "" {
		return nil, errors.New("the node logs to standard error; --log names a file that has it, as of: journalctl -u tidemark > FILE")
	}
	f, err := os.Open(c.Log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	begin, err := f.Seek(max(0, size-tailMax), io.SeekStart)
	if err != nil {
		return nil, err
	}
	end, err := io.ReadAll(io.LimitReader(f, tailMax))
	if begin > 0 { // half a line may have half a secret, which is not found
		_, end, _ = bytes.Cut(end, []byte("\n"))
	}
	return end, err
}
