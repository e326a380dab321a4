package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/service"
)

// logOf is a log that says where it ends, and counts how often it was asked.
type logOf struct {
	last, looks atomic.Uint64
	fails       atomic.Bool
	held        sync.Mutex // locked: it does not answer
}

func (l *logOf) end(context.Context) (uint64, error) {
	l.looks.Add(1)
	l.held.Lock()
	defer l.held.Unlock()
	if l.fails.Load() {
		return 0, errors.New("no responders")
	}
	return l.last.Load(), nil
}

// withLog gives the service a log that ends at last, and few places.
func withLog(l *logOf, last uint64) func(*service.Options, *server.Options) {
	l.last.Store(last)
	return func(o *service.Options, _ *server.Options) {
		o.LogEnd, o.Limits.Requests = l.end, 16
	}
}

const aheadMax = 65536 // docs/queries.md

// docs/contract.md: "A position or sequence further past the log's end than could be
// under way is refused at once (400)."
func TestPastTheLogsEnd(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6))
	r.reader.Apply(pipeline.EndOf(6))
	const patient = `,"timeout_ms":60000}` // one that waits makes the test's own request fail

	words := []string{"is past the log's end by more than could be under way", "the last message known is 6 (position 7167)", "at most 65536 more are waited for"}
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_position":"%d"`+patient, pipeline.At(6+aheadMax+1, 0)), "400", append(words, "min_position 67116032 ")...)
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_seq":%d`+patient, 6+aheadMax+1), "400", append(words, "min_seq 65543 ")...)
	r.refused(`{"counter":"post","ids":[1],"min_position":18446744073709551615`+patient, "400", words...)
	r.refused(`{"counter":"post","ids":[1],"min_seq":9007199254740991`+patient, "400", words...)
	for endpoint, body := range map[string]string{
		"unread": `{"users":[7]`, "read": `{"user":7,"what":["feed"]`, "feed": `{"user":7`, "following": `{"user":7`,
		"followers": `{"user":7`, "stats": `{"x":1`, "schema": `{"x":1`, "slowlog": `{"x":1`,
		"get": `{"counter":"post","ids":[1]` + strings.Repeat(" ", 30_000),
	} {
		r.refuses(endpoint, body+`,"min_seq":99999999`+patient, "400", words...)
	}
	if got := len(r.events.Events()); got != 0 {
		t.Errorf("%d reads were stored", got)
	}

	// Nearer ones are waited for: a client may ask for what it is about to publish.
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_seq":%d,"timeout_ms":20}`, 6+aheadMax), "504", "min_seq 65542 was not reached within 20 ms, applied is 7167")
	var early sync.WaitGroup
	early.Go(func() {
		r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7`+patient, `{"rows":[{"id":"1","like":0}],"as_of":"8191"}`)
	})
	until(t, "it is looked for", func() bool { return r.figure("tidemark_query_in_flight") == 1 })
	l.last.Store(7)
	r.reader.Apply(pipeline.EndOf(7))
	early.Wait()
	// The end moves, and with it what is too far.
	l.last.Store(1 << 40)
	until(t, "the end is known", func() bool {
		return strings.HasPrefix(r.ask("tidemark.get", `{"counter":"post","ids":[1],"min_seq":1099511627776,"timeout_ms":20}`), "504 min_seq 1099511627776 was not reached")
	})
}

// Those who wait for the future take no places from those who wait for what
// they just wrote.
func TestTheFutureHasItsOwnPlaces(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6)) // 16 places for those who wait, 4 of the future, 1 of them long
	r.reader.Apply(pipeline.EndOf(6))
	ahead := `{"counter":"post","ids":[1],"columns":["like"],"min_seq":9,"timeout_ms":60000`
	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	// As many as find a place, and one more that does not.
	fill := func(request, full string) (places int) {
		t.Helper()
		for ; places <= 64; places++ {
			if err := r.nc.PublishRequest("tidemark.get", inbox, []byte(request)); err != nil {
				t.Fatal(err)
			}
			m, err := answers.NextMsg(500 * time.Millisecond)
			if err != nil {
				continue // it waits
			}
			if got := told(m); !strings.HasPrefix(got, full) {
				t.Errorf("the future: %s", got)
			}
			return places
		}
		t.Fatalf("%d have a place", places)
		return 0
	}
	if places := fill(ahead+`}`, "503 busy: 4 requests that wait for what the log does not hold yet are in flight"); places != 4 {
		t.Errorf("%d wait for the future, not 4", places)
	}
	if places := fill(ahead+strings.Repeat(" ", 24_000)+`}`, "503 busy: 1 large requests that wait for what the log does not hold yet are in flight"); places != 1 {
		t.Errorf("%d long ones wait for the future, not 1", places)
	}

	// Message 7 is stored, and its producer asks for it, as often as there are places.
	l.last.Store(7)
	looks := l.looks.Load()
	until(t, "message 7 is known of", func() bool {
		r.refused(`{"counter":"post","ids":[1],"min_seq":8,"timeout_ms":60000}`, "503", "4 requests that wait for what the log does not hold yet")
		return l.looks.Load() >= looks+2
	})
	var honest sync.WaitGroup
	for range 16 {
		honest.Go(func() {
			r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7}`, `{"rows":[{"id":"1","like":0}],"as_of":"8191"}`)
		})
	}
	until(t, "all wait", func() bool { return r.figure("tidemark_query_in_flight") == 16+5 })
	r.refused(`{"counter":"post","ids":[1],"min_seq":7}`, "503", "busy: 16 requests that wait for their min_position are in flight")
	r.reader.Apply(pipeline.EndOf(7))
	honest.Wait()
	l.last.Store(9)
	r.reader.Apply(pipeline.EndOf(9))
	for range 5 {
		if m, err := answers.NextMsg(time.Minute); err != nil || told(m) != `{"rows":[{"id":"1","like":0}],"as_of":"10239"}` {
			t.Errorf("the future, once it is there: %v %v", m, err)
		}
	}
}

