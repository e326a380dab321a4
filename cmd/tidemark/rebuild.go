package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query/client"
)

type rebuildCommand struct {
	Config string `placeholder:"FILE" help:"What the new generation counts by (the default: what the one that serves counts by)."`
	Wait   bool   `help:"Show how far it is, until it serves, is aborted or differs."`
	Status bool   `help:"Show how it stands."`
	Abort  bool   `help:"Drop the generation that is building."`
	Back   bool   `help:"Have the generation serve again that served before."`
	Accept bool   `help:"Let the new generation serve although it differs; without --config, the one that is building."`

	Yes      bool              `help:"Begin without asking."`
	DryRun   bool              `help:"Show what it would change and need, and stop."`
	DropKept generation.Number `placeholder:"N" help:"Give up generation N, which is kept, although it alone counts something."`
	remote
}

func (rebuildCommand) Help() string {
	return `Counts everything again from the log, beside what serves: a second generation, by the configuration FILE. It may have other counters, columns, rules, channels or another number of shards. When it has caught up, both generations are compared with the log; if nothing differs, all nodes answer from the new one, in one step. Answers go on meanwhile.

Without --config it counts by what the serving generation counts by: a repair of everything.

It shows first what it would change, read, need and delete, and asks whether to begin. Without a terminal it begins, unless it drops counters, columns or rules: that needs --yes.

The generation that served before is kept up to date for rebuild.keep; --back returns to it. A node whose file says something else counts by what serves, and says so: 'tidemark config adopt' has the file say it.

With --wait, and --status --wait, the exit code is 0 once the new generation serves, and 1 if it was aborted or differs.

EXAMPLE

    tidemark rebuild --config new.yaml --dry-run
    tidemark rebuild --config new.yaml --wait
    tidemark rebuild --status --json
    tidemark rebuild --back`
}

// Validate is called by kong.
func (r *rebuildCommand) Validate() error {
	var ways []string
	for _, way := range []struct {
		name string
		is   bool
	}{{"--status", r.Status}, {"--abort", r.Abort}, {"--back", r.Back}} {
		if way.is {
			ways = append(ways, way.name)
		}
	}
	switch {
	case len(ways) > 1:
		return fmt.Errorf("%s are given; give one of them", strings.Join(ways, " and "))
	case len(ways) == 1 && r.Config != "":
		return fmt.Errorf("%s takes no --config", ways[0])
	case len(ways) == 1 && r.Accept:
		return fmt.Errorf("%s takes no --accept", ways[0])
	case r.Yes && r.DryRun:
		return errors.New("--yes and --dry-run are given; give one of them")
	case (r.Yes || r.DryRun || r.DropKept != 0) && (len(ways) == 1 || r.Accept && r.Config == ""):
		return errors.New("--yes, --dry-run and --drop-kept are of a rebuild that begins")
	case r.Wait && r.DryRun:
		return errors.New("--dry-run takes no --wait: nothing begins")
	case r.Wait && (r.Abort || r.Back):
		return fmt.Errorf("%s takes no --wait: it is done when the command returns", ways[0])
	}
	return r.remote.Validate()
}

func (r *rebuildCommand) Run(t *terminal) error {
	ask, err := r.request()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	nc, err := r.dial(!r.Wait)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := r.reach.untilDenied(ctx)
	defer done()
	l := &leader{remote: &r.remote, nc: nc, tell: t.err, patient: r.Wait}
	switch {
	case r.Status:
		return r.status(ctx, t, l)
	case r.Abort:
		return r.change(ctx, t, l, node.RebuildAbortVerb, func(was, is *node.RebuildStatus) bool { return was.Building != 0 && is.Building == 0 })
	case r.Back:
		return r.change(ctx, t, l, node.RebuildBackVerb, func(was, is *node.RebuildStatus) bool { return was.Kept != 0 && is.Serving == was.Kept })
	case ask == nil:
		return r.accept(ctx, t, l)
	}
	return r.begin(ctx, t, l, ask)
}

