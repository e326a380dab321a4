package service

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/jsonscan"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// unreadCall is a tidemark.unread in work: {"users":["7"],"channels":["system"]}.
type unreadCall struct {
	idList
	channels []string // asked; nil: all there are
	unreads  query.Unreads
	cells    []uint64 // of a column of an answer in binary form
}

// channelsMax is the most channels that one request may name: as many as a read
// takes names. Each is looked up for every user.
const channelsMax = packed.ChannelsMax

// unreadInline is the most users that are answered in the subscription's
// goroutine. One costs ten microseconds or so when they follow some hundred,
// a hundred when they follow thousands.
const unreadInline = 16

func (s *Service) unreadEndpoint() *endpoint {
	return &endpoint{
		name:        "unread",
		description: "what users have not looked at yet: feed, 1:1 counters, channels; in the order asked",
		request:     `{"users":["7"],"channels":["system"],"min_position":"…","timeout_ms":2000}; channels (these alone), min_position (or min_seq, from an acknowledgement) and timeout_ms are optional`,
		reply:       `{"users":[{"user":"7","feed":12,"counts":{"comment":3,"mention":0},"channels":{"system":2},"dots":{"games":true}}],"as_of":"…"}; with "degraded":true and "missing":["7"] when a part cannot be read`,
		advice:      "ask for fewer users at once, or name the channels that are wanted",
		gated:       true,
		lists:       true,
		spreads:     true,
		spell:       spellUnread,
		parse:       s.parseUnread,
		answer:      s.answerUnread,
	}
}

func (s *Service) parseUnread(c *call) *failure {
	parse := s.readUnread
	if c.packed {
		parse = s.unpackUnread
	}
	if f := parse(c); f != nil {
		return f
	}
	c.ids = len(c.unread.ids)
	if c.ids > unreadInline {
		c.wants = s.heavy
	}
	return nil
}

// readUnread reads the body.
func (s *Service) readUnread(c *call) *failure {
	u := &c.unread
	u.idList.reset()
	u.channels = nil
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		switch key := sc.Key(); string(key) {
		case "users":
			f = u.idList.parse(c, "users", s.limits.IDs)
		case "channels":
			f = u.parseChannels(sc)
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
	if !u.given {
		return fail(codeBadRequest, `users is missing; a request is {"users":["7"]}`)
	}
	return nil
}

// parseChannels reads the channels that alone are answered.
func (u *unreadCall) parseChannels(s *jsonscan.Scanner) *failure {
	switch {
	case s.Null():
		return nil
	case u.channels != nil:
		return fail(codeBadRequest, "channels is given twice")
	case !s.IsArray():
		return notOf(s, "channels", "a list")
	}
	u.channels = []string{} // none is not the same as all
	for s.Array(); s.Element(); {
		text, raw, ok := s.String()
		if s.Err() != nil {
			return nil // End reports it
		}
		if f := u.addChannel(string(text), raw, ok); f != nil {
			return f
		}
	}
	return nil
}

// addChannel adds a channel that is given as raw, if it is a text at all.
func (u *unreadCall) addChannel(name string, raw []byte, isText bool) *failure {
	at := len(u.channels)
	switch {
	case !isText || !channelName(name):
		return fail(codeBadRequest, "channels[%d]: %s is not a channel's name: 1 to 64 of a-z 0-9 _ -", at, clip(raw))
	case slices.Contains(u.channels, name):
		return fail(codeBadRequest, "channels[%d]: %s is given twice", at, clip(raw))
	case at == channelsMax:
		return tooManyNames(&packed.TooManyNames{What: "channels", Most: channelsMax})
	}
	u.channels = append(u.channels, name)
	return nil
}

func (s *Service) answerUnread(ctx context.Context, c *call) *failure {
	u := &c.unread
	applied := s.reader.Applied()
	u.unreads.Cost = query.Cost{}
	if u.unreads.Fit == nil {
		u.unreads.Fit = func(notices, dots []string) error { return s.unreadFits(c, notices, dots) }
	}
	err := c.reader.Unread(ctx, u.ids, u.channels, &u.unreads, c.disk)
	c.took(u.unreads.Cost)
	if errors.Is(err, query.ErrStopped) {
		u.unreads.Reset(len(u.ids), len(s.catalog.unread), nil, nil)
		u.unreads.Missing = everyIndex(u.unreads.Missing, len(u.ids))
		u.unreads.AsOf, err = applied, nil
	}
	if large, is := errors.AsType[*tooLarge](err); is {
		return large.failure
	}
	if err != nil {
		return s.unreadable(c, err)
	}
	if missing := u.unreads.Missing; len(missing) > 0 {
		if f := c.notWhole(len(missing), len(u.ids), u.ids[missing[0]]); f != nil {
			return f
		}
	}
	if c.packed {
		return s.packUnread(c)
	}
	c.out = u.appendReply(c.out, c.body, s.catalog.unread, s.replyMax())
	return s.conclude(c, u.unreads.AsOf, u.missingOf(u.unreads.Missing))
}

// appendReply writes {"users":[…],"as_of":"…" without the end. A missing user keeps its
// place, but has nothing: nothing that could be taken for a zero. It gives up
// soon after the reply is longer than most: with a thousand channels, ten
// thousand users make a hundred megabytes that nobody can be sent.
func (u *unreadCall) appendReply(out, body []byte, columns []*word, most int) []byte {
	missing := u.marks(u.unreads.Missing)
	out = append(out, `{"users":[`...)
	for i := range u.ids {
		if len(out) > most {
			return out
		}
		out = append(out, `{"user":"`...)
		out = u.appendID(out, body, i)
		out = append(out, '"')
		if missing == nil || !missing[i] {
			out = u.appendUser(out, &u.unreads.Users[i], columns)
		}
		out = append(out, '}', ',')
	}
	if len(u.ids) > 0 {
		out = out[:len(out)-1] // the last comma
	}
	return appendAsOf(append(out, ']'), u.unreads.AsOf)
}

func (u *unreadCall) appendUser(out []byte, user *query.UserUnread, columns []*word) []byte {
	out = append(out, `,"feed":`...)
	out = strconv.AppendUint(out, user.Feed, 10)
	out = append(out, `,"counts":{`...)
	for i, w := range columns {
		key := w.key
		if i == 0 {
			key = key[1:] // without the comma
		}
		out = append(out, key...)
		out = strconv.AppendUint(out, uint64(w.shown(user.Counts[i])), 10)
	}
	out = append(out, `},"channels":{`...)
	for i, name := range u.unreads.Notices {
		out = appendName(out, i, name)
		out = strconv.AppendUint(out, user.Notices[i], 10)
	}
	out = append(out, `},"dots":{`...)
	for i, name := range u.unreads.Dots {
		out = appendName(out, i, name)
		out = strconv.AppendBool(out, user.Dots[i])
	}
	return append(out, '}')
}

// appendName begins the i-th member of an object. Channels' names are of
// a-z 0-9 _ - and stand in JSON as they are.
func appendName(out []byte, i int, name string) []byte {
	if i > 0 {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, name...)
	return append(out, '"', ':')
}
