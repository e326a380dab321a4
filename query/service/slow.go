package service

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/query"
)

// Slow says which requests tidemark.slowlog remembers.
type Slow struct {
	// Threshold is the time above which a request is slow: then it is kept
	// among the latest, counted, and logged (linePace). What it waited for a position
	// is not counted in: the log was not there yet, and no answer could be. 0: nothing is
	// slow, and only the slowest are kept.
	Threshold time.Duration
	// Entries is how many of the slowest and how many of the latest are kept.
	// Default 128: each takes a kilobyte at most, and people read no more.
	Entries int
}

const (
	// slowRequestMax is how many bytes of what was asked are kept: two dozen
	// ids, enough to ask it again by hand.
	slowRequestMax = 512
	// slowLineMax is how many of them the log's line has.
	slowLineMax = 120
)

// slowLog remembers requests that took long: the slowest since the last reset, however
// long ago, and the latest above the threshold. The one list shows what can happen, the
// other what happens now.
//
// For a request that is neither it costs two comparisons.
type slowLog struct {
	threshold time.Duration
	entries   int
	pace      linePace

	bar atomic.Int64 // what took no longer, in microseconds, is not among the slowest

	mu      sync.Mutex
	since   time.Time            // of the last reset
	over    uint64               // requests above the threshold since then
	slowest []*query.SlowRequest // the longest first, entries at most
	latest  []*query.SlowRequest // the latest last, entries at most
}

func newSlowLog(o Slow) *slowLog {
	if o.Entries <= 0 {
		o.Entries = 128
	}
	l := &slowLog{threshold: max(o.Threshold, 0), entries: o.Entries}
	l.take(true)
	return l
}

// wants says whether a request that took so long may be kept.
func (l *slowLog) wants(k *clock) bool { return k.total.Microseconds() > l.bar.Load() || l.isOver(k) }

func (l *slowLog) isOver(k *clock) bool {
	return l.threshold > 0 && k.total-k.spent[stagePosition] > l.threshold
}

// add keeps a request where it belongs; over says that it is above the threshold.
func (l *slowLog) add(r *query.SlowRequest, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slowest) < l.entries || r.TotalUS > l.slowest[l.entries-1].TotalUS {
		at, _ := slices.BinarySearchFunc(l.slowest, r.TotalUS, func(o *query.SlowRequest, total int64) int {
			if o.TotalUS >= total { // of those as slow, the first stays first
				return -1
			}
			return 1
		})
		l.slowest = slices.Insert(l.slowest[:min(len(l.slowest), l.entries-1)], at, r)
	}
	if over {
		l.over++
		l.latest = append(l.latest[max(0, len(l.latest)+1-l.entries):], r)
	}
	l.raiseLocked()
}

func (l *slowLog) raiseLocked() {
	bar := int64(-1) // there is room for any
	if len(l.slowest) == l.entries {
		bar = l.slowest[l.entries-1].TotalUS
	}
	l.bar.Store(bar)
}

// take shows what is kept, and with reset forgets it in the same moment: no
// request is lost in between.
func (l *slowLog) take(reset bool) query.SlowLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := func(of []*query.SlowRequest) []query.SlowRequest {
		list := make([]query.SlowRequest, 0, len(of))
		for _, r := range of {
			list = append(list, *r)
		}
		return list
	}
	view := query.SlowLog{
		Since: l.since.UTC().Truncate(time.Microsecond), ThresholdUS: l.threshold.Microseconds(), OverThreshold: l.over,
		Slowest: list(l.slowest), Latest: list(l.latest),
	}
	slices.Reverse(view.Latest)
	if reset {
		l.since, l.over, l.slowest, l.latest = time.Now(), 0, nil, nil
		l.raiseLocked()
	}
	return view
}

// remember keeps a call that slowLog.wants, at its end.
func (s *Service) remember(c *call, result code) {
	us := func(of stage) int64 { return c.clock.spent[of].Microseconds() }
	over := s.slow.isOver(&c.clock)
	s.slow.add(&query.SlowRequest{
		Endpoint: c.endpoint.name, At: c.clock.start.UTC().Truncate(time.Microsecond), Code: int(result),
		TotalUS: c.clock.total.Microseconds(), ParseUS: us(stageParse), TurnUS: us(stageTurn), PositionUS: us(stagePosition), MemoryUS: us(stageMemory),
		DiskUS: us(stageDisk), NodesUS: us(stageNodes), LogUS: us(stageLog), WriteUS: us(stageWrite),
		IDs: c.ids, Cold: c.cold, Request: clipTo(c.text(slowRequestMax), slowRequestMax),
	}, over)
	if !over {
		return
	}
	s.metrics.slow.Inc()
	line, leftOut := s.slow.pace.line(time.Now())
	if !line {
		return
	}
	attrs := []slog.Attr{slog.String("endpoint", c.endpoint.name), slog.Int("code", int(result)), slog.Duration("total", c.clock.total)}
	for stage, spent := range c.clock.spent {
		if spent > 0 {
			attrs = append(attrs, slog.Duration(stageNames[stage], spent))
		}
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "query: a slow request", append(attrs,
		slog.Int("ids", c.ids), slog.Int("cold", c.cold), slog.Uint64("left_out", leftOut),
		slog.String("request", clipTo(c.text(slowLineMax), slowLineMax)))...)
}

// slowCall is a tidemark.slowlog in work: {"reset":true}.
type slowCall struct{ reset bool }

func (s *Service) slowlogEndpoint() *endpoint {
	return &endpoint{
		name:        "slowlog",
		description: "requests that took long, and where their time went",
		request:     `{} or {"reset":true}, which empties the log behind the answer`,
		reply:       `{"node":"…","since":"…","threshold_us":50000,"over_threshold":1,"slowest":[{"endpoint":"get","at":"…","code":200,"total_us":61250,"parse_us":11,…,"ids":1,"cold":1,"request":"…"}],"latest":[…]}`,
		advice:      "raise the server's max_payload",
		parse:       s.parseSlowlog,
		answer:      s.views(s.answerSlowlog),
	}
}

func (s *Service) parseSlowlog(c *call) *failure {
	c.slow = slowCall{}
	if len(c.body) == 0 {
		return nil
	}
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		if key := sc.Key(); string(key) == "reset" {
			f = parseBool(sc, "reset", &c.slow.reset)
		} else {
			f = c.wait.orPass(sc, key)
		}
		if f != nil {
			return f
		}
	}
	return notJSON(sc.End())
}

func (s *Service) answerSlowlog(_ context.Context, c *call) *failure {
	reply := s.slow.take(c.slow.reset)
	reply.Node = s.node
	// A small max_payload gets half of each list, the more important one: at
	// night an answer that is cut is worth more than an error.
	for {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false) // this is read by people
		if err := e.Encode(reply); err != nil {
			s.log.Error("query: the slow log cannot be written as JSON", "error", err)
			return fail(codeInternal, "the slow log cannot be written as JSON")
		}
		if out.Len() <= s.replyMax() || len(reply.Slowest)+len(reply.Latest) == 0 {
			c.out = append(c.out, bytes.TrimSuffix(out.Bytes(), []byte{'\n'})...)
			return nil
		}
		reply.Slowest, reply.Latest, reply.Cut = reply.Slowest[:len(reply.Slowest)/2], reply.Latest[:len(reply.Latest)/2], true
	}
}
