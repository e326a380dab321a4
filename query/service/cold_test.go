package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// disk is a disk that holds up whoever reads it until it is released.
type disk struct {
	release             chan struct{}
	reading, most, read atomic.Int64
}

func newDisk(r *room) *disk {
	d := &disk{release: make(chan struct{})}
	r.reader.Disk = func() {
		for n := d.reading.Add(1); ; {
			if most := d.most.Load(); n <= most || d.most.CompareAndSwap(most, n) {
				break
			}
		}
		<-d.release
		d.reading.Add(-1)
		d.read.Add(1)
	}
	return d
}

// until waits for something that comes about in another goroutine.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("does not come about: %s", what)
		}
	}
}

// figure is one of the service's own metrics without labels, 0 when there is
// none of that name.
func (r *room) figure(name string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}

// What is on disk is answered as if it were in memory.
func TestColdAnswers(t *testing.T) {
	r := start(t)
	for _, id := range []uint64{7, 42} {
		r.reader.Cool(id)
	}
	r.reader.Set(0, like, 42, 3)
	r.reader.Set(0, like, 43, 12)
	r.reader.SetUnread(7, query.UserUnread{Feed: 12, Counts: []int64{3, 0}})
	r.reader.Follow(7, 9)
	r.reader.Follow(9, 7)
	r.reader.Post(9, 101, 1024)
	r.reader.Apply(2047)
	var reads atomic.Int64
	r.reader.Disk = func() { reads.Add(1) }

	r.get(`{"counter":"post","ids":["42",43],"columns":["like"]}`, `{"rows":[{"id":"42","like":3},{"id":"43","like":12}],"as_of":"2047"}`)
	r.get(`{"counter":"post","ids":[43],"columns":["like"]}`, `{"rows":[{"id":"43","like":12}],"as_of":"2047"}`)
	seven := `{"user":"7","feed":12,"counts":{"comment":3,"mention":0},"channels":{},"dots":{}}`
	r.answers("unread", `{"users":["7"]}`, `{"users":[`+seven+`],"as_of":"2047"}`)
	r.answers("feed", `{"user":"7"}`, `{"posts":[{"post":"101","author":"9","position":"1024"}],"as_of":"2047"}`)
	r.answers("following", `{"user":"7"}`, `{"users":["9"],"as_of":"2047"}`)
	r.answers("followers", `{"user":"7"}`, `{"users":["9"],"as_of":"2047"}`)
	if n := reads.Load(); n != 5 {
		t.Errorf("the disk was read for %d answers, not 5", n)
	}

	// docs/contract.md: "answer only with that much of the log applied": the wait comes
	// first.
	time.AfterFunc(20*time.Millisecond, func() { r.reader.Apply(4095) })
	r.get(`{"counter":"post","ids":[42],"columns":["like"],"min_position":4000}`, `{"rows":[{"id":"42","like":3}],"as_of":"4095"}`)

	// Large ones too leave their own lane for the disk's.
	large := strings.Repeat("43,", 1000)
	if got := r.ask("tidemark.get", `{"counter":"post","ids":[`+large+`42],"columns":["like"]}`); !strings.HasSuffix(got, `{"id":"42","like":3}],"as_of":"4095"}`) {
		t.Errorf("%.100s", got)
	}
	until(t, "all are counted", func() bool { return r.figure("tidemark_query_disk_entries_total") == 7 })
	if cold, in := r.figure("tidemark_query_cold_total"), r.figure("tidemark_query_cold_in_flight"); cold != 7 || in != 0 {
		t.Errorf("%v went to the cold lane and %v are in it, not 7 and 0", cold, in)
	}
}

