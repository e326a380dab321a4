package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/service"
)

// docs/contract.md: "`{"user":"7","limit":20,"before":"…"}` |
// `{"posts":[{"post":"…","author":"…","position":"…"}],"next":"…"}`, newest first, every
// listed post of everyone followed now (those before the follow too)"
func TestFeed(t *testing.T) {
	r := start(t)
	r.reader.Follow(7, 1)
	r.reader.Follow(7, 1<<64-1)
	r.reader.Follow(8, 2)
	r.reader.Post(1, 101, 1024)
	r.reader.Post(2, 102, 2048)
	r.reader.Post(1<<64-1, 1<<64-2, 3072)
	r.reader.Post(1, 104, 4096)
	r.reader.Apply(5000)
	first, second, third := `{"post":"104","author":"1","position":"4096"}`,
		`{"post":"18446744073709551614","author":"18446744073709551615","position":"3072"}`, `{"post":"101","author":"1","position":"1024"}`

	whole := `{"posts":[` + first + `,` + second + `,` + third + `],"as_of":"5000"}`
	r.answers("feed", `{"user":"7"}`, whole)
	r.answers("feed", `{"user":7,"limit":3,"before":null,"x":{}}`, whole)
	r.answers("feed", `{"user":7,"limit":"1000","before":"0"}`, whole)
	r.answers("feed", `{"user":"7","limit":2}`, `{"posts":[`+first+`,`+second+`],"next":"3072","as_of":"5000"}`)
	r.answers("feed", `{"user":"7","limit":2,"before":"3072"}`, `{"posts":[`+third+`],"as_of":"5000"}`)
	r.answers("feed", `{"user":"7","limit":1,"before":4096}`, `{"posts":[`+second+`],"next":"3072","as_of":"5000"}`)
	r.answers("feed", `{"user":"9"}`, `{"posts":[],"as_of":"5000"}`)

	// Paged by position: no gap and no repeat while posts arrive.
	var pages []string
	for body := `{"user":7,"limit":1}`; body != ""; {
		var page struct {
			Posts []struct{ Position string }
			Next  string
		}
		decode(t, r.ask("tidemark.feed", body), &page)
		pages = append(pages, page.Posts[0].Position)
		r.reader.Post(1, 200, pipeline.Position(6000+len(pages)))
		if body = ""; page.Next != "" {
			body = `{"user":7,"limit":1,"before":"` + page.Next + `"}`
		}
	}
	if fmt.Sprint(pages) != "[4096 3072 1024]" {
		t.Errorf("pages %v", pages)
	}
}

// docs/contract.md: "`{"user":"7","limit":100,"after":"…"}` |
// `{"users":["…"],"next":"…"}` by id; `next` is left out at the end"
func TestFollowingAndFollowers(t *testing.T) {
	r := start(t)
	for _, whom := range []uint64{30, 1<<64 - 1, 4, 200} {
		r.reader.Follow(7, whom)
		r.reader.Follow(whom, 9)
	}
	r.reader.Apply(5000)
	for endpoint, user := range map[string]string{"following": "7", "followers": "9"} {
		whole := `{"users":["4","30","200","18446744073709551615"],"as_of":"5000"}`
		r.answers(endpoint, `{"user":"`+user+`"}`, whole)
		r.answers(endpoint, `{"user":`+user+`,"limit":4,"after":0,"min_position":1}`, whole)
		r.answers(endpoint, `{"user":`+user+`,"limit":3}`, `{"users":["4","30","200"],"next":"200","as_of":"5000"}`)
		r.answers(endpoint, `{"user":`+user+`,"limit":3,"after":"200"}`, `{"users":["18446744073709551615"],"as_of":"5000"}`)
		r.answers(endpoint, `{"user":`+user+`,"limit":1,"after":29}`, `{"users":["30"],"next":"30","as_of":"5000"}`)
		r.answers(endpoint, `{"user":`+user+`,"limit":10000,"after":"18446744073709551615"}`, `{"users":[],"as_of":"5000"}`)
		r.answers(endpoint, `{"user":"8"}`, `{"users":[],"as_of":"5000"}`)
	}
}

