package service

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
)

// whatMax is the most names in a read: what the rules' read operator takes.
const whatMax = 128

// readCall is a tidemark.read in work:
// {"user":"7","what":["comment"],"seen":{"comment":3},"as_of":"…","wait":true}, or
// {"user":"7","items":["…"]}.
// What is kept of the request is the event: what and seen are checked by the
// same rules as the router's read operator has, so that no read that got a
// position ends as a dead letter.
type readCall struct {
	user     uint64
	what     []byte // of the event: "comment","feed"
	whats    int
	seen     []byte // of the event: "comment":3
	told     []*word
	asOf     uint64
	items    []byte // of the event: "1024","2048"
	some     int    // of items
	plain    bool   // something plain is read,
	marked   bool   // and something that as_of bears on
	beside   bool   // the feed or a channel is read
	hasWhat  bool
	hasItems bool
	hasSeen  bool
	hasAsOf  bool
	visible  bool // wait: answer when every later query sees it
	event    []byte
	position pipeline.Position // of the event, once it is stored
}

func (s *Service) readEndpoint() *endpoint {
	return &endpoint{
		name:        "read",
		description: "a user has looked at something: marks it read",
		request:     `{"user":"7","what":["comment","feed","channel:system","all"],"seen":{"comment":3},"as_of":"…","wait":true,"min_position":"…","timeout_ms":2000}; all but user and what are optional; "items":["…"], positions of tidemark.inbox, in the place of what: these alone; min_seq instead of min_position`,
		reply:       `{"position":"…"}: in the log; with wait also visible to every later query. 503 with {"uncertain":true}: not known whether it is stored; 504 with {"position":"…"}: stored, but not visible in time`,
		early:       "; nothing was stored",
		gated:       true,
		writes:      true,
		parse:       s.parseRead,
		answer:      s.answerRead,
	}
}

// parseRead reads the request and writes the event.
func (s *Service) parseRead(c *call) *failure {
	r := &c.read
	*r = readCall{what: r.what[:0], seen: r.seen[:0], told: r.told[:0], items: r.items[:0], event: r.event[:0]}
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		switch key := sc.Key(); string(key) {
		case "user":
			f = parseUser(sc, &r.user)
		case "what":
			f = r.parseWhat(sc, s.catalog)
		case "seen":
			f = r.parseSeen(sc, s.catalog)
		case "items":
			f = r.parseItems(sc)
		case "as_of":
			r.hasAsOf, f = parsePlace(sc, "as_of", "a position", &r.asOf)
		case "wait":
			f = parseBool(sc, "wait", &r.visible)
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
	case r.user == 0:
		return fail(codeBadRequest, `user is missing; a request is {"user":"7","what":["comment"]}`)
	case r.hasItems:
		if f := r.checkItems(s.catalog); f != nil {
			return f
		}
	case r.whats == 0:
		return fail(codeBadRequest, `what is missing: a list of 1 to %d of %s`, whatMax, s.catalog.readable)
	case r.plain && !r.marked && r.asOf > 0:
		return fail(codeBadRequest, "as_of: what is read keeps no items, so that nobody knows what came after: leave as_of out, or give the columns items")
	}
	if s.publisher == nil {
		return fail(codeNotReady, "this node takes no reads: it has no way to the log")
	}
	r.writeEvent()
	c.wants = s.writes
	return nil
}

func (r *readCall) parseWhat(s *jsonscan.Scanner, known *catalog) *failure {
	switch {
	case s.Null():
		return nil
	case r.hasWhat:
		return fail(codeBadRequest, "what is given twice")
	case !s.IsArray():
		return notOf(s, "what", "a list")
	}
	r.hasWhat = true
	for s.Array(); s.Element(); r.whats++ {
		name, raw, ok := s.String()
		switch {
		case s.Err() != nil:
			return nil // End reports it
		case !ok:
			return fail(codeBadRequest, "what[%d]: %s is not a name", r.whats, clip(raw))
		case r.whats == whatMax:
			return fail(codeTooMuch, "what: more than %d names", whatMax)
		}
		if f := r.look(name, known); f != nil {
			return f
		}
	}
	return nil
}