// request is what to ask for; nil: no new generation. A file with mistakes asks for
// nothing.
func (r *rebuildCommand) request() (*node.RebuildAsk, error) {
	if r.Status || r.Abort || r.Back || r.Accept && r.Config == "" {
		return nil, nil
	}
	ask := &node.RebuildAsk{Accept: r.Accept, DropKept: r.DropKept}
	if r.Config == "" {
		return ask, nil
	}
	c, _, err := (&settings{Config: r.Config}).load()
	if err != nil {
		return nil, err
	}
	ask.Counting, err = c.Counting()
	return ask, err
}

func (r *rebuildCommand) begin(ctx context.Context, t *terminal, l *leader, ask *node.RebuildAsk) error {
	ask, err := r.plan(ctx, t, l, ask)
	if err != nil || ask == nil {
		return err
	}
	before, err := l.status(ctx)
	if err != nil {
		return err
	}
	var begun node.RebuildBegun
	told := true
	err = l.do(ctx, node.RebuildVerb, ask, &begun, func(s *node.RebuildStatus) bool {
		if before.Building != 0 || s.Building == 0 {
			return false
		}
		begun.Building, told = s.Building, false // the leader that is gone had begun
		return true
	})
	if err != nil {
		return err
	}
	if !r.JSON {
		what := ""
		if told {
			what = ": " + changesText(begun.Changes)
		}
		if _, err := fmt.Fprintf(t.out, "generation %d is building%s\n", begun.Building, what); err != nil {
			return err
		}
	}
	if r.Wait {
		return r.follow(ctx, t, l, begun.Building)
	}
	if r.JSON {
		begun.Changes = append([]string{}, begun.Changes...)
		return printJSON(t.out, begun)
	}
	_, err = fmt.Fprintln(t.out, "'tidemark rebuild --status' shows how far it is")
	return err
}

func changesText(changes []string) string {
	if len(changes) == 0 {
		return "it counts as the one that serves"
	}
	return printable(strings.Join(changes, "; "), 4096)
}

func (r *rebuildCommand) status(ctx context.Context, t *terminal, l *leader) error {
	s, err := l.status(ctx)
	if err != nil {
		return err
	}
	if r.Wait && s.Building != 0 {
		return r.follow(ctx, t, l, s.Building)
	}
	if err := r.print(t.out, s); err != nil || !r.Wait || s.State != generation.Aborted {
		return err
	}
	return errTold // it was aborted before the command looked
}

// change asks for a change of which generations there are; done sees from what they
// were and are that it has happened.
func (r *rebuildCommand) change(ctx context.Context, t *terminal, l *leader, verb string, done func(was, is *node.RebuildStatus) bool) error {
	_, is, err := l.change(ctx, verb, done)
	if err != nil {
		return err
	}
	return r.print(t.out, is)
}

func (r *rebuildCommand) accept(ctx context.Context, t *terminal, l *leader) error {
	was, is, err := l.change(ctx, node.RebuildAcceptVerb, func(was, is *node.RebuildStatus) bool { return is.Serving == was.Building })
	if err != nil {
		return err
	}
	if r.Wait {
		return r.follow(ctx, t, l, was.Building)
	}
	return r.print(t.out, is)
}

// followEvery is how often it is asked how a rebuild goes on.
const followEvery = time.Second

// follow shows how far a generation is until nothing more happens by itself.
func (r *rebuildCommand) follow(ctx context.Context, t *terminal, l *leader, number generation.Number) error {
	bar := newRebuildBar(t.err)
	defer bar.end()
	l.tell = bar
	for {
		s, err := l.status(ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted; the rebuild goes on: 'tidemark rebuild --status' shows it, '--abort' ends it")
		}
		if err != nil {
			return err
		}
		if s.Building != number && s.Newest >= number || s.Waits {
			bar.end()
			if err := r.print(t.out, s); err != nil || s.Serving == number || s.Kept == number {
				return err
			}
			return errTold
		}
		if s.Building == number { // else this node has not heard of it yet
			bar.show(s)
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
		}
	}
}

func (r *rebuildCommand) print(to io.Writer, s *node.RebuildStatus) error {
	if r.JSON {
		return printJSON(to, s)
	}
	return printRebuild(to, s)
}

