package service_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
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

// The defaults: 20 posts, 100 users, 100 members.
func TestPageLimits(t *testing.T) {
	r := startSets(t)
	for i := range uint64(101) {
		r.reader.Follow(7, i+10)
		r.reader.Post(i+10, i+1, pipeline.At(i+1, 0))
		r.reader.AddMembers(like, 42, id(i+10))
	}
	if got := r.ask("tidemark.feed", `{"user":7,"limit":null}`); strings.Count(got, `{"post":`) != 20 || !strings.Contains(got, `"next":"83968"`) {
		t.Errorf("feed: %s", got)
	}
	if got := r.ask("tidemark.following", `{"user":7}`); strings.Count(got, `,`) != 101 || !strings.Contains(got, `"next":"109"`) {
		t.Errorf("following: %s", got)
	}
	if got := r.ask("tidemark.members", `{"column":"post.like","id":42}`); strings.Count(got, `,`) != 101 || !strings.Contains(got, `"next":"109"`) {
		t.Errorf("members: %s", got)
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
	for endpoint, body := range everywhere {
		if endpoint == "get" || endpoint == "unread" || endpoint == "page" { // list ids
			continue
		}
		body += strings.Repeat(" ", 24_000-len(body)) + "}"
		r.refuses(endpoint, body, "413", "the request has 24001 bytes; tidemark."+endpoint+" takes 24000")
	}
	r.answers("feed", `{"user":7`+strings.Repeat(" ", 23_990)+`}`, `{"posts":[],"as_of":"1000"}`)
}

// One that gets no turn in its time is told so, and so is one that finds the lane full.
// docs/queries.md: "`timeout_ms` … from the request's arrival": the time in line for a
// worker counts, also of a request that is too long to be read before its turn.
func TestNoTurn(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits.Workers, o.Limits.ColdReads, o.Limits.Timeout, o.Limits.Requests = 1, 1, 50*time.Millisecond, 8 // 2 in each lane
	})
	release := make(chan struct{})
	var held atomic.Int64
	r.reader.Before = func() {
		if held.Add(1) <= 2 {
			<-release
		}
	}
	r.reader.Disk = func(context.Context) { held.Add(1); <-release }
	r.reader.Cool(42)
	padding := strings.Repeat(" ", 24_000)
	large := `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000) + `1]}`
	begun := r.sends([2]string{"following", `{"user":7}`}, [2]string{"get", large}) // the only workers
	e2e.Until(t, "both are worked on", func() bool { return held.Load() == 2 })
	cold := r.sends([2]string{"get", `{"counter":"post","ids":[42]}`})
	e2e.Until(t, "the disk is read", func() bool { return held.Load() > 3 })
	r.refused(`{"counter":"post","ids":[42]}`, "503", "busy: no turn for a request that reads the disk")
	r.refuses("followers", `{"user":7}`, "503", "busy: no turn for a page")
	e2e.Until(t, "its place is free", func() bool { return r.figure("tidemark_query_in_flight") == 3 })
	late := r.sends([2]string{"followers", `{"user":7,"timeout_ms":10000}`})
	e2e.Until(t, "both places are taken", func() bool { return r.figure("tidemark_query_in_flight") == 4 })
	r.refuses("feed", `{"user":7}`, "503", "busy: 2 requests for pages are in flight")
	long := r.sends([2]string{"get", `{"counter":"post","ids":[1]` + padding + `}`}) // waits for as long as any may, unread
	e2e.Until(t, "it is in line", func() bool { return r.figure("tidemark_query_in_flight") == 5 })
	<-time.After(100 * time.Millisecond) // its time
	close(release)
	if got := next(t, long); !strings.HasPrefix(got, "503 busy: no turn for a large request") {
		t.Error(got)
	}
	for _, answers := range []*nats.Subscription{begun, begun, cold, late} {
		if got := next(t, answers); !strings.HasPrefix(got, "{") {
			t.Error(got)
		}
	}
}

// Large requests that find their lane full are refused at once and in words,
// before they are read, and as many as there are workers are worked on at a time; small
// ones of the same subscription and pages go on meanwhile.
func TestFloodOfLargeRequests(t *testing.T) {
	const lane, flood = 4, 40
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{Requests: 4 * lane, Workers: 2, Timeout: 20 * time.Second}
	})
	release := make(chan struct{})
	var working atomic.Int64
	var passes atomic.Bool
	r.reader.Before = func() {
		if !passes.Load() {
			working.Add(1)
			<-release
		}
	}
	long := strings.TrimSuffix(strings.Repeat("10000000000000000000,", 10_000), ",")
	answers := r.sends(slices.Repeat([][2]string{
		{"get", `{"counter":"post","columns":["like"],"ids":[` + long + `]}`},
		{"get", `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 1000) + `1]}`}, // not long
		{"unread", `{"users":[` + long[:21*2000-1] + `]}`},
		{"unread", `{"users":[` + strings.Repeat("1,", 1000) + `1]}`},
	}, flood/4)...)
	for range flood - lane {
		if got := next(t, answers); got != "503 busy: 4 large requests are in flight; ask again later" {
			t.Fatal(got)
		}
	}
	e2e.Until(t, "all workers work", func() bool { return working.Load() >= 2 })
	pages := r.sends(slices.Repeat([][2]string{{"feed", `{"user":7}`}, {"following", `{"user":7}`}}, 2)...)
	e2e.Until(t, "pages have workers of their own", func() bool { return working.Load() >= 4 })
	passes.Store(true)
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.answers("unread", `{"users":[]}`, `{"users":[],"as_of":"0"}`)
	if n := working.Load(); n != 4 {
		t.Errorf("%d requests were worked on at a time, not 2 large ones and 2 pages", n)
	}
	close(release)
	for range lane {
		if got := next(t, answers) + next(t, pages); strings.Contains(got, "503") {
			t.Errorf("%.300s", got)
		}
	}
}