// What is far past the known end is refused at once, however old that is: it
// waits neither for a look nor in anybody's place.
func TestFarAheadNeedsNoLook(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6))
	const far = `{"counter":"post","ids":[1],"min_seq":999999999999,"timeout_ms":0}`
	until(t, "the end is known", func() bool { return strings.HasPrefix(r.ask("tidemark.get", far), "400") })
	l.held.Lock()
	defer l.held.Unlock()
	time.Sleep(20 * time.Millisecond) // what is known is older than looks are
	for range 5 {
		r.refused(far, "400", "past the log's end", "the last message known is 6 (position 7167)")
		r.refused(strings.Replace(far, "{", "{"+strings.Repeat(" ", 24_000), 1), "400", "past the log's end")
	}
}

// In a crowd of those who ask for the near and the far future, all who ask for
// what they just wrote are answered.
func TestHonestRequestsInACrowd(t *testing.T) {
	const crowd, honest = 6000, 16
	var l logOf
	r := start(t, withLog(&l, 6)) // 16 places for those who wait, 4 of the future
	r.reader.Apply(pipeline.EndOf(6))
	until(t, "the end is known", func() bool {
		return strings.HasPrefix(r.ask("tidemark.get", `{"counter":"post","ids":[1],"min_seq":999999999999,"timeout_ms":0}`), "400")
	})
	l.held.Lock()
	l.last.Store(7)
	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range crowd {
		if i%(crowd/honest) == 0 && i/(crowd/honest) < honest {
			writers.Go(func() {
				r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7,"timeout_ms":60000}`, `{"rows":[{"id":"1","like":0}],"as_of":"8191"}`)
			})
		}
		ahead := 8 + i
		if i%2 == 1 {
			ahead = 1 << 50
		}
		if err := r.nc.PublishRequest("tidemark.get", inbox, fmt.Appendf(nil, `{"counter":"post","ids":[1],"columns":["like"],"min_seq":%d,"timeout_ms":60000}`, ahead)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the near ones and the writers wait", func() bool { return r.figure("tidemark_query_in_flight") == crowd/2+honest })
	l.held.Unlock()
	until(t, "the crowd is refused", func() bool { return r.figure("tidemark_query_in_flight") == 4+honest })
	r.reader.Apply(pipeline.EndOf(7))
	writers.Wait()
	codes := map[string]int{}
	for range crowd - 4 {
		m, err := answers.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		codes[m.Header.Get("Nats-Service-Error-Code")]++
	}
	if fmt.Sprint(codes) != fmt.Sprint(map[string]int{"400": crowd / 2, "503": crowd/2 - 4}) {
		t.Errorf("%v", codes)
	}
	r.reader.Apply(pipeline.EndOf(1 << 20))
}

// The places in which requests wait for a look are bounded, in requests and in bytes.
func TestPlacesUntilALook(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6))
	l.held.Lock()
	defer l.held.Unlock()
	inbox := r.nc.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	padding := strings.Repeat(" ", 20_000) // five places
	const places = 8192 / 5
	for range places + 1 {
		if err := r.nc.PublishRequest("tidemark.get", inbox, []byte(`{"counter":"post","ids":[1],"min_seq":9,"timeout_ms":60000}`+padding)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := answers.NextMsg(time.Minute)
	if err != nil || !strings.HasPrefix(told(m), "503 busy: 8192 requests that wait for the log to say where it ends are in flight") {
		t.Errorf("%v %v", m, err)
	}
	// The one that was refused is given back after its answer is sent.
	until(t, "all but one wait", func() bool { return r.figure("tidemark_query_in_flight") == places })
}

// One look serves all that wait for one, and looks are paced.
func TestLooksAreFew(t *testing.T) {
	var l logOf
	since := time.Now()
	r := start(t, withLog(&l, 6))
	for i := 0; i < 500 && !t.Failed(); i++ {
		r.refused(`{"counter":"post","ids":[1],"min_seq":999999999,"timeout_ms":60000}`, "400", "past the log's end")
	}
	if looks, most := l.looks.Load(), uint64(time.Since(since)/(10*time.Millisecond))+1; looks == 0 || looks > most {
		t.Errorf("%d looks for 500 requests, not 1 to %d", looks, most)
	}
}

// A log that cannot be asked refuses nothing, and holds up nobody for longer
// than they said.
func TestTheLogsEndIsNotKnown(t *testing.T) {
	var l logOf
	l.fails.Store(true)
	r := start(t, withLog(&l, 6))
	r.refused(`{"counter":"post","ids":[1],"min_seq":999999999,"timeout_ms":30}`, "504", "min_seq 999999999 was not reached within 30 ms")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7,"timeout_ms":60000}`, `{"rows":[{"id":"1","like":0}],"as_of":"8191"}`)
	})
	waiting.Go(func() {
		r.refused(`{"counter":"post","ids":[1],"min_seq":999999999,"timeout_ms":60000}`, "400", "past the log's end") // once it can be asked
	})
	until(t, "both wait", func() bool { return r.figure("tidemark_query_in_flight") == 2 })
	l.last.Store(7)
	l.fails.Store(false)
	r.reader.Apply(pipeline.EndOf(7))
	waiting.Wait()
}