// look adds one name to the event's list.
func (r *readCall) look(name []byte, known *catalog) *failure {
	if r.whats > 0 {
		r.what = append(r.what, ',')
	}
	channel, isChannel := strings.CutPrefix(string(name), "channel:")
	switch w := known.unreadNames[string(name)]; {
	case string(name) == "all" || string(name) == "feed":
		r.what = appendQuotedName(r.what, name)
		r.marked, r.beside = true, r.beside || string(name) == "feed"
	case isChannel && !channelName(channel):
		return fail(codeBadRequest, "what[%d]: %q is not a channel's name: channel: and 1 to 64 of a-z 0-9 _ -", r.whats, clip(name))
	case isChannel:
		r.what = appendQuotedName(r.what, name)
		r.marked, r.beside = true, true
	case w == nil:
		return fail(codeNotFound, "what[%d]: %q is not something unread; there are: %s", r.whats, clip(name), known.readable)
	default:
		r.what = append(r.what, w.quoted()...)
		r.marked, r.plain = r.marked || w.items, r.plain || !w.items
	}
	return nil
}

// parseItems reads the positions of items that alone are read.
func (r *readCall) parseItems(s *jsonscan.Scanner) *failure {
	switch {
	case s.Null():
		return nil
	case r.hasItems:
		return fail(codeBadRequest, "items is given twice")
	case !s.IsArray():
		return notOf(s, "items", "a list")
	}
	r.hasItems = true
	for s.Array(); s.Element(); r.some++ {
		p, raw, ok := s.Uint()
		switch {
		case s.Err() != nil:
			return nil // End reports it
		case !ok || p == 0:
			return fail(codeBadRequest, "items[%d]: %s is not a position", r.some, clip(raw))
		case r.some == whatMax:
			return fail(codeTooMuch, "items: more than %d positions", whatMax)
		case r.some > 0:
			r.items = append(r.items, ',')
		}
		r.items = appendQuoted(r.items, p)
	}
	return nil
}

// checkItems sees that a read of single items says nothing else.
func (r *readCall) checkItems(known *catalog) *failure {
	switch {
	case len(known.kinds) == 0:
		return noItems()
	case r.some == 0:
		return fail(codeBadRequest, "items: want 1 to %d positions", whatMax)
	case r.hasSeen:
		return fail(codeBadRequest, "seen: a read of items has none")
	case r.beside || r.plain:
		return fail(codeBadRequest, "what: a read of items is of kinds of unread that keep items alone")
	}
	return nil
}

func channelName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= pipeline.ChannelBytesMax
}

// appendQuotedName is for names that stand in JSON as they are.
func appendQuotedName(out, name []byte) []byte {
	out = append(out, '"')
	out = append(out, name...)
	return append(out, '"')
}

func (r *readCall) parseSeen(s *jsonscan.Scanner, known *catalog) *failure {
	switch {
	case s.Null():
		return nil
	case r.hasSeen:
		return fail(codeBadRequest, "seen is given twice")
	case !s.IsObject():
		return notOf(s, "seen", "an object of counts")
	}
	r.hasSeen = true
	for s.Object(); s.Member(); {
		name := s.Key()
		n, raw, ok := s.Uint()
		if s.Err() != nil {
			return nil // End reports it
		}
		w := known.unreadNames[string(name)]
		switch {
		case w == nil:
			return fail(codeNotFound, "seen: %q is not an unread column; there are: %s", clip(name), known.unreadList)
		case !ok || n > pipeline.Limit:
			return fail(codeBadRequest, "seen.%s: %s is not a count", clip(name), clip(raw))
		case contains(r.told, w): // the log takes no object with a name twice
			return fail(codeBadRequest, "seen.%s is given twice", clip(name))
		}
		if len(r.told) > 0 {
			r.seen = append(r.seen, ',')
		}
		r.told = append(r.told, w)
		r.seen = append(r.seen, w.quoted()...)
		r.seen = append(r.seen, ':')
		r.seen = strconv.AppendUint(r.seen, n, 10)
	}
	return nil
}