// Large requests of all kinds together keep as many goroutines computing as there
// are workers: more would take the processors from the small ones.
func TestLongRequestsComputeInTurns(t *testing.T) {
	var now, most atomic.Int64
	work := func() {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		for range 100 {
			runtime.Gosched() // to others that would compute
		}
		now.Add(-1)
	}
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits.Workers = 1
		o.Stats = func() map[string]any { work(); return map[string]any{} }
	})
	r.reader.Before = work
	r.service.SetTurnPatience(time.Minute)
	kinds := [][2]string{
		{"feed", `{"user":7}`},
		{"unread", `{"users":[` + strings.Repeat("1,", 1000) + `1]}`},
		{"followers", `{"user":7}`},
		{"stats", `{}`},
		{"get", `{"counter":"post","columns":["like"],"ids":[` + strings.Repeat("1,", 2000) + `1]}`},
	}
	var asking sync.WaitGroup
	for i := range 4 * len(kinds) {
		asking.Go(func() {
			k := kinds[i%len(kinds)]
			for range 10 {
				if got := r.ask("tidemark."+k[0], k[1]); !strings.HasPrefix(got, "{") {
					t.Errorf("%s: %.200s", k[0], got)
				}
			}
		})
	}
	asking.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d large requests were worked on at once, by 1 worker", n)
	}
}

// Requests of some size are shared out among the processors, however many
// threads run Go.
func TestSpareProcessors(t *testing.T) {
	processors := runtime.GOMAXPROCS(0) + 2
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Processors = processors })
	release := make(chan struct{})
	var working atomic.Int64
	r.reader.Before = func() { working.Add(1); <-release }
	some := [2]string{"get", `{"counter":"post","ids":[` + strings.Repeat("1,", 100) + `1]}`}
	answers := r.sends(slices.Repeat([][2]string{some}, processors+2)...)
	e2e.Until(t, "all have come, and all processors are used", func() bool {
		return working.Load() >= int64(processors) && r.serving.Stats().InMsgs >= uint64(processors+2)
	})
	if n := working.Load(); n != int64(processors) {
		t.Errorf("%d are worked on at a time, not %d", n, processors)
	}
	close(release)
	for range processors + 2 {
		next(t, answers)
	}
}
