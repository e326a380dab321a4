package web

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Options are what a door leads to. Ask must be given.
type Options struct {
	// Ask answers a request of the query service that answers now (service.Service.Ask).
	Ask func(ctx context.Context, endpoint string, body []byte) query.Reply
	// Packs stores events. nil: POST /v1/events is answered 503.
	Packs Packs
	// NewChecker makes one that knows which lines count. nil: lines are stored unread, and
	// those that do not count become dead letters.
	NewChecker func() Checker
	// Tokens are needed of each request. nil: none are.
	Tokens     Tokens
	Version    string                // of the program, for the document
	Registerer prometheus.Registerer // nil: no metrics
}

// Packs stores packs of events. PublishPack returns when the pack is stored, with the
// position up to which it is; one with an id that was stored within two minutes is not
// stored again. Errors wrap pipeline.ErrFull and pipeline.ErrNoLog where nothing was
// stored; after any other it is not known. It may be called concurrently.
type Packs interface {
	PublishPack(ctx context.Context, lines []byte, id string) (pipeline.Position, error)
}

// Checker says why a line would be a dead letter, "" where it would count. It is for one
// goroutine at a time.
type Checker interface {
	Refuses(line []byte) (reason pipeline.Reason, detail string)
}

// passing is a Checker that knows nothing.
type passing struct{}

func (passing) Refuses([]byte) (pipeline.Reason, string) { return "", "" }

type door struct {
	o        Options
	given    *given
	checkers sync.Pool
	document []byte
	answers  *prometheus.CounterVec
}

// Handler is the door: everything under /v1/. Requests of pages from elsewhere that
// change something are refused (net/http's CrossOriginProtection), and no header lets
// such pages read answers.
func Handler(o Options) (http.Handler, error) {
	d := newDoor(o)
	if o.Registerer != nil {
		if err := o.Registerer.Register(d.answers); err != nil {
			return nil, err
		}
	}
	return http.NewCrossOriginProtection().Handler(d.mux()), nil
}

func newDoor(o Options) *door {
	d := &door{o: o, given: newGiven(), document: openAPI(o.Version)}
	d.checkers.New = func() any {
		if o.NewChecker == nil {
			return passing{}
		}
		return o.NewChecker()
	}
	d.answers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_http_answers_total", Help: "Answers of the HTTP door, by endpoint and code.",
	}, []string{"endpoint", "code"})
	return d
}

func (d *door) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for i := range routes {
		r := &routes[i]
		mux.HandleFunc(r.method+" "+r.pattern, d.counted(r.endpoint, func(w http.ResponseWriter, h *http.Request) { d.ask(w, h, r) }))
	}
	mux.HandleFunc("POST /v1/events", d.counted("events", d.takeEvents))
	mux.HandleFunc("GET /v1/openapi.json", d.counted("openapi", d.describe))
	mux.HandleFunc("/", d.counted("none", func(w http.ResponseWriter, h *http.Request) { nothing(w, h, mux) }))
	return mux
}

func (d *door) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.document)
}

// ask translates a request, asks, and translates the reply.
func (d *door) ask(w http.ResponseWriter, h *http.Request, r *route) {
	body, p := r.request(w, h)
	if p != nil {
		p.write(w)
		return
	}
	d.answer(w, h, r, d.o.Ask(h.Context(), r.endpoint, body))
}

// nothing answers what no route has.
func nothing(w http.ResponseWriter, h *http.Request, mux *http.ServeMux) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := h.Clone(h.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			w.Header().Set("Allow", method)
			refuse(http.StatusMethodNotAllowed, "%s takes %s", h.URL.Path, method).write(w)
			return
		}
	}
	refuse(http.StatusNotFound, "there is no %.200q here; /v1/openapi.json lists what there is", h.URL.Path).write(w)
}

// counted lets in the requests that may come in, and counts answers.
func (d *door) counted(endpoint string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, h *http.Request) {
		seen := &status{ResponseWriter: w, code: http.StatusOK}
		if p := d.o.Tokens.admits(h, endpoint); p != nil && endpoint != "openapi" {
			p.write(seen)
		} else {
			next(seen, h)
		}
		d.answers.WithLabelValues(endpoint, strconv.Itoa(seen.code)).Inc()
	}
}

// status remembers the code of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Closed is a door that lets nobody in, and says why.
func Closed(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusForbidden, "%s", why).write(w)
	})
}
