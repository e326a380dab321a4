package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

const (
	inboxLimit    = 20 // items in a page that does not say how many
	inboxLimitMax = 1000
)

// inboxCall is a tidemark.inbox in work:
// {"user":"7","kinds":["comment"],"limit":20,"before":"…","unread":true}.
type inboxCall struct {
	ask  query.InboxAsk
	page query.InboxPage
}

func (s *Service) inboxEndpoint() *endpoint {
	return &endpoint{
		name:        "inbox",
		description: "what is in a user's lists of unread kinds, newest first, page by page",
		request:     `{"user":"7","kinds":["comment","like"],"limit":20,"before":"…","unread":true,"min_position":"…","timeout_ms":2000}; all but user are optional; kinds is all of them by default; min_seq instead of min_position; before is the next of the page before; limit is 1000 at most`,
		reply:       `{"items":[{"position":"…","time":"…","kind":"like","actor":"11","post":"50","read":false}],"next":"…","as_of":"…"}, without next at the end; with "degraded":true and "missing":["7"] when a part cannot be read`,
		advice:      "pass a lower limit",
		gated:       true,
		spreads:     true,
		parse:       s.parseInbox,
		answer:      s.answerInbox,
	}
}

func (s *Service) parseInbox(c *call) *failure {
	c.wants = s.pages
	a, place := &c.inbox.ask, uint64(0)
	*a = query.InboxAsk{Columns: a.Columns[:0], Limit: inboxLimit}
	kinds := false
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		switch key := sc.Key(); string(key) {
		case "user":
			f = parseUser(sc, &a.User)
		case "kinds":
			kinds, f = s.parseKinds(sc, kinds, a)
		case "limit":
			f = parseLimit(sc, &a.Limit, inboxLimitMax)
		case "before":
			_, f = parsePlace(sc, "before", "a position", &place)
		case "unread":
			f = parseBool(sc, "unread", &a.Unread)
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
	if a.Before = pipeline.Position(place); !kinds {
		a.Columns = append(a.Columns, s.catalog.kinds...)
	}
	switch {
	case a.User == 0:
		return fail(codeBadRequest, `user is missing; a request is {"user":"7"}`)
	case len(s.catalog.kinds) == 0:
		return noItems()
	case len(a.Columns) == 0:
		return fail(codeBadRequest, "kinds: want one at least of %s, or leave it out for all", strings.Join(s.catalog.kindNames, ", "))
	}
	return nil
}

func noItems() *failure {
	return fail(codeNotFound, "no column of unread keeps items: give one items in the configuration")
}

// parseKinds reads the kinds that are listed.
func (s *Service) parseKinds(sc *jsonscan.Scanner, twice bool, a *query.InboxAsk) (given bool, f *failure) {
	switch {
	case sc.Null():
		return twice, nil
	case twice:
		return true, fail(codeBadRequest, "kinds is given twice")
	case !sc.IsArray():
		return true, notOf(sc, "kinds", "a list")
	}
	for sc.Array(); sc.Element(); {
		name, raw, ok := sc.String()
		if sc.Err() != nil {
			return true, nil // End reports it
		}
		w := s.catalog.unreadNames[string(name)]
		switch {
		case !ok:
			return true, fail(codeBadRequest, "kinds: %s is not a name", clip(raw))
		case w == nil:
			return true, fail(codeNotFound, "kinds: %q is not a kind of unread; there are: %s", clip(name), strings.Join(s.catalog.kindNames, ", "))
		case !w.items:
			return true, fail(codeBadRequest, "kinds: unread.%s keeps no items: it is a plain number", clip(name))
		case !slices.Contains(a.Columns, w.column):
			a.Columns = append(a.Columns, w.column)
		}
	}
	return true, nil
}

func (s *Service) answerInbox(ctx context.Context, c *call) *failure {
	page, user := &c.inbox.page, c.inbox.ask.User
	applied := s.reader.Applied()
	page.Cost = query.Cost{}
	err := c.reader.Inbox(ctx, &c.inbox.ask, page, c.disk)
	c.took(page.Cost)
	stopped := errors.Is(err, query.ErrStopped)
	if stopped {
		page.Reset()
		page.AsOf, err = applied, nil
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if !stopped {
		c.out = s.appendInbox(c.out, page)
		return s.conclude(c, page.AsOf, nil)
	}
	if f := c.notWhole(1, 1, user); f != nil {
		return f
	}
	c.out = s.appendInbox(c.out, page)
	return s.conclude(c, page.AsOf, func(out []byte) []byte { return appendQuoted(out, user) })
}

// appendInbox writes a page without its end. What an item has not is left out.
func (s *Service) appendInbox(out []byte, page *query.InboxPage) []byte {
	out = append(out, `{"items":[`...)
	for i := range page.Items {
		item := &page.Items[i]
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"position":`...)
		out = appendQuoted(out, uint64(item.Position))
		out = append(out, `,"time":"`...)
		out = time.Unix(item.Second, 0).UTC().AppendFormat(out, time.RFC3339)
		out = append(out, `","kind":`...)
		out = append(out, s.catalog.wordOf(item.Column).quoted()...)
		if item.Actor != 0 {
			out = appendQuoted(append(out, `,"actor":`...), item.Actor)
		}
		if item.Post != 0 {
			out = appendQuoted(append(out, `,"post":`...), item.Post)
		}
		out = append(out, `,"read":`...)
		if item.Read {
			out = append(out, "true}"...)
		} else {
			out = append(out, "false}"...)
		}
	}
	next := uint64(0)
	if n := len(page.Items); n > 0 && page.More {
		next = uint64(page.Items[n-1].Position)
	}
	return appendEnd(out, next, page.AsOf)
}

// wordOf is the unread column's.
func (c *catalog) wordOf(column pipeline.Column) *word {
	return c.unread[slices.IndexFunc(c.unread, func(w *word) bool { return w.column == column })]
}