// The defaults: 20 posts, 100 users.
func TestPageLimits(t *testing.T) {
	r := start(t)
	for i := range uint64(101) {
		r.reader.Follow(7, i+10)
		r.reader.Post(i+10, i+1, pipeline.At(i+1, 0))
	}
	if got := r.ask("tidemark.feed", `{"user":7,"limit":null}`); strings.Count(got, `{"post":`) != 20 || !strings.Contains(got, `"next":"83968"`) {
		t.Errorf("feed: %s", got)
	}
	if got := r.ask("tidemark.following", `{"user":7}`); strings.Count(got, `,`) != 101 || !strings.Contains(got, `"next":"109"`) {
		t.Errorf("following: %s", got)
	}
	for endpoint, most := range map[string]int{"feed": 1000, "following": 10_000, "followers": 10_000} {
		for _, limit := range []string{`0`, `"0"`, `-1`, `"-1"`, `1.5`, `1e2`, `""`, `"x"`, `true`, `[]`} {
			r.refuses(endpoint, `{"user":7,"limit":`+limit+`}`, "400", fmt.Sprintf("limit: %s is not a number from 1 to %d", limit, most))
		}
		for _, limit := range []string{fmt.Sprint(most + 1), fmt.Sprintf(`"%d"`, most+1), `99999999999999999999`} {
			r.refuses(endpoint, `{"user":7,"limit":`+limit+`}`, "413", fmt.Sprintf("limit: %s is more than %d; ask for one page after the other", limit, most))
		}
		r.refuses(endpoint, `{}`, "400", "user is missing")
		r.refuses(endpoint, ``, "400", "not the JSON object")
		r.refuses(endpoint, `{"user":"0"}`, "400", `user: "0" is not an id`)
		r.refuses(endpoint, `{"user":7,"min_position":"9","timeout_ms":1}`, "504", "min_position 9")
		place, kind := "after", "an id"
		if endpoint == "feed" {
			place, kind = "before", "a position"
		}
		r.refuses(endpoint, `{"user":7,"`+place+`":"x"}`, "400", place+`: "x" is not `+kind)
		r.refuses(endpoint, `{"user":7,"`+place+`":-1}`, "400", place+`: -1 is not `+kind)
	}
}

// docs/contract.md: "An answer that is not whole says so: `"degraded": true` and
// `"missing": ["43"]`; never a silent zero."
func TestPagesDegraded(t *testing.T) {
	r := start(t)
	r.reader.Follow(7, 1)
	r.reader.Follow(7, 2)
	r.reader.Post(1, 101, 1024)
	r.reader.Post(2, 102, 2048)
	r.reader.Apply(5000)
	r.reader.StopShardOf(2)
	r.answers("feed", `{"user":7}`, `{"posts":[{"post":"101","author":"1","position":"1024"}],"as_of":"5000","degraded":true,"missing":["7"]}`)
	r.reader.StopShardOf(7)
	r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"5000","degraded":true,"missing":["7"]}`)
	r.answers("following", `{"user":7}`, `{"users":[],"as_of":"5000","degraded":true,"missing":["7"]}`)
	r.answers("followers", `{"user":7}`, `{"users":[],"as_of":"5000","degraded":true,"missing":["7"]}`)
}

func TestPageReplyTooLarge(t *testing.T) {
	r := start(t, func(_ *service.Options, so *server.Options) { so.MaxPayload = 4096 })
	for i := range uint64(500) {
		r.reader.Follow(7, i+1_000_000_000)
	}
	r.refuses("following", `{"user":7,"limit":500}`, "413", "max_payload is 4096; pass a lower limit")
	if got := r.ask("tidemark.following", `{"user":7,"limit":200}`); !strings.Contains(got, `"next"`) {
		t.Errorf("%.100s", got)
	}
}

// Large requests and pages do not hold up small ones, and few are worked on at a time.
func TestLargeRequestsHoldUpNobody(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Workers = 2 })
	large := strings.TrimSuffix(strings.Repeat("1,", 1001), ",")
	release := make(chan struct{})
	var mu sync.Mutex
	working, most, blocking := 0, 0, true
	r.reader.Before = func() {
		mu.Lock()
		block := blocking
		if block {
			working++
			most = max(most, working)
		}
		mu.Unlock()
		if block {
			<-release
			mu.Lock()
			working--
			mu.Unlock()
		}
	}
	var waiting sync.WaitGroup
	for _, c := range [][2]string{
		{"get", `{"counter":"post","ids":[` + large + `]}`},
		{"unread", `{"users":[` + large + `]}`},
		{"feed", `{"user":7}`},
		{"following", `{"user":7}`},
		{"followers", `{"user":7}`},
		{"get", `{"ids":[` + large + `],"columns":["cntan"],"min_position":0}`},
	} {
		waiting.Go(func() {
			if got := r.ask("tidemark."+c[0], c[1]); !json.Valid([]byte(got)) {
				t.Errorf("%s: %.100s", c[0], got)
			}
		})
	}
	for working, tries := 0, 0; working < 4 && tries < 1000; tries++ {
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		working = most
		mu.Unlock()
	}
	time.Sleep(50 * time.Millisecond) // a fifth would be there by now
	mu.Lock()
	blocking = false
	mu.Unlock()
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"0"}`)
	mu.Lock()
	blocking = true
	mu.Unlock()
	close(release)
	waiting.Wait()
	if most != 4 {
		t.Errorf("%d requests were worked on at a time, not 2 large ones and 2 pages", most)
	}
}

