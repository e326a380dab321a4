package service_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

func (r *room) slowlog(body string) (reply query.SlowLog) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.ask("tidemark.slowlog", body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&reply); err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// "{"reset":true} empties it": whoever empties it has seen what was in it.
func TestSlowlogReset(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Slow = service.Slow{Threshold: time.Nanosecond, Entries: 3}
	})
	for range 5 {
		r.refused(`{"counter":"pots","ids":[1]}`, "404")
	}
	e2e.Until(t, "all are remembered", func() bool { return r.figure("tidemark_query_slow_total") == 5 })
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

// A small max_payload gets the first part of each list.
func TestSlowlogThatDoesNotFit(t *testing.T) {
	r := start(t, func(o *service.Options, so *server.Options) {
		so.MaxPayload = 8192
		o.Slow = service.Slow{Threshold: time.Nanosecond}
	})
	for range 64 {
		r.refused(`{"counter":"pots","ids":[1],"x":"`+strings.Repeat("x", 400)+`"}`, "404")
	}
	e2e.Until(t, "all are remembered", func() bool { return r.figure("tidemark_query_slow_total") >= 64 })
	got := r.slowlog(`{}`)
	if !got.Cut || len(got.Latest) != 4 || len(got.Slowest) != 4 || got.OverThreshold < 64 {
		t.Errorf("%d latest, %d slowest, %+v", len(got.Latest), len(got.Slowest), got.OverThreshold)
	}
}

// Each part of a slow request's time is told under its own name.
func TestWhereTheTimeWent(t *testing.T) {
	const takes = 10 * time.Millisecond // the log to store a read, a read to be visible, the disk
	var log e2e.Lines
	var r *room
	r = start(t, func(o *service.Options, _ *server.Options) {
		o.Slow.Threshold = takes / 2
		o.Limits.Workers, o.Limits.ColdReads = 1, 1
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Publisher = querytest.Publish(func(context.Context, []byte) (pipeline.Position, error) {
			time.Sleep(takes)
			time.AfterFunc(3*takes, func() { r.reader.Apply(3) })
			return 3, nil
		})
	})
	r.reader.Cool(42)
	var second sync.Once
	r.reader.Disk = func(context.Context) {
		second.Do(func() {
			e2e.Until(t, "another waits for the disk", func() bool { return r.figure("tidemark_query_cold_in_flight") == 2 })
		})
		time.Sleep(takes)
	}
	since := time.Now()
	get := `{"counter":"post","ids":[42,1],"columns":["like"]}`
	var both sync.WaitGroup
	for range 2 { // the one that comes second waits for the one that reads the disk
		both.Go(func() { r.get(get, `{"rows":[{"id":"42","like":0},{"id":"1","like":0}],"as_of":"0"}`) })
	}
	both.Wait()
	r.refuses("following", `{"user":7,"min_position":"5","timeout_ms":10}`, "504")
	r.answers("read", `{"user":7,"what":["feed"],"wait":true}`, `{"position":"3"}`)

	var got query.SlowLog
	remembered := func() bool {
		got = r.slowlog(`{}`)
		got.Latest = slices.DeleteFunc(got.Latest, func(e query.SlowRequest) bool { // on a starved machine these take as long
			return e.Endpoint == "slowlog" || e.Endpoint == "following"
		})
		return len(got.Latest) >= 3 && got.OverThreshold >= 3
	}
	e2e.Until(t, "all are remembered", remembered)
	if got.Node != "a" || got.ThresholdUS != 5000 || len(got.Latest) != 3 || got.Since.After(since) || got.Cut {
		t.Errorf("%+v", got)
	}
	least := takes.Microseconds()
	for i, want := range []query.SlowRequest{
		{Endpoint: "read", Code: 200, PositionUS: least, LogUS: least, Request: `{"user":7,"what":["feed"],"wait":true}`},
		{Endpoint: "get", Code: 200, IDs: 2, Cold: 1, TurnUS: least, DiskUS: least, Request: get},
		{Endpoint: "get", Code: 200, IDs: 2, Cold: 1, DiskUS: least, Request: get},
	} {
		e := got.Latest[i]
		if e.Endpoint != want.Endpoint || e.Request != want.Request || e.Code != want.Code || e.IDs != want.IDs || e.Cold != want.Cold ||
			e.TurnUS < want.TurnUS || e.PositionUS < want.PositionUS || e.DiskUS < want.DiskUS || e.LogUS < want.LogUS {
			t.Errorf("number %d is %+v, want at least %+v", i, e, want)
		}
		if want.PositionUS == 0 && e.PositionUS != 0 || want.DiskUS == 0 && e.DiskUS != 0 || want.LogUS == 0 && e.LogUS != 0 {
			t.Errorf("number %d did not wait for all of that: %+v", i, e)
		}
		sum := e.ParseUS + e.TurnUS + e.PositionUS + e.MemoryUS + e.DiskUS + e.LogUS + e.WriteUS
		if sum > e.TotalUS || sum < e.TotalUS-7 { // each is rounded down
			t.Errorf("number %d: its parts add up to %d of %d", i, sum, e.TotalUS)
		}
		if e.At.Before(since.Add(-time.Millisecond)) || e.At.After(time.Now()) {
			t.Errorf("number %d came at %v", i, e.At)
		}
	}
	// One that only waited for its position is among the slowest, and is not
	// slow. Its time runs from its arrival, so that reading the request is part of it.
	waited := func(e query.SlowRequest) bool {
		return e.Endpoint == "following" && e.ParseUS+e.PositionUS >= least-1000
	}
	if !slices.ContainsFunc(got.Slowest, waited) {
		t.Errorf("the slowest are %+v", got.Slowest)
	}
	e2e.Until(t, "a request is counted behind its entry", func() bool { return r.figure("tidemark_query_slow_total") >= 3 })
	e2e.Until(t, "the first is logged", func() bool { return log.Has("a slow request") })
	for _, part := range []string{"level=INFO", "endpoint=get code=200 total=", " disk=", "ids=2 cold=1 left_out=0"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log has %s", log.String())
		}
	}
}
