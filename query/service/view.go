package service

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// tidemark.page: posts as one viewer is shown them. It is a tidemark.get of the counter
// post with all of its columns, and the viewer is the member.

// viewIDsMax is how many posts a page has at most.
const viewIDsMax = 500

func (s *Service) viewEndpoint() *endpoint {
	return &endpoint{
		name:        "page",
		description: "counts of posts, and whether a viewer is in their sets: likes them, for example",
		request:     `{"ids":["42",43],"viewer":"7","min_position":"…","timeout_ms":2000}; all but ids are optional; min_seq instead of min_position; 500 ids at most`,
		reply:       `{"rows":[{"id":"42","like":3,"comment":1,"has":{"like":true}}],"as_of":"…"}, has only with a viewer; with "degraded":true and "missing":["43"] when a part cannot be read`,
		advice:      "ask for fewer ids at once",
		gated:       true,
		spreads:     true,
		parse:       s.parseView,
		answer:      s.answerGet,
	}
}

func (s *Service) parseView(c *call) *failure {
	g := &c.get
	g.counter, g.columns, g.member, g.raw = nil, g.columns[:0], memberAsk{}, false
	g.idList.reset()
	var viewer uint64
	var newest bool
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		switch key := sc.Key(); string(key) {
		case "ids":
			f = g.idList.parse(c, "ids", min(viewIDsMax, s.limits.IDs))
		case "viewer":
			f = parseID(sc, "viewer", &viewer)
		case "newest":
			newest = parseNewest(sc)
		default:
			f = c.wait.orPass(sc, key)
		}
		if f != nil {
			return f
		}
	}
	if f := notJSON(sc.End()); f != nil {
		return f
	}
	switch {
	case newest:
		return noNewest()
	case !g.given:
		return fail(codeBadRequest, `ids is missing; a request is {"ids":["42"],"viewer":"7"}`)
	}
	c.ids = len(g.ids)
	var f *failure
	if g.counts, f = s.catalog.resolve([]byte("post"), nil); f != nil {
		return f
	}
	g.words = append(g.words[:0], g.counts.visible...)
	g.lookForNone()
	if viewer > 0 {
		if f := g.ambiguous("viewer"); f != nil {
			return f
		}
		for _, w := range g.words {
			if w.set == pipeline.MembersIDs && w.actors {
				g.look(w, pipeline.Member{A: viewer})
			}
		}
	}
	g.plan(s, c)
	return nil
}

// parseNewest says whether the newest members are asked for: by true, or by how many.
func parseNewest(s *jsonscan.Scanner) (asked bool) {
	raw := string(s.Value())
	return s.Err() == nil && raw != "null" && raw != "false" && raw != "0"
}

func noNewest() *failure {
	return fail(codeBadRequest, "newest: which members are the newest is not kept yet; ask without it")
}