// writeEvent writes {"type":"read","actor":7,"what":["comment"],…}.
func (r *readCall) writeEvent() {
	e := append(r.event[:0], `{"type":"read","actor":`...)
	e = strconv.AppendUint(e, r.user, 10)
	if r.whats > 0 {
		e = append(e, `,"what":[`...)
		e = append(e, r.what...)
		e = append(e, ']')
	}
	if r.hasItems {
		e = append(e, `,"items":[`...)
		e = append(e, r.items...)
		e = append(e, ']')
	}
	if len(r.seen) > 0 {
		e = append(e, `,"seen":{`...)
		e = append(e, r.seen...)
		e = append(e, '}')
	}
	if r.hasAsOf {
		e = append(e, `,"as_of":`...)
		e = appendQuoted(e, r.asOf)
	}
	r.event = append(e, '}')
}

// answerRead runs in a goroutine of its own: the log's acknowledgement takes
// as long as it takes. A publish is given its own time, whatever timeout_ms
// says: one that is cut short is in the log as likely as not.
func (s *Service) answerRead(ctx context.Context, c *call) *failure {
	r := &c.read
	toLog, cancel := context.WithTimeout(ctx, s.limits.Publish)
	defer cancel()
	var err error
	r.position, err = s.publisher.Publish(toLog, r.event)
	c.clock.lap(stageLog)
	if errors.Is(err, pipeline.ErrFull) || errors.Is(err, pipeline.ErrNoLog) {
		if line, leftOut := s.refusedReads.line(time.Now()); line {
			s.log.Warn("query: a read is refused", "user", r.user, "left_out", leftOut, "error", err)
		}
		if err := s.refuses(true); err != nil {
			return fail(codeNotReady, "%v; nothing was stored", err)
		}
		if errors.Is(err, pipeline.ErrNoLog) {
			return fail(codeNotReady, "the log takes no events now: EVENTS has no leader, or is gone; nothing was stored, ask again later")
		}
		return fail(codeNotReady, "the log is full, nothing was stored")
	}
	if err != nil {
		if line, leftOut := s.lostReads.line(time.Now()); line {
			s.log.Warn("query: a read may be lost", "user", r.user, "left_out", leftOut, "error", err)
		}
		return r.uncertain(err)
	}
	if r.visible && (s.spread != nil || r.position > s.reader.Applied()) {
		if f := s.untilVisible(ctx, c); f != nil {
			f.body = r.appendReply(nil)
			return f
		}
	}
	c.out = r.appendReply(c.out)
	return nil
}

func (r *readCall) appendReply(out []byte) []byte {
	out = append(out, `{"position":`...)
	out = appendQuoted(out, uint64(r.position))
	return append(out, '}')
}

// uncertain: a mark that is set twice is set, a counter that is taken back
// to 0 twice is 0; but what was seen is taken off each time, unless as_of says of what.
func (r *readCall) uncertain(err error) *failure {
	again := "sending it again does no harm"
	if len(r.seen) > 0 && (r.asOf == 0 || slices.ContainsFunc(r.told, func(w *word) bool { return !w.items })) {
		again = "sending it again may take what was seen off twice: ask tidemark.unread first, or send it without seen"
	}
	f := fail(codeNotReady, "it is not known whether the read was stored; %s: %v", again, err)
	f.body = []byte(`{"uncertain":true}`)
	return f
}

// untilVisible waits for the rest of the request's time. Whatever keeps the read from
// being seen, it is stored: 504 with the position says
// so, any other code would have it sent again.
func (s *Service) untilVisible(ctx context.Context, c *call) *failure {
	position, timeout := c.read.position, s.timeout(c)
	defer c.clock.lap(stagePosition)
	waiting, cancel := context.WithDeadline(ctx, c.clock.start.Add(timeout))
	defer cancel()
	err := s.visible(waiting, c.read.user, position)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fail(codeTooLate, "stopping: the read is stored at position %s, but not visible yet; do not send it again, ask with that min_position", position)
	case waiting.Err() != nil || errors.Is(err, query.ErrBehind):
		return fail(codeTooLate, "the read is stored at position %s, but was not visible within %d ms, applied is %s; do not send it again, ask with that min_position",
			position, timeout/time.Millisecond, s.reader.Applied())
	}
	why := "no node that holds the user answers"
	if !errors.Is(err, query.ErrNobody) {
		why = err.Error()
	}
	return fail(codeTooLate, "the read is stored at position %s, but cannot be seen now: %s; do not send it again, ask with that min_position", position, why)
}