// A shard that is stopped is told as such, also on the way to the disk.
func TestColdAndDegraded(t *testing.T) {
	r := start(t)
	r.reader.Set(0, like, 42, 3)
	r.reader.Cool(42)
	r.reader.StopShardOf(43)
	r.get(`{"counter":"post","ids":[43,42],"columns":["like"]}`,
		`{"rows":[{"id":"43"},{"id":"42","like":3}],"as_of":"0","degraded":true,"missing":["43"]}`)
	r.reader.StopAll()
	r.get(`{"counter":"post","ids":[42]}`, `{"rows":[{"id":"42"}],"as_of":"0","degraded":true,"missing":["42"]}`)
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
	d := newDisk(r)

	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	cold := `{"counter":"post","ids":[42],"columns":["like"]}`
	for i := range flood {
		subject, body := "tidemark.get", cold
		if i%4 == 3 {
			subject, body = "tidemark.unread", `{"users":[42]}`
		}
		if err := r.nc.PublishRequest(subject, inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the disk is read", func() bool { return d.reading.Load() == 3 })

	// All of this waits for nothing: a request that did would wait for ever.
	large := `{"counter":"post","ids":[` + strings.Repeat("1,", 1000) + `1],"columns":["like"]}`
	for range 20 {
		r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
		r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"0"}`)
		if got := r.ask("tidemark.get", large); strings.Count(got, `"like":0`) != 1001 {
			t.Errorf("%.100s", got)
		}
		r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
		r.answers("following", `{"user":7}`, `{"users":[],"as_of":"0"}`)
	}
	r.refused(cold, "503", "busy: 16 requests that read the disk are in flight; ask again later")

	for i := range flood - lane {
		refused, err := answers.NextMsg(time.Minute)
		if err != nil || refused.Header.Get("Nats-Service-Error-Code") != "503" {
			t.Fatalf("refusal %d of %d: %+v %v", i, flood-lane, refused, err)
		}
	}
	if got, want := r.figure("tidemark_query_cold_in_flight"), float64(lane); got != want {
		t.Errorf("%v are in the cold lane, not %v", got, want)
	}
	close(d.release)
	for range lane {
		m, err := answers.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(m.Data); got != `{"rows":[{"id":"42","like":3}],"as_of":"0"}` &&
			got != `{"users":[{"user":"42","feed":0,"counts":{"comment":0,"mention":0},"channels":{},"dots":{}}],"as_of":"0"}` {
			t.Errorf("%s %v", got, m.Header)
		}
	}
	if most, read := d.most.Load(), d.read.Load(); most != 3 || read != lane {
		t.Errorf("%d read the disk at a time and %d in all, not 3 and %d", most, read, lane)
	}
	until(t, "the refused are counted", func() bool { return r.figure("tidemark_query_cold_refused_total") == flood-lane+1 })
	r.get(cold, `{"rows":[{"id":"42","like":3}],"as_of":"0"}`)
}

// One that gets no turn in its time is told so.
func TestNoTurnAtTheDisk(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{ColdReads: 1, Timeout: 50 * time.Millisecond}
	})
	r.reader.Cool(42)
	d := newDisk(r)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r.get(`{"counter":"post","ids":[42],"columns":["like"]}`, `{"rows":[{"id":"42","like":0}],"as_of":"0"}`)
	})
	until(t, "the disk is read", func() bool { return d.reading.Load() == 1 })
	r.refused(`{"counter":"post","ids":[42]}`, "503", "busy: no turn for a request that reads the disk")
	close(d.release)
	waiting.Wait()
}

// Large requests that read the disk hold up neither large ones that do not nor
// the subscription's goroutine.
func TestColdBesideLarge(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{Workers: 1, Requests: 8, Timeout: 20 * time.Second} // 2 in each lane
	})
	d := newDisk(r)
	for _, user := range []uint64{1, 2, 3} {
		r.reader.Cool(user)
	}
	var waiting sync.WaitGroup
	for user := 1; user <= 2; user++ {
		waiting.Go(func() { r.answers("following", fmt.Sprintf(`{"user":%d}`, user), `{"users":[],"as_of":"0"}`) })
	}
	until(t, "both read the disk", func() bool { return d.reading.Load() == 2 })
	if got := r.figure("tidemark_query_cold_in_flight"); got != 2 {
		t.Errorf("%v are in the cold lane, not 2", got)
	}
	r.refuses("following", `{"user":3}`, "503", "busy: 2 requests that read the disk are in flight")
	r.answers("following", `{"user":9}`, `{"users":[],"as_of":"0"}`) // the only worker is free
	close(d.release)
	waiting.Wait()
}

// Nobody reads the disk for longer than anybody waits: a user who follows a
// million whose posts are all on disk must not keep a worker from others.
func TestColdForTooLong(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{ColdReads: 1, Timeout: time.Millisecond, TimeoutMax: 50 * time.Millisecond}
	})
	r.reader.Cool(7)
	r.reader.Cool(8)
	r.reader.Disk = func() { time.Sleep(60 * time.Millisecond) } // a user
	r.refuses("unread", `{"users":[7,8]}`, "503", "busy: to read what was asked from disk takes longer than 50ms")
	r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
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
	ids := `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000)
	var waiting sync.WaitGroup
	waiting.Go(func() { r.ask("tidemark.get", ids+`42],"min_position":"1"}`) })
	until(t, "it waits", func() bool { return r.figure("tidemark_query_in_flight") == 1 })
	time.Sleep(time.Millisecond)
	applied := time.Now()
	r.reader.Apply(1)
	waiting.Wait()
	if got := <-d.hot; !got.IsZero() {
		t.Errorf("without the disk it has until %s", got)
	}
	if got := <-d.cold; got.Before(applied.Add(coldFor)) {
		t.Errorf("at the disk it has %s, not %s", got.Sub(applied), coldFor)
	}
}

// A stop ends in order also while a request reads the disk that would take
// longer than the stop may: a user who follows a million.
func TestStopEndsLongReads(t *testing.T) {
	r := start(t)
	for user := uint64(1); user <= 60; user++ {
		r.reader.Cool(user)
	}
	reading := make(chan struct{}, 100)
	r.reader.Disk = func() { reading <- struct{}{}; time.Sleep(250 * time.Millisecond) } // 15 s for all
	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	users := "1"
	for user := 2; user <= 60; user++ {
		users += fmt.Sprint(",", user)
	}
	if err := r.nc.PublishRequest("tidemark.unread", inbox, []byte(`{"users":[`+users+`]}`)); err != nil {
		t.Fatal(err)
	}
	<-reading
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.service.Stop(ctx); err != nil {
		t.Error(err)
	}
	if m, err := answers.NextMsg(time.Minute); err != nil || told(m) != "503 stopping" {
		t.Errorf("%+v, %v", m, err)
	}
}

// Stop answers those that read the disk; past its deadline it does not wait
// for their turn.
func TestStopWhileTheDiskIsRead(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{ColdReads: 1, Timeout: 20 * time.Second}
	})
	r.reader.Cool(42)
	d := newDisk(r)
	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.nc.PublishRequest("tidemark.get", inbox, []byte(`{"counter":"post","ids":[42],"columns":["like"]}`)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both are in the lane", func() bool { return r.figure("tidemark_query_cold_in_flight") == 2 })
	time.AfterFunc(100*time.Millisecond, func() { close(d.release) })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = r.service.Stop(ctx)
	var got []string
	for range 2 {
		m, err := answers.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, told(m))
	}
	if fmt.Sprint(got) != `[503 stopping {"rows":[{"id":"42","like":0}],"as_of":"0"}]` {
		t.Errorf("%q", got)
	}
}

func told(m *nats.Msg) string {
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + m.Header.Get("Nats-Service-Error")
	}
	return string(m.Data)
}
