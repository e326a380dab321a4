package service_test

import (
	"context"
	"errors"
	"fmt"
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
	r := startSets(t, withLog(&l, 6))
	r.reader.Apply(pipeline.EndOf(6))
	const patient = `,"timeout_ms":60000}` // one that waits makes the test's own request fail

	words := []string{"is past the log's end by more than could be under way", "the last message known is 6 (position 7167)", "at most 65536 more are waited for"}
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_position":"%d"`+patient, pipeline.At(6+aheadMax+1, 0)), "400", append(words, "min_position 67116032 ")...)
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_seq":%d`+patient, 6+aheadMax+1), "400", append(words, "min_seq 65543 ")...)
	r.refused(`{"counter":"post","ids":[1],"min_position":18446744073709551615`+patient, "400", words...)
	r.refused(`{"counter":"post","ids":[1],"min_seq":9007199254740991`+patient, "400", words...)
	r.refused(`{"counter":"post","ids":[1]`+strings.Repeat(" ", 30_000)+`,"min_seq":99999999`+patient, "400", words...)
	for endpoint, body := range everywhere {
		r.refuses(endpoint, body+`,"min_seq":99999999`+patient, "400", words...)
	}
	if got := len(r.events.Events()); got != 0 {
		t.Errorf("%d reads were stored", got)
	}

	// Nearer ones are waited for: a client may ask for what it is about to publish.
	r.refused(fmt.Sprintf(`{"counter":"post","ids":[1],"min_seq":%d,"timeout_ms":20}`, 6+aheadMax), "504", "min_seq 65542 was not reached within 20 ms, applied is 7167")
	var early sync.WaitGroup
	early.Go(func() {
		r.get(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":7`+patient, `{"rows":[{"id":"1","like":8}],"as_of":"8191"}`)
	})
	e2e.Until(t, "it is looked for", func() bool { return r.figure("tidemark_query_in_flight") == 1 })
	l.last.Store(7)
	r.reader.Set(0, like, 1, 8)
	r.reader.Apply(pipeline.EndOf(7))
	early.Wait()
	// The end moves, and with it what is too far.
	l.last.Store(1 << 40)
	e2e.Until(t, "the end is known", func() bool {
		return strings.HasPrefix(r.ask("tidemark.get", `{"counter":"post","ids":[1],"min_seq":1099511627776,"timeout_ms":20}`), "504 min_seq 1099511627776 was not reached")
	})
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
	e2e.Until(t, "both wait", func() bool { return r.figure("tidemark_query_in_flight") == 2 })
	l.last.Store(7)
	l.fails.Store(false)
	r.reader.Apply(pipeline.EndOf(7))
	waiting.Wait()
}

// Those who wait for the future take no places from those who wait for what
// they just wrote.
func TestTheFutureHasItsOwnPlaces(t *testing.T) {
	var l logOf
	r := start(t, withLog(&l, 6)) // 16 places for those who wait, 4 of the future, 1 of them long
	r.reader.Apply(pipeline.EndOf(6))
	ahead := `{"counter":"post","ids":[1],"columns":["like"],"min_seq":9,"timeout_ms":60000`
	long := ahead + strings.Repeat(" ", 24_000) + "}"
	future := r.sends(slices.Repeat([][2]string{{"get", ahead + "}"}}, 4)...)
	e2e.Until(t, "four wait", func() bool { return r.service.Futures() == 4 && r.reader.Waiting() == 4 })
	longFuture := r.sends([2]string{"get", long})
	e2e.Until(t, "a long one waits", func() bool { return r.service.Futures() == 5 && r.reader.Waiting() == 5 })
	const full = "requests that wait for what the log does not hold yet are in flight"
	r.refused(ahead+"}", "503", "busy: 4 "+full)
	r.refused(long, "503", "busy: 1 large "+full)

	// Message 7 is stored, and its producer asks for it, as often as there are places.
	l.last.Store(7)
	looks := l.looks.Load()
	e2e.Until(t, "message 7 is known of", func() bool {
		r.refused(`{"counter":"post","ids":[1],"min_seq":8,"timeout_ms":60000}`, "503", "busy: 4 "+full)
		return l.looks.Load() >= looks+2
	})
	e2e.Until(t, "what was refused takes no place", func() bool { return r.figure("tidemark_query_in_flight") == 5 })
	honest := r.sends(slices.Repeat([][2]string{{"get", `{"counter":"post","ids":[1],"columns":["like"],"min_seq":7,"timeout_ms":60000}`}}, 16)...)
	e2e.Until(t, "all wait", func() bool { return r.reader.Waiting() == 16+5 })
	r.refused(`{"counter":"post","ids":[1],"min_seq":7}`, "503", "busy: 16 requests that wait for their min_position are in flight")
	r.reader.Apply(pipeline.EndOf(7))
	for range 16 {
		if got := next(t, honest); got != `{"rows":[{"id":"1","like":0}],"as_of":"8191"}` {
			t.Error(got)
		}
	}
	r.reader.Apply(pipeline.EndOf(9))
	for _, answers := range []*nats.Subscription{future, future, future, future, longFuture} {
		if got := next(t, answers); got != `{"rows":[{"id":"1","like":0}],"as_of":"10239"}` {
			t.Error(got)
		}
	}
}

// In a crowd of those who ask for the near and the far future, all who ask for what they
// just wrote are answered. What is far past the known end is refused at once, also while
// the log does not say where it ends. The places in which others wait for that are
// bounded, in requests and in bytes.
func TestHonestRequestsInACrowd(t *testing.T) {
	const crowd, honest = 600, 16
	var l logOf
	r := start(t, withLog(&l, 6)) // 16 places for those who wait, 4 of the future
	r.reader.Apply(pipeline.EndOf(6))
	e2e.Until(t, "the end is known", func() bool {
		return strings.HasPrefix(r.ask("tidemark.get", `{"counter":"post","ids":[1],"min_seq":999999999999,"timeout_ms":0}`), "400")
	})
	l.held.Lock()
	l.last.Store(7)
	ask := func(sequence int) [2]string {
		return [2]string{"get", fmt.Sprintf(`{"counter":"post","ids":[1],"columns":["like"],"min_seq":%d,"timeout_ms":60000}`, sequence)}
	}
	var near, far [][2]string
	for i := range crowd {
		near, far = append(near, ask(8+i)), append(far, ask(1<<50))
	}
	nears := r.sends(near[crowd/2:]...)
	writers := r.sends(slices.Repeat([][2]string{ask(7)}, honest)...)
	fars := r.sends(far...)
	for range crowd { // the log does not say where it ends
		if got := next(t, fars); !strings.HasPrefix(got, "400") {
			t.Error(got)
		}
	}
	more := r.sends(near[:crowd/2]...)
	e2e.Until(t, "the near ones and the writers wait", func() bool { return r.figure("tidemark_query_in_flight") == crowd+honest })
	// Requests of so many bytes take five places each.
	long := [2]string{"get", `{"counter":"post","ids":[1],"min_seq":9,"timeout_ms":60000}` + strings.Repeat(" ", 20_000)}
	const places = (8192 - crowd - honest) / 5
	longs := r.sends(slices.Repeat([][2]string{long}, places+1)...)
	if got := next(t, longs); !strings.HasPrefix(got, "503 busy: 8192 requests that wait for the log to say where it ends are in flight") {
		t.Error(got)
	}
	e2e.Until(t, "all but one wait", func() bool { return r.figure("tidemark_query_in_flight") == crowd+honest+places })
	l.held.Unlock()
	e2e.Until(t, "the crowd is refused", func() bool { return r.figure("tidemark_query_in_flight") == 4+honest })
	r.reader.Apply(pipeline.EndOf(7))
	for range honest {
		if got := next(t, writers); got != `{"rows":[{"id":"1","like":0}],"as_of":"8191"}` {
			t.Error(got)
		}
	}
	r.reader.Apply(pipeline.EndOf(1 << 20))
	refused := 0
	for range crowd / 2 {
		for _, answers := range []*nats.Subscription{nears, more} {
			if got := next(t, answers); strings.HasPrefix(got, "503") {
				refused++
			}
		}
	}
	if refused < crowd-4 {
		t.Errorf("%d of %d are refused", refused, crowd)
	}
}