// One that gets no turn in its time is told so, and so is one that finds the
// lane full.
func TestNoTurn(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits.Workers, o.Limits.Timeout, o.Limits.Requests = 1, 500*time.Millisecond, 8 // 2 in the lane
	})
	release := make(chan struct{})
	begun := make(chan struct{}, 1)
	var first atomic.Bool
	r.reader.Before = func() {
		if first.CompareAndSwap(false, true) {
			begun <- struct{}{}
			<-release
		}
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { r.answers("following", `{"user":7}`, `{"users":[],"as_of":"0"}`) })
	<-begun
	waiting.Go(func() { r.refuses("followers", `{"user":7}`, "503", "busy: no turn for a page") })
	time.Sleep(100 * time.Millisecond)
	r.refuses("feed", `{"user":7}`, "503", "busy: 2 requests for pages are in flight")
	time.Sleep(500 * time.Millisecond)
	close(release)
	waiting.Wait()
}

// Large requests that find their lane full are refused at once and in words,
// before they are read; the small ones of the same subscription and pages go on
// meanwhile.
func TestFloodOfLargeRequests(t *testing.T) {
	const lane, flood = 4, 40
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{Requests: 4 * lane, Workers: 1, Timeout: 20 * time.Second}
	})
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	var first atomic.Bool
	r.reader.Before = func() {
		if first.CompareAndSwap(false, true) {
			begun <- struct{}{}
			<-release
		}
	}
	answers, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.TrimSuffix(strings.Repeat("10000000000000000000,", 10_000), ",")
	large := [][2]string{
		{"tidemark.get", `{"counter":"post","columns":["like"],"ids":[` + long + `]}`},
		{"tidemark.get", `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000) + `1]}`}, // not long
		{"tidemark.unread", `{"users":[` + long[:21*2000-1] + `]}`},
	}
	for i := range flood {
		q := large[i%len(large)]
		if err := r.nc.PublishRequest(q[0], answers.Subject, []byte(q[1])); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	for range flood - lane {
		m, err := answers.NextMsg(time.Minute)
		if err != nil || m.Header.Get("Nats-Service-Error") != "busy: 4 large requests are in flight; ask again later" || m.Header.Get("Nats-Service-Error-Code") != "503" {
			t.Fatalf("%+v %v", m, err)
		}
	}
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"0"}`)
	r.answers("feed", `{"user":7}`, `{"posts":[],"as_of":"0"}`)
	close(release)
	for range lane {
		if m, err := answers.NextMsg(time.Minute); err != nil || m.Header != nil || !json.Valid(m.Data) {
			t.Errorf("%+v %v", m, err)
		}
	}
}

