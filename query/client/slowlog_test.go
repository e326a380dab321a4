package client_test

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query"
)

func TestSlowLog(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.reader.Cool(42)
	r.reader.Disk = func() { time.Sleep(5 * time.Millisecond) }
	since := time.Now()
	if _, _, err := r.client.Counts(ctx, "post", 42); err != nil {
		t.Fatal(err)
	}
	var log query.SlowLog
	var err error
	e2e.Until(t, "it is remembered", func() bool {
		log, err = r.client.SlowLog(ctx, false)
		return err != nil || len(log.Slowest) > 0 && log.Slowest[0].Endpoint == "get"
	})
	if len(log.Slowest) == 0 || len(log.Latest) != 0 || log.ThresholdUS != 0 || log.Since.After(time.Now()) {
		t.Fatalf("%+v", log)
	}
	get := log.Slowest[0]
	sum := get.ParseUS + get.TurnUS + get.PositionUS + get.MemoryUS + get.DiskUS + get.LogUS + get.WriteUS
	if get.Code != 200 || get.IDs != 1 || get.Cold != 1 || get.Request != `{"ids":[42],"counter":"post"}` ||
		get.DiskUS < 5000 || sum > get.TotalUS || sum < get.TotalUS-7 || get.At.Before(since.Add(-time.Millisecond)) {
		t.Errorf("%+v", get)
	}
	if log, err = r.client.SlowLog(ctx, true); err != nil || log.Slowest[0].Endpoint != "get" {
		t.Errorf("%+v %v", log, err)
	}
	if log, err = r.client.SlowLog(ctx, false); err != nil {
		t.Error(err)
	}
	for _, s := range log.Slowest {
		if s.Endpoint != "slowlog" {
			t.Errorf("after the reset there is %+v", s)
		}
	}
}
