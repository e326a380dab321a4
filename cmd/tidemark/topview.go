package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// figures are one node's, by name and labels, as tidemark.stats gives them.
type figures map[string]float64

// sample is what one look saw.
type sample struct {
	at      time.Time
	nodes   client.Nodes
	shards  client.Shards
	figures map[string]figures // by node; of those that answered
}

// view is what has happened between two samples. A rate that is not known, of a node that
// was not in both, is null.
type view struct {
	At      time.Time  `json:"at"`
	Seconds float64    `json:"seconds"`
	Nodes   []nodeView `json:"nodes"`
	rates              // of all nodes together
	Shards  shardsView `json:"shards"`
	// Without names nodes that are there and whose figures are not in the sums.
	Without []string `json:"without,omitempty"`
	SilentS float64  `json:"silent_s,omitempty"` // the node that answered has heard of no node for so long
}

// rates are what both a node and all of them have.
type rates struct {
	Events      *float64 `json:"events_per_s"`
	LagS        *float64 `json:"lag_s"`
	LagMessages *float64 `json:"lag_messages"`
	VisibleMS   *float64 `json:"visible_ms"`
	Answers     *float64 `json:"answers_per_s"`
	AnswerMS    *float64 `json:"answer_ms"` // the mean; null without answers
	Errors      *float64 `json:"errors_per_s"`
	Refused     *float64 `json:"refused_per_s"`

	answerSeconds float64 // a second, that all answers took together
}

type nodeView struct {
	Node    string   `json:"node"`
	State   string   `json:"state"`
	Roles   []string `json:"roles"`
	Routes  bool     `json:"routes"`
	Shards  int      `json:"shards"`
	Loading int      `json:"loading"`
	Memory  *float64 `json:"memory_bytes"`
	rates
}

type shardsView struct {
	Shards     int `json:"shards"`
	Loading    int `json:"loading"`
	Unanswered int `json:"unanswered"` // nobody answers for them
	OneCopy    int `json:"one_copy"`   // where there should be more
}

func viewOf(before, now *sample) *view {
	v := &view{At: now.at.UTC(), Seconds: now.at.Sub(before.at).Seconds(), Shards: shardsOf(now.shards), SilentS: now.nodes.Silent.Seconds()}
	loading := loadingOf(now.shards)
	for _, n := range now.nodes.Nodes {
		nv := nodeView{Node: n.Node, State: n.State, Roles: n.Roles, Routes: n.Routes, Shards: n.Shards, Loading: loading[n.Node]}
		f, known := now.figures[n.Node]
		if known {
			nv.rates = ratesOf(before.figures[n.Node], f, v.Seconds)
			if resident, has := f["process_resident_memory_bytes"]; has {
				nv.Memory = &resident
			}
		} else if n.State != nodeAway {
			v.Without = append(v.Without, n.Node)
		}
		if n.LagKnown {
			nv.VisibleMS = new(float64)
			*nv.VisibleMS = float64(n.Lag) / float64(time.Millisecond)
		}
		v.Nodes = append(v.Nodes, nv)
	}
	v.sum()
	return v
}

// sum makes the rates of all nodes of those of each.
func (v *view) sum() {
	for i := range v.Nodes {
		n := &v.Nodes[i]
		v.Events, v.Answers = added(v.Events, n.Events), added(v.Answers, n.Answers)
		v.Errors, v.Refused = added(v.Errors, n.Errors), added(v.Refused, n.Refused)
		v.answerSeconds += n.answerSeconds
		v.LagS, v.LagMessages, v.VisibleMS = larger(v.LagS, n.LagS), larger(v.LagMessages, n.LagMessages), larger(v.VisibleMS, n.VisibleMS)
	}
	v.mean()
}

func (r *rates) mean() {
	if r.Answers != nil && *r.Answers > 0 {
		r.AnswerMS = new(float64)
		*r.AnswerMS = 1000 * r.answerSeconds / *r.Answers
	}
}

// ratesOf are a node's; before nil: it was not seen then, and only what holds now is known.
func ratesOf(before, now figures, seconds float64) rates {
	r := rates{LagS: now.one("lag_seconds"), LagMessages: now.one("lag_messages")}
	if before == nil || seconds <= 0 {
		return r
	}
	rate := func(name string, is func(labels string) bool) *float64 {
		n := now.grown(before, name, is) / seconds
		return &n
	}
	all := func(string) bool { return true }
	r.Events, r.Refused = rate("events_total", all), rate("deadletters_total", all)
	r.Answers = rate("query_seconds_count", counted)
	r.Errors = rate("query_seconds_count", func(labels string) bool { return counted(labels) && !strings.Contains(labels, `code="200"`) })
	r.answerSeconds = *rate("query_seconds_sum", counted)
	r.mean()
	return r
}

