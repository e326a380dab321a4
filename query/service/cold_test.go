package service_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// figure is one of the service's own metrics, all of its labels together.
func (r *room) figure(name string) (sum float64) {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// Nobody reads the disk for longer than anybody waits: a user who follows a
// million whose posts are all on disk must not keep a worker from others.
func TestColdForTooLong(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{ColdReads: 1, Timeout: time.Millisecond, TimeoutMax: 50 * time.Millisecond}
	})
	r.reader.Cool(7)
	r.reader.Cool(8)
	r.reader.Disk = func(ctx context.Context) { <-ctx.Done() } // the first user
	r.refuses("unread", `{"users":[7,8]}`, "503", "busy: to read what was asked from disk takes longer than 50ms")
	r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
}

// What is on disk is answered as if it were in memory.
func TestColdAnswers(t *testing.T) {
	r := startSets(t)
	for _, id := range []uint64{7, 42} {
		r.reader.Cool(id)
	}
	r.reader.Set(0, like, 42, 3)
	r.reader.Set(0, like, 43, 12)
	r.reader.AddMembers(like, 42, id(9))
	r.reader.SetUnread(7, query.UserUnread{Feed: 12, Counts: []int64{3, 0}})
	r.reader.Follow(7, 9)
	r.reader.Follow(9, 7)
	r.reader.Post(9, 101, 1024)
	r.reader.Apply(2047)
	var reads atomic.Int64
	r.reader.Disk = func(context.Context) { reads.Add(1) }

	r.get(`{"counter":"post","ids":["42",43],"columns":["like"],"member":9}`,
		`{"rows":[{"id":"42","like":3,"has":{"like":true}},{"id":"43","like":12,"has":{"like":false}}],"as_of":"2047"}`)
	r.get(`{"counter":"post","ids":[43],"columns":["like"]}`, `{"rows":[{"id":"43","like":12}],"as_of":"2047"}`)
	seven := `{"user":"7","feed":12,"counts":{"comment":3,"mention":0},"channels":{},"dots":{}}`
	r.answers("unread", `{"users":["7"]}`, `{"users":[`+seven+`],"as_of":"2047"}`)
	r.answers("feed", `{"user":"7"}`, `{"posts":[{"post":"101","author":"9","position":"1024"}],"as_of":"2047"}`)
	r.answers("following", `{"user":"7"}`, `{"users":["9"],"as_of":"2047"}`)
	r.answers("followers", `{"user":"7"}`, `{"users":["9"],"as_of":"2047"}`)
	r.answers("members", `{"column":"post.like","id":42}`, `{"members":["9"],"as_of":"2047"}`)
	// Large ones too leave their own lane for the disk's.
	large := strings.Repeat("43,", 1000)
	if got := r.ask("tidemark.get", `{"counter":"post","ids":[`+large+`42],"columns":["like"]}`); !strings.HasSuffix(got, `{"id":"42","like":3}],"as_of":"2047"}`) {
		t.Errorf("%.100s", got)
	}
	e2e.Until(t, "all are counted", func() bool { return r.figure("tidemark_query_disk_entries_total") == 7 })
	if cold, in := r.figure("tidemark_query_cold_total"), r.figure("tidemark_query_cold_in_flight"); cold != 7 || in != 0 || reads.Load() != 7 {
		t.Errorf("%v went to the cold lane and %v are in it, %d read the disk; not 7, 0 and 7", cold, in, reads.Load())
	}
}

// A flood of requests for what is on disk, and a disk that does not answer:
// what is in memory is answered all the same, few read the disk at a time, and
// those that find the lane full are told so.
func TestFloodOfColdRequests(t *testing.T) {
	const lane, flood = 16, 100 // a quarter of the requests in flight
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{Requests: 4 * lane, ColdReads: 3, Workers: 1, Timeout: 20 * time.Second}
	})
	r.reader.Set(0, like, 42, 3)
	r.reader.Cool(42)
	release := make(chan struct{})
	var reading, most, read atomic.Int64
	r.reader.Disk = func(context.Context) {
		for n := reading.Add(1); ; {
			if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
				break
			}
		}
		<-release
		reading.Add(-1)
		read.Add(1)
	}
	cold := `{"counter":"post","ids":[42],"columns":["like"]}`
	answers := r.sends(slices.Repeat([][2]string{{"get", cold}, {"unread", `{"users":[42]}`}}, flood/2)...)
	e2e.Until(t, "the disk is read", func() bool { return reading.Load() == 3 })
	// All of this waits for nothing: a request that did would wait for ever.
	large := `{"counter":"post","ids":[` + strings.Repeat("1,", 1000) + `1],"columns":["like"]}`
	for range 5 {
		r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
		r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"0"}`)
		if got := r.ask("tidemark.get", large); strings.Count(got, `"like":0`) != 1001 {
			t.Errorf("%.100s", got)
		}
		r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
		r.answers("following", `{"user":7}`, `{"users":[],"as_of":"0"}`)
	}
	r.refused(cold, "503", "busy: 16 requests that read the disk are in flight; ask again later")
	for range flood - lane {
		if got := next(t, answers); !strings.HasPrefix(got, "503 busy") {
			t.Fatal(got)
		}
	}
	if got := r.figure("tidemark_query_cold_in_flight"); got != lane {
		t.Errorf("%v are in the cold lane, not %v", got, lane)
	}
	close(release)
	for range lane {
		if got := next(t, answers); !strings.HasSuffix(got, `],"as_of":"0"}`) {
			t.Error(got)
		}
	}
	if most.Load() != 3 || read.Load() != lane {
		t.Errorf("%d read the disk at a time and %d in all, not 3 and %d", most.Load(), read.Load(), lane)
	}
	e2e.Until(t, "the refused are counted", func() bool { return r.figure("tidemark_query_cold_refused_total") == flood-lane+1 })
	r.get(cold, `{"rows":[{"id":"42","like":3}],"as_of":"0"}`)
}

// deadlines is a Reader that tells until when each call may go on.
type deadlines struct {
	query.Reader
	hot, cold chan time.Time
}

func (d *deadlines) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	until, _ := ctx.Deadline()
	if disk {
		d.cold <- until
	} else {
		d.hot <- until
	}
	return d.Reader.Rows(ctx, counter, columns, ids, rows, disk)
}

// A request has all of its time at the disk, however long it waited before;
// what needs no disk has no deadline.
func TestColdForFromItsTurn(t *testing.T) {
	const coldFor = time.Hour
	d := &deadlines{hot: make(chan time.Time, 1), cold: make(chan time.Time, 1)}
	r := start(t, func(o *service.Options, _ *server.Options) {
		d.Reader, o.Reader = o.Reader, d
		o.Limits = service.Limits{TimeoutMax: coldFor}
	})
	r.reader.Cool(42)
	answers := r.sends([2]string{"get", `{"counter":"post","ids":[42],"min_position":"1"}`})
	e2e.Until(t, "it waits", func() bool { return r.reader.Waiting() == 1 })
	applied := time.Now()
	r.reader.Apply(1)
	next(t, answers)
	if got := <-d.hot; !got.IsZero() {
		t.Errorf("without the disk it has until %s", got)
	}
	if got := <-d.cold; got.Before(applied.Add(coldFor)) {
		t.Errorf("at the disk it has %s, not %s", got.Sub(applied), coldFor)
	}
}
