package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpServer is the operators' door: /metrics, /healthz, /readyz; and what
// Options.Pages adds to it.
type httpServer struct {
	server  *http.Server
	handler atomic.Pointer[http.Handler]
}

// pages are what a node that answers has.
func (n *Node) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", answer(func() error { return nil }, nil))
	mux.HandleFunc("GET /readyz", answer(n.Ready, n.remarks))
	// Where the time and the memory go, for an operator at night.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	for path, page := range n.o.Pages {
		mux.Handle(path, http.StripPrefix(strings.TrimSuffix(path, "/"), page(n.nc)))
	}
	index := slices.Concat([]string{"tidemark", "", "/metrics", "/healthz", "/readyz", "/debug/pprof/"}, slices.Sorted(maps.Keys(n.o.Pages)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(index, "\n"))
	})
	return mux
}

// showHTTP serves pages from now on, instead of those before if there are any.
func (n *Node) showHTTP(pages http.Handler) {
	if n.http == nil {
		n.http = n.serveHTTP(pages)
		return
	}
	n.http.handler.Store(&pages)
}

// serveHTTP begins to serve; nil when HTTP is off.
func (n *Node) serveHTTP(pages http.Handler) *httpServer {
	if n.listener == nil {
		return nil
	}
	h := new(httpServer)
	h.handler.Store(&pages)
	shown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.handler.Load()).ServeHTTP(w, r) })
	h.server = &http.Server{
		Handler:           newHosts(n.config.HTTP.Listen, n.config.HTTP.Hosts).only(shown),
		ReadHeaderTimeout: 5 * time.Second,
		// What goes on for as long as somebody looks ends when the node closes.
		BaseContext: func(net.Listener) context.Context { return n.ctx },
	}
	listener := n.listener
	go func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("http: stopped serving", "error", err)
		}
	}()
	return h
}

// answer writes "ok" and the remarks besides; or 503 and the reason.
func answer(check func() error, besides func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
		if besides != nil {
			fmt.Fprint(w, besides())
		}
	}
}

// remarks are what a ready node has to say besides.
func (n *Node) remarks() string {
	g, done := n.use()
	defer done()
	besides, _ := g.notHere()
	return g.warming() + g.unheard() + besides + g.keptBack() + g.unfollowed() + g.purged() + g.aheadOfTime() + n.copying() + g.degraded() + g.lagging() + g.differing() + n.rebuilds.remarks()
}

// purged says that a part of EVENTS is gone. It keeps nobody from counting and
// answering: what is counted stands.
func (g *generation) purged() string {
	lost := g.front.gone()
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf("events: EVENTS has lost its beginning, %d messages, and neither by max_age nor by a trim; it begins at message %d. Counts stand and cannot be counted again\n",
		lost, g.state.Load().Events.First)
}

// logTimeAhead is by how much log time may be ahead of this node's clock before
// /readyz says so.
const logTimeAhead = time.Minute

// aheadOfTime says that a NATS server has stamped an event in the future.
func (g *generation) aheadOfTime() string {
	if g.sinks == nil {
		return ""
	}
	return aheadOfTime(time.Unix(g.sinks.LogTime(), 0), time.Now())
}

func aheadOfTime(log, now time.Time) string {
	ahead := log.Sub(now)
	if ahead < logTimeAhead {
		return ""
	}
	return fmt.Sprintf("events: log time is %s ahead of this node's clock: a NATS server has stamped an event with %s. "+
		"What is older than feed.retention or inactive_after by that time is left out (docs/failures.md)\n",
		ahead.Round(time.Second), log.UTC().Format(time.RFC3339))
}

// warming says how far the loading of what is on disk has come, while it goes on.
func (g *generation) warming() string {
	if g.sinks == nil {
		return ""
	}
	loaded, all := g.sinks.Warmth()
	if loaded == all {
		return ""
	}
	return fmt.Sprintf("warming: %d of %d shards are loaded, the others are answered from disk\n", loaded, all)
}

func (s *httpServer) close(ctx context.Context) {
	if s != nil && s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

// Ready is nil when every shard that is assigned to this node, or held, is answered
// for, here or by another node, requests can arrive and the node is within
// ready.lag of the newest event; of a process that only answers, when requests can
// arrive and there is a node to ask. Shards of other nodes that nobody answers for
// are a remark: to take those nodes out of service too that have theirs would make
// a part that is missing all of it, and nodes that are started one after the other
// would wait for those that come after them.
func (n *Node) Ready() error {
	g, done := n.use()
	defer done()
	faults := []error{n.trouble.err(), g.trouble.err(), n.asked(g)}
	if !n.queries.IsConnected() {
		faults = append(faults, errors.New("queries: their connection to the NATS server is lost: requests do not arrive here"))
	}
	if g.sinks != nil {
		_, alone := g.notHere()
		faults = append(faults, g.sinks.CommonsErr(), alone, g.sinks.CheckpointErr(), g.lags())
	}
	err := errors.Join(faults...)
	if why := strings.TrimSuffix(g.unheard(), "\n"); err != nil && why != "" {
		return errors.Join(errors.New(why), err) // the reason of the others, as a rule; alone it is a remark
	}
	return err
}

// lags says that too many events are not applied yet.
func (g *generation) lags() error {
	applied := g.sinks.Applied().Sequence()
	last := g.state.Load().Events.Last
	lag, caught := g.seen.lag(time.Now(), applied)
	switch bound := g.config.Ready.Lag; {
	case !caught:
		return fmt.Errorf("catching up after the start: message %d of %d applied", applied, last)
	case lag > bound:
		return fmt.Errorf("%.1f s behind the newest event, %s allowed: message %d of %d applied", lag.Seconds(), bound, applied, last)
	}
	return nil
}
