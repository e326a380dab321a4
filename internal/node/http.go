package node

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemark-io/tidemark/internal/node/door"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
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
	mux.Handle("/debug/pprof/", n.api.Profiles())
	mux.Handle("/v1/", n.api.Handler())
	for path, page := range n.o.Pages {
		mux.Handle(path, http.StripPrefix(strings.TrimSuffix(path, "/"), page(n.nc)))
	}
	index := slices.Concat([]string{"tidemark", "", "/metrics", "/healthz", "/readyz", "/debug/pprof/", "/v1/openapi.json"}, slices.Sorted(maps.Keys(n.o.Pages)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(index, "\n"))
	})
	return mux
}

// own is its server, nil when HTTP is off.
func (h *httpServer) own() *http.Server {
	if h == nil {
		return nil
	}
	return h.server
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
	h.server = n.servers.Serve(n.listener, door.NewHosts(n.config.HTTP.Listen, n.config.HTTP.Hosts).Only(shown))
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
	return g.Remarks(n.copying()) + n.rebuilds.remarks()
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
	faults := []error{n.asked()}
	if !n.queries.IsConnected() {
		faults = append(faults, errors.New("queries: their connection to the NATS server is lost: requests do not arrive here"))
	}
	return g.Ready(n.trouble.Err(), faults...)
}

// URL is where clients reach the NATS server, without a password. It is the
// real address when the configuration left the port open.
func (n *Node) URL() string { return jetlog.Address(n.nc) }

// HTTPAddress is the host and port of /metrics, "" when it is off.
func (n *Node) HTTPAddress() string {
	if n.listener == nil {
		return ""
	}
	return n.listener.Addr().String()
}
