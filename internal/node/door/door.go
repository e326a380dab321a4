// Package door is how a process offers HTTP/JSON to applications: [Open] takes the port
// and reads the tokens, [Door.Show] serves, [Door.Close] ends. The door itself is package
// web; here it meets what answers.
//
// What answers may be replaced while requests come: another generation of counts comes to
// serve. [Options.Now] says each time what it is. A request that finds it stopping asks
// what came after it. hosts.go has the names under which a server may be asked, tokens.go
// who may ask, profiles.go what operators look at beside.
//
// A Door belongs to the goroutine that starts and closes the process, but Reload and Watch,
// which may be called concurrently.
package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
	"github.com/tidemark-io/tidemark/query/web"
)

// Answering is what answers by one generation of counts.
type Answering struct {
	Service   *service.Service
	Publisher *jetlog.Publisher  // nil: there is no log yet
	Rules     *operators.Program // what events count by; nil: not known here
}

// Options are what a door meets.
type Options struct {
	Now        func() *Answering // what answers now; never nil
	Serve      func(net.Listener, http.Handler) *http.Server
	Bodies     int64 // web.Options.Bodies
	Version    string
	Registerer prometheus.Registerer
}

// Door is HTTP/JSON for applications.
type Door struct {
	tokens   *tokens // nil: none are asked for
	local    bool    // only this machine reaches http.listen
	listener net.Listener
	server   *http.Server
	handler  http.Handler // nil: this process does not answer
}

// Open reads the tokens and takes the port of api.listen: a mistake in either is found at
// once.
func Open(c *config.Config, log *slog.Logger) (d *Door, err error) {
	d = &Door{local: config.Local(c.HTTP.Listen)}
	if d.tokens, err = openTokens(c.API.Tokens, log); err != nil {
		return nil, err
	}
	if d.listener, err = listen(c.API.Listen); err != nil {
		return nil, fmt.Errorf("api.listen: %w: stop what uses the port, or choose another", err)
	}
	return d, nil
}

// listen takes the port of an address; nil where there is none.
func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	return net.Listen("tcp", address)
}

// Show serves from now on: alone on api.listen, and by Handler on http.listen.
func (d *Door) Show(o Options) (err error) {
	d.handler, err = web.Handler(d.options(&o))
	if err == nil && d.listener != nil {
		d.server = o.Serve(d.listener, d.handler)
	}
	return err
}

func (d *Door) options(o *Options) web.Options {
	now := answers{o.Now}
	options := web.Options{
		Ask:        now.ask,
		Packs:      now,
		NewChecker: func() web.Checker { return &checker{answers: now, types: operators.NewTypeReader()} },
		Bodies:     o.Bodies,
		Version:    o.Version,
		Registerer: o.Registerer,
	}
	if d.tokens != nil {
		options.Role = d.tokens.role
	}
	return options
}

// Reload reads the tokens again, and Watch whenever they change, until ctx ends. Tokens with
// a mistake are not taken: those before stay.
func (d *Door) Reload() { d.tokens.reload(true) }

// Watch is told at Reload.
func (d *Door) Watch(ctx context.Context) { d.tokens.watch(ctx) }

// Handler is the door on http.listen.
func (d *Door) Handler() http.Handler {
	if d.handler == nil {
		return http.NotFoundHandler()
	}
	return d.handler
}

// Address is the host and port of api.listen, "" when there is none.
func (d *Door) Address() string {
	if d == nil || d.listener == nil {
		return ""
	}
	return d.listener.Addr().String()
}

// Server serves api.listen; nil: nothing does.
func (d *Door) Server() *http.Server {
	if d == nil {
		return nil
	}
	return d.server
}

// Close gives the port back, when the server has ended.
func (d *Door) Close() {
	if d.Address() != "" {
		d.listener.Close()
	}
}

// answers is what answers now. It is web.Packs.
type answers struct{ now func() *Answering }

// ask answers a request. One that comes while another generation comes to serve is
// answered by that.
func (a answers) ask(ctx context.Context, endpoint string, body []byte) query.Reply {
	for {
		now := a.now()
		reply, err := now.Service.Ask(ctx, endpoint, body)
		switch {
		case !errors.Is(err, service.ErrStopping):
			return reply
		case a.now() == now:
			return query.Reply{Code: http.StatusServiceUnavailable, Message: "stopping"}
		}
	}
}

// PublishPack implements web.Packs.
func (a answers) PublishPack(ctx context.Context, lines []byte, id string) (pipeline.Position, error) {
	publisher := a.now().Publisher
	if publisher == nil {
		return 0, pipeline.ErrNoLog
	}
	return publisher.PublishPack(ctx, lines, id)
}

// checker is web.Checker, by the rules of what answers now.
type checker struct {
	answers answers
	by      *operators.Program
	tracer  *operators.Tracer
	types   *operators.TypeReader // of a process without rules
}

// Check implements web.Checker.
func (c *checker) Check(line []byte) (kind string, reason pipeline.Reason, detail string) {
	rules := c.answers.now().Rules
	if rules == nil {
		return c.types.Check(line)
	}
	if rules != c.by {
		c.by, c.tracer = rules, rules.NewTracer()
	}
	return c.tracer.Check(line)
}