// leader asks the node that routes the serving generation, whichever that is.
type leader struct {
	*remote
	nc      *nats.Conn
	tell    io.Writer
	patient bool   // tries until ctx ends, else until the timeout has passed
	said    string // last, of what keeps it from an answer
	tried   string // the last node that was asked although it does not route
}

// leaderRetry is the pause before the leader is looked for again: another one takes
// over within router.lease_expiry.
const leaderRetry = 500 * time.Millisecond

// leaderSilent is how long nobody may answer before it is said: at each switch one
// lease ends and another begins.
const leaderSilent = 2 * time.Second

// errNoLeader: it may come.
var errNoLeader = errors.New("no node routes at the moment: 'tidemark nodes' shows which there are")

func (l *leader) status(ctx context.Context) (*node.RebuildStatus, error) {
	s := new(node.RebuildStatus)
	return s, l.do(ctx, node.RebuildStatusVerb, struct{}{}, s, nil)
}

// change has the leader change which generations there are; done recognizes a change
// that the leader before has made by what they were and are.
func (l *leader) change(ctx context.Context, verb string, done func(was, is *node.RebuildStatus) bool) (was, is *node.RebuildStatus, err error) {
	if was, err = l.status(ctx); err != nil {
		return nil, nil, err
	}
	is = new(node.RebuildStatus)
	err = l.do(ctx, verb, struct{}{}, is, func(s *node.RebuildStatus) bool {
		*is = *s
		return done(was, s)
	})
	return was, is, err
}

// do has the leader do a job. If it is gone before it has answered, the next one
// says by its status whether the job is done; nil: a job that may be done twice.
func (l *leader) do(ctx context.Context, verb string, request, reply any, done func(*node.RebuildStatus) bool) error {
	asked := false
	for begun := time.Now(); ; {
		err := l.try(ctx, verb, request, reply, asked, done)
		if err == nil {
			l.said = ""
			return nil
		}
		if ctx.Err() != nil || !passing(err) || !l.patient && time.Since(begun) > l.Timeout {
			return l.explain(err)
		}
		asked = asked || !errors.Is(err, errNoLeader)
		if text := sentence(l.explain(err)); text != l.said && time.Since(begun) >= leaderSilent {
			l.said = text
			fmt.Fprintf(l.tell, "tidemark: %s; trying again\n", text)
		}
		select {
		case <-time.After(leaderRetry):
		case <-ctx.Done():
		}
	}
}

func (l *leader) try(ctx context.Context, verb string, request, reply any, asked bool, done func(*node.RebuildStatus) bool) error {
	name, routes, err := l.find(ctx)
	if err != nil {
		return err
	}
	ask := func(verb string, request any) ([]byte, error) {
		raw, err := job.Ask(ctx, l.nc, name, verb, request, nil)
		if gone, is := errors.AsType[*job.Error](err); is && gone.Code == job.CodeGone && !routes {
			err = errNoLeader
		}
		return raw, err
	}
	if asked && done != nil {
		raw, err := ask(node.RebuildStatusVerb, struct{}{})
		if err != nil {
			return err
		}
		var s node.RebuildStatus
		if err := json.Unmarshal(raw, &s); err != nil || done(&s) {
			return err
		}
	}
	raw, err := ask(verb, request)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, reply)
}

// find is the node that routes now. Where EVENTS has lost what is counted nobody routes: then
// it is one that holds shards, another one at each try, which may lead all the same.
func (l *leader) find(ctx context.Context) (name string, routes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	nodes, err := client.New(l.nc).Nodes(ctx)
	if err != nil {
		return "", false, err
	}
	next := ""
	for _, n := range nodes.Nodes {
		switch {
		case n.State == nodeAway:
		case n.Routes:
			return n.Node, true, nil
		case n.Shards > 0 && n.Node > l.tried && (next == "" || n.Node < next):
			next = n.Node
		}
	}
	if l.tried = next; next == "" {
		return "", false, errNoLeader
	}
	return next, false, nil
}

// passing says whether a later try may succeed. What a node has refused
// stays refused.
func passing(err error) bool {
	refused, is := errors.AsType[*job.Error](err)
	return !is || refused.Code == job.CodeGone || refused.Code == job.CodeBusy
}
