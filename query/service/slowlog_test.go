package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

// slowlog is the reply of tidemark.slowlog as docs/queries.md describes it.
type slowlog struct {
	Node          string
	Since         time.Time
	ThresholdUS   int64  `json:"threshold_us"`
	OverThreshold uint64 `json:"over_threshold"`
	Slowest       []slowRequest
	Latest        []slowRequest
	Cut           bool
}

type slowRequest struct {
	Endpoint   string
	At         time.Time
	Code       int
	TotalUS    int64 `json:"total_us"`
	ParseUS    int64 `json:"parse_us"`
	TurnUS     int64 `json:"turn_us"`
	PositionUS int64 `json:"position_us"`
	MemoryUS   int64 `json:"memory_us"`
	DiskUS     int64 `json:"disk_us"`
	LogUS      int64 `json:"log_us"`
	WriteUS    int64 `json:"write_us"`
	IDs        int
	Cold       int
	Request    string
}

func (r *room) slowlog(body string) (reply slowlog) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.ask("tidemark.slowlog", body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&reply); err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// slow waits for so many requests over the threshold: each has its answer a
// moment before it is remembered.
func (r *room) slow(n int) (reply slowlog) {
	r.t.Helper()
	until(r.t, "all are remembered", func() bool {
		reply = r.slowlog(`{}`)
		return len(reply.Latest) >= n
	})
	return reply
}

// Each part of a slow request's time is told under its own name.
func TestWhereTheTimeWent(t *testing.T) {
	const wait = 30 * time.Millisecond
	var log e2e.Lines
	var r *room
	r = start(t, func(o *service.Options, _ *server.Options) {
		o.Slow.Threshold = wait - 10*time.Millisecond
		o.Limits.Workers, o.Limits.ColdReads = 1, 1
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Publisher = querytest.Publish(func(context.Context, []byte) (pipeline.Position, error) {
			time.Sleep(wait)
			time.AfterFunc(3*wait, func() { r.reader.Apply(3) })
			return 3, nil
		})
	})
	r.reader.Cool(42)
	var second sync.Once
	r.reader.Disk = func() {
		second.Do(func() {
			for tries := 0; r.figure("tidemark_query_cold_in_flight") < 2 && tries < 1000; tries++ {
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(wait)
	}
	since := time.Now()

	// The one that comes second waits for the one that reads the disk.
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			r.get(`{"counter":"post","ids":[42,1],"columns":["like"]}`, `{"rows":[{"id":"42","like":0},{"id":"1","like":0}],"as_of":"0"}`)
		})
	}
	both.Wait()
	r.refuses("following", `{"user":7,"min_position":"5","timeout_ms":30}`, "504")
	r.answers("read", `{"user":7,"what":["feed"],"wait":true}`, `{"position":"3"}`)

	got := r.slow(3)
	if got.Node != "a" || got.ThresholdUS != 20_000 || got.OverThreshold != 3 || got.Since.After(since) || got.Cut {
		t.Errorf("%+v", got)
	}
	least := wait.Microseconds()
	for i, want := range []struct {
		endpoint, request string
		code, ids, cold   int
		turn, position    int64
		disk, log         int64
	}{
		{"read", `{"user":7,"what":["feed"],"wait":true}`, 200, 0, 0, 0, least, 0, least},
		{"get", `{"counter":"post","ids":[42,1],"columns":["like"]}`, 200, 2, 1, least, 0, least, 0},
		{"get", `{"counter":"post","ids":[42,1],"columns":["like"]}`, 200, 2, 1, 0, 0, least, 0},
	} {
		e := got.Latest[i]
		if e.Endpoint != want.endpoint || e.Request != want.request || e.Code != want.code || e.IDs != want.ids || e.Cold != want.cold {
			t.Errorf("number %d is %+v, want %+v", i, e, want)
		}
		if e.TurnUS < want.turn || e.PositionUS < want.position || e.DiskUS < want.disk || e.LogUS < want.log {
			t.Errorf("number %d is %+v, want at least %+v", i, e, want)
		}
		for what, zero := range map[string]bool{
			"position": want.position == 0 && e.PositionUS != 0,
			"disk":     want.disk == 0 && e.DiskUS != 0,
			"log":      want.log == 0 && e.LogUS != 0,
		} {
			if zero {
				t.Errorf("number %d did not wait for the %s: %+v", i, what, e)
			}
		}
		sum := e.ParseUS + e.TurnUS + e.PositionUS + e.MemoryUS + e.DiskUS + e.LogUS + e.WriteUS
		if sum > e.TotalUS || sum < e.TotalUS-7 { // each is rounded down
			t.Errorf("number %d: its parts add up to %d of %d", i, sum, e.TotalUS)
		}
		if e.At.Before(since.Add(-time.Millisecond)) || e.At.After(time.Now()) {
			t.Errorf("number %d came at %v", i, e.At)
		}
	}
	for i := 1; i < len(got.Slowest); i++ {
		if got.Slowest[i-1].TotalUS < got.Slowest[i].TotalUS {
			t.Errorf("number %d is faster than the next: %+v", i-1, got.Slowest)
		}
	}
	// One that only waited for its position is among the slowest, and is not
	// slow. Its time runs from its arrival, so that reading the request is part of it.
	if at := slices.IndexFunc(got.Slowest, func(e slowRequest) bool { return e.Endpoint == "following" }); at < 0 || got.Slowest[at].ParseUS+got.Slowest[at].PositionUS < least-1000 {
		t.Errorf("the slowest are %+v", got.Slowest)
	}
	// A request is counted behind its entry.
	until(t, "three are counted", func() bool { return r.figure("tidemark_query_slow_total") == 3 })
	// All within a second: one line of each endpoint, of the first.
	until(t, "both are logged", func() bool { return strings.Count(log.String(), "a slow request") >= 2 })
	text := log.String()
	if lines := strings.Count(text, "a slow request"); lines != 2 && time.Since(since) < time.Second {
		t.Errorf("%d lines: %s", lines, text)
	}
	if !strings.Contains(text, "level=INFO") ||
		!strings.Contains(text, "endpoint=get code=200 total=") || !strings.Contains(text, " disk=") || !strings.Contains(text, "ids=2 cold=1 left_out=0") {
		t.Errorf("the log has %s", text)
	}
}