// A service that stops does not wait for the future: somebody would have it
// wait on every stop.
func TestStopDoesNotWaitForTheFuture(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6))
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			r.refused(`{"counter":"post","ids":[1],"min_seq":9,"timeout_ms":60000}`, "503", "stopping: min_seq 9 was not reached, applied is 0")
		})
	}
	until(t, "all wait", func() bool { return r.figure("tidemark_query_in_flight") == 4 && l.looks.Load() > 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // below their 60
	defer cancel()
	if err := r.service.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	waiting.Wait()
}

// A service that stops does not wait for a log that does not answer.
func TestStopWhileTheLogIsAsked(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.LogEnd = func(ctx context.Context) (uint64, error) {
			once.Do(func() { close(asked) })
			<-ctx.Done()
			return 0, ctx.Err()
		}
	})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r.refused(`{"counter":"post","ids":[1],"min_seq":7,"timeout_ms":60000}`, "503", "stopping: min_seq 7 was not reached")
	})
	<-asked
	until(t, "it waits", func() bool { return r.figure("tidemark_query_in_flight") == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := r.service.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	waiting.Wait()
}

// docs/contract.md: "Any request may carry `"min_seq": 6` instead of `min_position`: the
// sequence that JetStream's acknowledgement gave (of a pack: all of it)."
func TestMinSeq(t *testing.T) {
	r := start(t)
	r.reader.Apply(pipeline.EndOf(6))
	answer := `{"rows":[{"id":"1","like":0}],"as_of":"7167"}`
	for _, seq := range []string{`6`, `"6"`, `1`, `"006"`, `null`} {
		r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":`+seq+`,"timeout_ms":0}`, answer)
	}
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":6,"min_position":null}`, answer)
	r.refused(`{"counter":"post","ids":[1],"min_seq":7,"timeout_ms":10}`, "504", "min_seq 7 was not reached within 10 ms, applied is 7167")

	// All of a pack: the first of its lines is not enough.
	r.reader.Apply(pipeline.At(7, 0))
	r.refused(`{"counter":"post","ids":[1],"min_seq":7,"timeout_ms":10}`, "504", "min_seq 7 was not reached within 10 ms, applied is 7168")
	r.reader.Apply(pipeline.At(7, 1022))
	r.refused(`{"counter":"post","ids":[1],"min_seq":7,"timeout_ms":10}`, "504")
	r.reader.Apply(pipeline.EndOf(7))
	r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7,"timeout_ms":0}`, `{"rows":[{"id":"1","like":0}],"as_of":"8191"}`)

	for _, seq := range []string{`0`, `"0"`, `-1`, `1.5`, `1e3`, `"x"`, `true`, `[6]`, `9007199254740992`, `18014398509481984`, `18446744073709551616`} {
		r.refused(`{"counter":"post","ids":[1],"min_seq":`+seq+`}`, "400", "min_seq: "+seq+" is not a sequence of the log")
	}
	for _, both := range []string{`"min_seq":6,"min_position":"7"`, `"min_position":0,"min_seq":6`} {
		r.refused(`{"counter":"post","ids":[1],`+both+`}`, "400", "min_position and min_seq are both given; give one of them")
	}
}

// Every endpoint that waits for a position waits for a sequence.
func TestMinSeqEverywhere(t *testing.T) {
	r := start(t)
	for endpoint, body := range map[string]string{
		"get": `{"counter":"post","ids":[1]`, "unread": `{"users":[7]`, "read": `{"user":7,"what":["feed"]`, "feed": `{"user":7`,
		"following": `{"user":7`, "followers": `{"user":7`, "stats": `{"x":1`, "schema": `{"x":1`, "slowlog": `{"x":1`,
	} {
		r.refuses(endpoint, body+`,"min_seq":6,"timeout_ms":1}`, "504", "min_seq 6 was not reached within 1 ms")
		r.refuses(endpoint, body+`,"min_seq":6,"min_position":6}`, "400", "both given")
	}
}
