package service

import "fmt"

// What cannot fit into a reply is refused before it is worked out. The bounds are
// those of JSON; the binary form has one of its own, see cellsFit.

// fits says whether a reply may be sent whose entries, one for each id, take
// entry bytes at least. It is asked before the reply is worked out.
func (s *Service) fits(c *call, entry int) bool {
	const always = 4 << 10 // nobody sets max_payload lower
	return c.ids*entry <= always || c.ids*entry <= s.replyMax()
}

// wouldNotFit is the answer where fits says no; of is what is asked.
func (s *Service) wouldNotFit(c *call, entry int, of string) *failure {
	return fail(codeTooMuch, "the reply would have %d bytes or more, the NATS server's max_payload is %d: %s; %s",
		c.ids*entry, s.replyMax(), of, c.endpoint.advice)
}

// leastRow is how many bytes an id takes at least in a reply in JSON, without values.
const leastRow = len(`{"id":"7"},`)

// leastKeys is how many bytes values of these columns take at least in JSON,
// each with a comma.
func leastKeys(words []*word) (bytes int) {
	for _, w := range words {
		bytes += len(w.key) + 1
	}
	return bytes
}

// tooLarge is the error of an answer that is not worked out, because it would
// not fit into a reply.
type tooLarge struct{ *failure }

func (t *tooLarge) Error() string { return t.message }

// unreadFits returns a *tooLarge where the answer cannot fit into a reply.
func (s *Service) unreadFits(c *call, notices, dots []string) error {
	columns, channels := len(s.catalog.unread), len(notices)+len(dots)
	if c.packed {
		if f := c.cellsFit(1 + columns + channels); f != nil {
			return &tooLarge{f}
		}
		return nil
	}
	user := leastUser(s.catalog.unread, notices, dots)
	if s.fits(c, user) {
		return nil
	}
	return &tooLarge{s.wouldNotFit(c, user, fmt.Sprintf("%d users with %d columns and %d channels each", c.ids, columns, channels))}
}

// leastUser is how many bytes a user takes at least in a reply in JSON.
func leastUser(columns []*word, notices, dots []string) int {
	least := len(`{"user":"7","feed":0,"counts":{},"channels":{},"dots":{}},`)
	least += leastKeys(columns)
	for _, name := range notices {
		least += len(name) + len(`"":0,`)
	}
	for _, name := range dots {
		least += len(name) + len(`"":true,`)
	}
	return least - 3 // the first in each object has no comma
}