// docs/queries.md: "`timeout_ms` … from the request's arrival": the time in line for a
// worker counts, also where it is not known yet how long a request would wait.
func TestTimeInLineCounts(t *testing.T) {
	const timeout = time.Second
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{Workers: 1, Timeout: timeout, TimeoutMax: 20 * time.Second}
	})
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	var first atomic.Bool
	r.reader.Before = func() {
		if first.CompareAndSwap(false, true) {
			begun <- struct{}{}
			<-release
		}
	}
	large := `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000) + `1]`
	padding := strings.Repeat(" ", 24_000)
	var waiting sync.WaitGroup
	waiting.Go(func() { r.ask("tidemark.get", large+`}`) })
	<-begun // the only worker
	since := time.Now()
	waiting.Go(func() { // is read when its time is over
		r.refused(`{"counter":"post","ids":[1]`+padding+`}`, "503", "busy: no turn for a large request")
	})
	waiting.Go(func() { // waits on, for the rest of its time
		r.refused(`{"counter":"post","ids":[1],"min_position":"1","timeout_ms":4000`+padding+`}`, "504", "within 4000 ms")
		if took := time.Since(since); took < 4*time.Second || took > 4*time.Second+2*timeout {
			t.Errorf("4,000 ms were %v", took)
		}
	})
	time.Sleep(2 * timeout)
	close(release)
	waiting.Wait()
}

// Requests of some size are shared out among the processors, however many
// threads run Go.
func TestSpareProcessors(t *testing.T) {
	processors := runtime.GOMAXPROCS(0) + 2
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Processors = processors })
	release := make(chan struct{})
	var working atomic.Int64
	r.reader.Before = func() { working.Add(1); <-release }
	var waiting sync.WaitGroup
	for range processors + 2 {
		waiting.Go(func() { r.ask("tidemark.get", `{"counter":"post","ids":[`+strings.Repeat("1,", 100)+`1]}`) })
	}
	until(t, "all processors are used", func() bool { return working.Load() >= int64(processors) })
	time.Sleep(50 * time.Millisecond) // one more would be there by now
	if n := working.Load(); n != int64(processors) {
		t.Errorf("%d are worked on at a time, not %d", n, processors)
	}
	close(release)
	waiting.Wait()
}

// A long request that is wrong, or has to wait, fares as a short one does.
func TestLongRequests(t *testing.T) {
	r := start(t)
	r.reader.Apply(1000)
	padding := strings.Repeat(" ", 30_000)
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_position":"1000"`+padding+`}`, `{"rows":[{"id":"1","like":0}],"as_of":"1000"}`)
	r.refused(`{"counter":"post","ids":[0]`+padding+`}`, "400", "ids[0]: 0 is not an id")
	r.refused(`{"counter":"post","ids":[1],"min_position":"1001","timeout_ms":1`+padding+`}`, "504", "min_position 1001")
	r.answers("unread", `{"users":[]`+padding+`}`, `{"users":[],"as_of":"1000"}`)
	r.reader.Cool(42)
	r.get(`{"counter":"post","ids":[42],"columns":["like"]`+padding+`}`, `{"rows":[{"id":"42","like":0}],"as_of":"1000"}`)
}

// What waits holds its whole message, so only those that list ids may be long.
func TestTooLongRequests(t *testing.T) {
	r := start(t)
	r.reader.Apply(1000)
	r.events.Before = func(context.Context) error { t.Error("a read that is too long is stored"); return nil }
	for endpoint, body := range map[string]string{
		"read": `{"user":7,"what":["feed"]`, "feed": `{"user":7`, "following": `{"user":7`, "followers": `{"user":7`,
		"stats": `{"x":1`, "slowlog": `{"x":1`, "schema": `{"x":1`,
	} {
		body += strings.Repeat(" ", 24_000-len(body)) + "}"
		r.refuses(endpoint, body, "413", "the request has 24001 bytes; tidemark."+endpoint+" takes 24000")
	}
	r.answers("feed", `{"user":7`+strings.Repeat(" ", 23_990)+`}`, `{"posts":[],"as_of":"1000"}`)
}
