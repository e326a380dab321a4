package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/cmd/tidemark/demo"
	"github.com/tidemark-io/tidemark/examples/badges"
	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// playDemo lets the made-up community live on a node until ctx ends.
func playDemo(ctx context.Context, t *terminal, c *config.Config, n *node.Node) error {
	log := logger(t.err, c.Log)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: n.URL(), NkeySeedFile: n.KeyFile(), Name: "tidemark demo", Logger: log})
	if err != nil {
		return err
	}
	defer nc.Close()
	fmt.Fprint(t.out, demoText(c, n))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan struct{})
	go func() {
		defer close(told)
		tell(ctx, t.out, client.New(nc))
	}()
	err = demo.Run(ctx, nc, demo.Options{Logger: log})
	if err == nil && ctx.Err() == nil {
		fmt.Fprintln(t.out, "The community has gone to sleep; the node goes on. Ctrl-C stops it.")
		<-ctx.Done()
	}
	cancel()
	<-told
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// demoPath is where the HTTP server has the page of badges.
const demoPath = "/demo/"

func demoPages(log *slog.Logger) map[string]func(*nats.Conn) http.Handler {
	return map[string]func(*nats.Conn) http.Handler{demoPath: func(nc *nats.Conn) http.Handler {
		return badges.Handler(client.New(nc), badges.Options{MadeUp: true, Logger: log})
	}}
}

// demoText says what runs, where to look and what to try, and who may.
func demoText(c *config.Config, n *node.Node) string {
	url, http := n.URL(), n.HTTPAddress()
	var b strings.Builder
	fmt.Fprintf(&b, `
Tidemark runs, with a demo: a small community of MADE-UP users (1, 2, 3, …)
who write, repost, comment, like and follow. All of it is synthetic, and kept
in %s, apart from real numbers.

`, c.DataDir)
	if http != "" {
		fmt.Fprintf(&b, "  badges     http://%s%s      open it in a browser: what is new for user 1, live\n", http, demoPath)
		fmt.Fprintf(&b, "  figures    http://%s/metrics\n  ready?     http://%s/readyz\n", http, http)
	}
	flag := ""
	if url != defaultURL {
		flag = " --nats " + url
	}
	fmt.Fprintf(&b, `  NATS       %[1]s

Try in another terminal, more than once, the numbers move:

  %[2]s get post 1 2 3%[3]s
  %[2]s get user 1 2 3 --columns post,liked,follower%[3]s

Commands that look inside, or repair, take the node's key:

  %[2]s verify --all --nkey %[4]s%[3]s

`, url, os.Args[0], flag, n.KeyFile())
	b.WriteString(openText(c))
	b.WriteString("Ctrl-C stops it.\n\n")
	return b.String()
}

// openText says who is let in without a key, "" if nobody is.
func openText(c *config.Config) string {
	var open, close []string
	if c.NATS.URL == "" && (c.NATS.Auth == "" || c.NATS.Auth == config.AuthOpen) {
		open, close = append(open, "NATS"), append(close, "nats.auth: FILE")
	}
	if c.API.Tokens == "" || c.API.Tokens == config.AuthOpen {
		open, close = append(open, "HTTP"), append(close, "api.tokens: FILE")
	}
	if len(open) == 0 {
		return ""
	}
	return fmt.Sprintf("Whoever reaches the ports may set any counter and mark as read for any user, by %s.\nIn the configuration %s takes that away.\n\n",
		strings.Join(open, " and "), strings.Join(close, ", "))
}

const defaultURL = nats.DefaultURL

// tellEvery paces the demo's line of figures.
const tellEvery = 5 * time.Second

func tell(ctx context.Context, to io.Writer, c *client.Client) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	var before float64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		figures, err := c.Stats(ctx)
		if err != nil {
			continue // the node says what is wrong in its own log
		}
		events := number(figures["tidemark_events_total"])
		fmt.Fprintf(to, "%s  %.0f events so far, %.0f a second, %.0f messages behind\n",
			time.Now().Format(time.TimeOnly), events, (events-before)/tellEvery.Seconds(), number(figures["tidemark_lag_messages"]))
		before = events
	}
}

func number(v any) float64 {
	n, _ := v.(json.Number)
	f, _ := n.Float64()
	return f
}
