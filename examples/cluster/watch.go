package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/cmd/tidemark/demo"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	tellEvery  = 5 * time.Second
	viewWithin = 2 * time.Second

	// Somebody asks what is new for the first users, one question after the
	// other. Two seconds are what a page gives an answer.
	askEvery  = 50 * time.Millisecond
	askWithin = 2 * time.Second
	askUsers  = 50
)

// live has the community live on the nodes, and keeps these, until ctx ends.
func live(ctx context.Context, o options, f *fleet) error {
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: f.all.urls(), NkeySeedFile: f.all.key(), Name: "tidemark demo"})
	if err != nil {
		return err
	}
	defer nc.Close()
	w := &watcher{client: client.New(nc), out: f.out}
	if err := w.untilHeld(ctx, len(f.all)); err != nil {
		return err
	}
	f.out.say("%s", guide(f, w.routes(ctx)))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.keep(ctx) })
	g.Go(func() error { return demo.Run(ctx, nc, demo.Options{Rate: o.rate, Stored: &w.stored}) })
	g.Go(func() error { w.ask(ctx); return nil })
	g.Go(func() error { w.tell(ctx); return nil })
	return g.Wait()
}

// watcher asks the nodes how they are, and for what every user of Tidemark asks.
type watcher struct {
	client *client.Client
	out    *printer
	stored atomic.Int64 // events of the community that the log has acknowledged

	mu      sync.Mutex
	answers answers // since the last line
}

// answers are how questions ended.
type answers struct {
	whole, partial, failed int
	old                    int // with nothing missing, but perhaps older than freshness
	slowest                time.Duration
	trouble                error // of the last that failed
}

// untilHeld returns when the nodes see each other and each shard has all its holders.
func (w *watcher) untilHeld(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		v, err := w.view(ctx)
		if err == nil && v.unheard == 0 && len(v.away) == 0 && v.up == nodes && v.copied == v.shards && v.shards > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the nodes do not hold all shards within %s: %s: %w", readyWithin, v, errors.Join(err, ctx.Err()))
		case <-time.After(readyEvery):
		}
	}
}

// view is what a node has heard of all within 2 s.
type view struct {
	unheard              time.Duration // not 0: it has heard of no node for so long, the rest is not known
	up                   int
	away                 []string      // or not heard of
	shards, held, copied int           // all, those with a ready holder, those with every holder ready
	lag                  time.Duration // of the node up that is behind by most
	lagKnown             bool          // of all that are up
}

func (w *watcher) view(ctx context.Context) (v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewWithin)
	defer cancel()
	nodes, err := w.client.Nodes(ctx)
	if err != nil {
		return v, err
	}
	shards, err := w.client.Shards(ctx)
	if err != nil {
		return v, err
	}
	v.unheard = max(nodes.Silent, shards.Silent)
	v.lagKnown = true
	for _, n := range nodes.Nodes {
		if n.State == "away" || n.Silent > 0 {
			v.away = append(v.away, n.Node)
			continue
		}
		v.up++
		v.lag, v.lagKnown = max(v.lag, n.Lag), v.lagKnown && n.LagKnown
	}
	v.shards = len(shards.Shards)
	ready := func(h client.Holder) bool { return h.State == "ready" && !slices.Contains(v.away, h.Node) }
	for _, s := range shards.Shards {
		switch {
		case len(s.Holders) > 0 && !slices.ContainsFunc(s.Holders, func(h client.Holder) bool { return !ready(h) }):
			v.copied++
			v.held++
		case slices.ContainsFunc(s.Holders, ready):
			v.held++
		}
	}
	return v, nil
}

func (v view) String() string {
	if v.unheard > 0 {
		return fmt.Sprintf("how the nodes are is not known: the node that answers has heard of none for %s", v.unheard.Round(time.Second))
	}
	text := fmt.Sprintf("nodes %d up", v.up)
	if len(v.away) > 0 {
		text += fmt.Sprintf(", %d away (%s)", len(v.away), strings.Join(v.away, ", "))
	}
	text += fmt.Sprintf("; shards %d of %d answered, %d on both holders", v.held, v.shards, v.copied)
	if !v.lagKnown {
		return text + "; lag not known"
	}
	return text + fmt.Sprintf("; lag %d ms", v.lag.Milliseconds())
}

// routes names the node that routes; "" when that is not known.
func (w *watcher) routes(ctx context.Context) string {
	nodes, err := w.client.Nodes(ctx)
	if err != nil {
		return ""
	}
	for _, n := range nodes.Nodes {
		if n.Routes {
			return n.Node
		}
	}
	return ""
}

// ask asks until ctx ends.
func (w *watcher) ask(ctx context.Context) {
	users := make([]uint64, askUsers)
	for i := range users {
		users[i] = uint64(i) + 1
	}
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, askWithin)
		reply, err := w.client.Unread(within, users...)
		cancel()
		if ctx.Err() == nil {
			w.count(reply, err, time.Since(began))
		}
	}
}

func (w *watcher) count(reply client.UnreadReply, err error, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &w.answers
	a.slowest = max(a.slowest, took)
	switch {
	case err != nil:
		a.failed++
		a.trouble = err
	case len(reply.Missing) > 0:
		a.partial++
	case reply.Degraded:
		a.old++
	default:
		a.whole++
	}
}

// tell says every five seconds how it goes, until ctx ends.
func (w *watcher) tell(ctx context.Context) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		how := "how the nodes are is not known: "
		v, err := w.view(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			how += err.Error()
		default:
			how = v.String()
		}
		w.mu.Lock()
		a := w.answers
		w.answers = answers{}
		w.mu.Unlock()
		w.out.at("%s; %d events stored; %s", how, w.stored.Load(), a)
	}
}

func (a answers) String() string {
	text := fmt.Sprintf("asked %d times: %d whole", a.whole+a.partial+a.old+a.failed, a.whole)
	if a.partial > 0 {
		text += fmt.Sprintf(", %d in part", a.partial)
	}
	if a.old > 0 {
		text += fmt.Sprintf(", %d perhaps old", a.old)
	}
	if a.failed > 0 {
		text += fmt.Sprintf(", %d failed", a.failed)
	}
	text += fmt.Sprintf(", slowest %d ms", a.slowest.Milliseconds())
	if a.trouble != nil {
		text += " (" + a.trouble.Error() + ")"
	}
	return text
}