// A `read` with `wait`, or any request with min_position, that only waited for
// its position is not slow, however long that was.
func TestWaitingForAPositionIsNotSlow(t *testing.T) {
	var log e2e.Lines
	var r *room
	r = start(t, func(o *service.Options, _ *server.Options) {
		o.Slow.Threshold = 20 * time.Millisecond
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Publisher = querytest.Publish(func(context.Context, []byte) (pipeline.Position, error) {
			time.AfterFunc(100*time.Millisecond, func() { r.reader.Apply(3) })
			return 3, nil
		})
	})
	r.answers("read", `{"user":7,"what":["feed"],"wait":true}`, `{"position":"3"}`)
	r.refused(`{"counter":"post","ids":[1],"min_position":"9","timeout_ms":100}`, "504")
	r.refuses("unread", `{"users":[1],"min_seq":9,"timeout_ms":100}`, "504")
	var got slowlog
	until(t, "all are remembered", func() bool { got = r.slowlog(`{}`); return len(got.Slowest) >= 3 })
	if len(got.Latest) != 0 || got.OverThreshold != 0 || r.figure("tidemark_query_slow_total") != 0 || strings.Contains(log.String(), "a slow request") {
		t.Errorf("%+v\n%s", got, log.String())
	}
}

// "{"reset":true} empties it": whoever empties it has seen what was in it.
func TestSlowlogReset(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Slow = service.Slow{Threshold: time.Nanosecond, Entries: 3}
	})
	for range 5 {
		r.refused(`{"counter":"pots","ids":[1]}`, "404")
	}
	until(t, "all are remembered", func() bool { return r.figure("tidemark_query_slow_total") == 5 })
	before := r.slowlog(`{"reset":true,"x":[]}`)
	if len(before.Slowest) != 3 || len(before.Latest) != 3 || before.OverThreshold != 5 || before.Latest[0].Code != 404 || before.Latest[0].IDs != 1 {
		t.Errorf("%+v", before)
	}
	after := r.slowlog(``)
	for _, e := range append(after.Slowest, after.Latest...) {
		if e.Endpoint != "slowlog" || e.Request != `{"reset":true,"x":[]}` {
			t.Errorf("after the reset there is %+v", e)
		}
	}
	if after.Since.Before(before.Since) || after.OverThreshold > 1 {
		t.Errorf("after the reset: %+v", after)
	}
	r.answers("slowlog", `{"reset":1}`, "400 reset: 1 is not true or false")
	r.refuses("slowlog", `{"reset":true`, "400", "the body is not the JSON object it should be")
}

// Without a threshold the slowest are kept, and nothing is slow.
func TestSlowlogWithoutThreshold(t *testing.T) {
	r := start(t)
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	var got slowlog
	until(t, "it is remembered", func() bool { got = r.slowlog(`{}`); return len(got.Slowest) > 1 })
	if len(got.Latest) != 0 || got.ThresholdUS != 0 || got.OverThreshold != 0 || strings.Contains(r.log.String(), "slow") {
		t.Errorf("%+v, the log has %s", got, r.log)
	}
}

// What was asked is clipped, and nobody's terminal is played with.
func TestSlowlogClips(t *testing.T) {
	r := start(t)
	r.refused("\x1b[2J"+strings.Repeat(`é`, 500), "400")
	var got slowlog
	until(t, "it is remembered", func() bool { got = r.slowlog(`{}`); return len(got.Slowest) > 1 })
	for _, e := range got.Slowest {
		if e.Endpoint == "get" && e.Request != " [2J"+strings.Repeat(`é`, 254)+"…" {
			t.Errorf("%q", e.Request)
		}
	}
}

// A small max_payload gets the first part of each list.
func TestSlowlogThatDoesNotFit(t *testing.T) {
	r := start(t, func(o *service.Options, so *server.Options) {
		so.MaxPayload = 8192
		o.Slow = service.Slow{Threshold: time.Nanosecond}
	})
	for range 64 {
		r.refused(`{"counter":"pots","ids":[1],"x":"`+strings.Repeat("x", 400)+`"}`, "404")
	}
	until(t, "all are remembered", func() bool { return r.figure("tidemark_query_slow_total") >= 64 })
	got := r.slowlog(`{}`)
	if !got.Cut || len(got.Latest) != 4 || len(got.Slowest) != 4 || got.OverThreshold < 64 {
		t.Errorf("%d latest, %d slowest, %+v", len(got.Latest), len(got.Slowest), got.OverThreshold)
	}
}

// The slow log answers when nothing else does.
func TestSlowlogBeforeTheNodeIsReady(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Ready = func() error { return errors.New("loading") } })
	r.refused(`{"counter":"post","ids":[1]}`, "503")
	if got := r.slowlog(`{}`); got.Node != "a" {
		t.Errorf("%+v", got)
	}
}
