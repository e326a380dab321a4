package service

import (
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// stale is how old an answer can be, in milliseconds, that is older than it may be; 0:
// it is not. It is asked last: what comes after it is not part of the proof.
func (s *Service) stale(c *call, asOf pipeline.Position) (ms uint64) {
	if s.fresh == nil {
		return 0
	}
	age, whole := s.fresh.Age(asOf)
	if whole && !c.old {
		return 0
	}
	return uint64(max(age, time.Millisecond) / time.Millisecond)
}

// ended says that a reply is written, and how it is not whole. It refuses a stale one
// to a caller that does not want it.
func (s *Service) ended(c *call, stale uint64, missing bool) *failure {
	if stale > 0 {
		if c.wait.whole {
			return fail(codeNotReady, "not whole, and partial is false: the answer can be %d ms old: this node was not told in time where the log ends, or no node that holds what was asked has come there", stale)
		}
		s.metrics.stale.Inc()
	}
	if missing {
		s.metrics.missing.Inc()
	}
	return nil
}

// conclude ends a reply in JSON, which reaches a position. appendMissing, if not nil, writes
// the list of what is missing in it.
func (s *Service) conclude(c *call, asOf pipeline.Position, appendMissing func(out []byte) []byte) *failure {
	out, stale := c.out, s.stale(c, asOf)
	if stale > 0 || appendMissing != nil {
		out = append(out, `,"degraded":true`...)
	}
	if stale > 0 {
		out = append(out, `,"stale_ms":`...)
		out = strconv.AppendUint(out, stale, 10)
	}
	if appendMissing != nil {
		out = append(out, `,"missing":[`...)
		out = append(appendMissing(out), ']')
	}
	c.out = append(out, '}')
	return s.ended(c, stale, appendMissing != nil)
}
