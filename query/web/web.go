package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

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
	// NewChecker makes one that reads lines before they are stored.
	NewChecker func() Checker
	// Role is what a token may do, nil if it is not known. Role nil: no token is needed.
	Role func(token string) Role
	// Bodies bounds the bytes of bodies and answers under way.
	Bodies     int64
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

// Checker returns the type of a line, and says why it would be a dead letter: "" where it
// would count, as far as that is known here. It is for one goroutine at a time.
type Checker interface {
	Check(line []byte) (kind string, reason pipeline.Reason, detail string)
}

// Role is what one who has a token may do.
type Role interface {
	MayAsk(endpoint string) bool // of "*", everything
	MaySend(kind string) bool    // events of a type; of "", any
}

type door struct {
	o        Options
	given    *given
	room     *room
	within   time.Duration // for a body to come
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
	return SameOrigin(d.mux()), nil
}

// SameOrigin refuses what pages from elsewhere send to change something.
func SameOrigin(next http.Handler) http.Handler {
	own := http.NewCrossOriginProtection()
	own.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Refuse(w, http.StatusForbidden, "a page of another origin may not send this")
	}))
	return own.Handler(next)
}

func newDoor(o Options) *door {
	d := &door{o: o, given: newGiven(), room: &room{most: o.Bodies}, within: BodyWithin, document: openAPI(o.Version)}
	d.checkers.New = func() any { return o.NewChecker() }
	d.answers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_http_answers_total", Help: "Answers of the HTTP door, by endpoint and code.",
	}, []string{"endpoint", "code"})
	return d
}

func (d *door) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for i := range routes {
		r := &routes[i]
		mux.HandleFunc(r.method+" "+r.pattern, d.counted(r.endpoint, func(w http.ResponseWriter, h *http.Request, _ Role) { d.ask(w, h, r) }))
	}
	mux.HandleFunc("POST /v1/events", d.counted(takesEvents, d.takeEvents))
	mux.HandleFunc("GET /v1/openapi.json", d.counted(describes, d.describe))
	mux.HandleFunc("/", d.counted(isNone, func(w http.ResponseWriter, h *http.Request, _ Role) { nothing(w, h, mux) }))
	return mux
}

func (d *door) describe(w http.ResponseWriter, _ *http.Request, _ Role) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.document)
}

// ask translates a request, asks, and translates the reply.
func (d *door) ask(w http.ResponseWriter, h *http.Request, r *route) {
	body, done, p := d.request(w, h, r)
	defer done()
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
func (d *door) counted(endpoint string, next func(http.ResponseWriter, *http.Request, Role)) http.HandlerFunc {
	return func(w http.ResponseWriter, h *http.Request) {
		seen := &status{ResponseWriter: w, code: http.StatusOK}
		if role, p := d.admit(h, endpoint); p != nil {
			p.write(seen)
		} else {
			next(seen, h, role)
		}
		d.answers.WithLabelValues(endpoint, strconv.Itoa(seen.code)).Inc()
	}
}

// The endpoints that are none of the query service's.
const (
	takesEvents = "events"
	describes   = "openapi" // for everybody
	isNone      = "none"    // of no route
)

// admit says whether a request may use an endpoint, and who it is from. Without tokens
// everybody may.
func (d *door) admit(r *http.Request, endpoint string) (Role, *problem) {
	if d.o.Role == nil || endpoint == describes {
		return anybody{}, nil
	}
	role, p := roleOf(r, d.o.Role)
	if p != nil || endpoint == isNone || endpoint == takesEvents && role.MaySend("") || role.MayAsk(endpoint) {
		return role, p
	}
	return nil, refuse(http.StatusForbidden, "this token may not do that")
}

// roleOf is who a request is from, by its token.
func roleOf(r *http.Request, known func(token string) Role) (Role, *problem) {
	if token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); bearer {
		if role := known(token); role != nil {
			return role, nil
		}
	}
	return nil, refuse(http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
}

// Only lets in those whose token may ask everything.
func Only(known func(token string) Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role, p := roleOf(r, known)
		if p == nil && !role.MayAsk("*") {
			p = refuse(http.StatusForbidden, "an operator's token is needed")
		}
		if p != nil {
			p.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// anybody is who needs no token.
type anybody struct{}

func (anybody) MayAsk(string) bool  { return true }
func (anybody) MaySend(string) bool { return true }

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

// Refuse answers with a problem, of a status that docs/http.md has.
func Refuse(w http.ResponseWriter, status int, why string) { refuse(status, "%s", why).write(w) }

// Problem is the body of such an answer.
func Problem(status int, why string) []byte { return refuse(status, "%s", why).body() }