// own requests are those of people who look, and of this command.
var ownRequests = []string{"stats", "nodes", "shards", "schema"}

func counted(labels string) bool {
	return !slices.ContainsFunc(ownRequests, func(endpoint string) bool { return strings.Contains(labels, `endpoint="`+endpoint+`"`) })
}

// one is a figure without labels; nil: the node has none of that name.
func (f figures) one(name string) *float64 {
	n, has := f[own+name]
	if !has {
		return nil
	}
	return &n
}

// grown is by how much the counters of a name have grown. One that is less than before
// began again with its process.
func (f figures) grown(before figures, name string, is func(labels string) bool) (n float64) {
	for figure, value := range f {
		called, labels, _ := strings.Cut(figure, "{")
		if called != own+name || !is(labels) {
			continue
		}
		if was := before[figure]; was <= value {
			value -= was
		}
		n += value
	}
	return n
}

func added(to, n *float64) *float64 {
	if to == nil || n == nil {
		return firstOf(to, n)
	}
	sum := *to + *n
	return &sum
}

func larger(a, b *float64) *float64 {
	if a == nil || b == nil {
		return firstOf(a, b)
	}
	most := max(*a, *b)
	return &most
}

func firstOf(a, b *float64) *float64 {
	if a != nil {
		return a
	}
	return b
}

func shardsOf(s client.Shards) shardsView {
	v := shardsView{Shards: len(s.Shards)}
	for _, shard := range s.Shards {
		if copies(shard, holderLoading) > 0 {
			v.Loading++
		}
		switch copies(shard, holderReady) {
		case 0:
			v.Unanswered++
		case 1:
			if len(shard.Holders) > 1 { // others are to have it
				v.OneCopy++
			}
		}
	}
	return v
}

func (v *view) print(to io.Writer) error {
	fmt.Fprintf(to, "%s, over %.1fs\n", clockTime(v.At), v.Seconds)
	if v.SilentS > 0 {
		fmt.Fprintf(to, "%s\n", silence(time.Duration(v.SilentS*float64(time.Second))))
	}
	if len(v.Without) > 0 {
		fmt.Fprintf(to, "without the figures of %s, which did not give them\n", printable(strings.Join(v.Without, ", "), 4*nameShown))
	}
	sums := &table{left: []bool{true, false, true}}
	sums.add("events", perSecond(v.Events), "a second")
	sums.add("lag", figureText(v.LagS, "s"), fmt.Sprintf("of the oldest event not applied; %s messages wait", figureText(v.LagMessages, "")))
	sums.add("visible", figureText(v.VisibleMS, "ms"), "from published to visible")
	sums.add("answers", perSecond(v.Answers), fmt.Sprintf("a second, each %s", figureText(v.AnswerMS, "ms")))
	sums.add("errors", perSecond(v.Errors), "a second")
	sums.add("refused", perSecond(v.Refused), "events a second: tidemark deadletters")
	sums.add("shards", strconv.Itoa(v.Shards.Shards), v.Shards.text())
	if err := sums.print(to); err != nil {
		return err
	}
	fmt.Fprintln(to)
	return v.nodesTable().print(to)
}

func (s *shardsView) text() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Loading, "loading"}, {s.Unanswered, "that nobody answers for"}, {s.OneCopy, "with one copy left"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "all answered for"
	}
	return strings.Join(parts, ", ")
}

func (v *view) nodesTable() *table {
	out := &table{left: []bool{true, true, true, true}}
	out.add("NODE", "STATE", "ROLES", "ROUTES", "SHARDS", "LOADING", "EVENTS/S", "LAG", "ANSWERS/S", "EACH", "ERRORS/S", "MEMORY")
	for i := range v.Nodes {
		n := &v.Nodes[i]
		routes, memory := "-", untold
		if n.Routes {
			routes = "yes"
		}
		if n.Memory != nil {
			memory = sizeText(*n.Memory)
		}
		out.add(printable(n.Node, nameShown), printable(n.State, nameShown), printable(strings.Join(n.Roles, ","), nameShown), routes,
			strconv.Itoa(n.Shards), strconv.Itoa(n.Loading), perSecond(n.Events), figureText(n.LagS, "s"),
			perSecond(n.Answers), figureText(n.AnswerMS, "ms"), perSecond(n.Errors), memory)
	}
	return out
}

// perSecond is a rate: whole where it is large.
func perSecond(n *float64) string { return figureText(n, "") }

func figureText(n *float64, unit string) string {
	if n == nil {
		return untold
	}
	digits := 0
	if *n < 10 && *n != float64(int64(*n)) {
		digits = 2
	}
	return strconv.FormatFloat(*n, 'f', digits, 64) + unit
}
