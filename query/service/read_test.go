package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/service"
)

// docs/contract.md:
// "`{"user":"7","what":["comment"],"seen":{"comment":3},"as_of":"…","wait":true}` |
// `{"position":"…"}`: in the log"
func TestRead(t *testing.T) {
	r := start(t)
	all := strings.TrimSuffix(strings.Repeat(`"feed",`, 128), ",")
	for i, c := range []struct{ body, event string }{
		{`{"user":"7","what":["comment"],"seen":{"comment":3},"as_of":"2047"}`, `{"type":"read","actor":7,"what":["comment"],"seen":{"comment":3},"as_of":"2047"}`},
		{`{"what":["all","feed","channel:a-_9","mention"],"user":18446744073709551615}`, `{"type":"read","actor":18446744073709551615,"what":["all","feed","channel:a-_9","mention"]}`},
		// docs/contract.md: "`read.what`: any of the unread columns, `feed`, `channel:<name>`,
		// `all`."
		{`{"user":7,"what":["comment","comment"]}`, `{"type":"read","actor":7,"what":["comment","comment"]}`},
		{`{"user":7,"what":["c\u006fmment","\u0061ll"],"seen":{"mention":"18","c\u006fmment":0}}`, `{"type":"read","actor":7,"what":["comment","all"],"seen":{"mention":18,"comment":0}}`},
		{`{"user":7,"what":[` + all + `]}`, `{"type":"read","actor":7,"what":[` + all + `]}`},
		// A position is one whatever it is, also one before everything.
		{`{"user":7,"what":["feed"],"as_of":0}`, `{"type":"read","actor":7,"what":["feed"],"as_of":"0"}`},
		{`{"user":7,"what":["feed"],"as_of":18446744073709551615}`, `{"type":"read","actor":7,"what":["feed"],"as_of":"18446744073709551615"}`},
		{`{"user":7,"what":["feed"],"as_of":null,"seen":null,"wait":null}`, `{"type":"read","actor":7,"what":["feed"]}`},
		{`{"user":7,"what":["feed"],"seen":{},"wait":false}`, `{"type":"read","actor":7,"what":["feed"]}`},
		// What a read has not is not passed on.
		{`{"user":7,"what":["feed"],"delete":true,"actor":8,"type":"post","x":[{}]}`, `{"type":"read","actor":7,"what":["feed"]}`},
	} {
		r.answers("read", c.body, fmt.Sprintf(`{"position":"%d"}`, pipeline.At(uint64(i)+1, 0)))
		if events := r.events.Events(); events[len(events)-1] != c.event {
			t.Errorf("%s\ngot  %s\nwant %s", c.body, events[len(events)-1], c.event)
		}
	}
}

// docs/contract.md: "400 with what is wrong and where, 404 unknown counter or column"
func TestReadRefusals(t *testing.T) {
	r := start(t)
	for _, body := range []string{``, `{`, `[]`, `{"user":7,"what":["feed",]}`, `{"user":7,"what":["feed"],"seen":{"comment":}}`, "{\"user\":7,\"what\":[\"\xff\"]}"} {
		r.refuses("read", body, "400", "not the JSON object")
	}
	r.refuses("read", `{}`, "400", "user is missing")
	r.refuses("read", `{"what":["feed"]}`, "400", "user is missing")
	r.refuses("read", `{"user":null,"what":["feed"]}`, "400", "user is missing")
	for _, id := range []string{`0`, `"0"`, `-1`, `1.0`, `"x"`, `true`, `[]`} {
		r.refuses("read", `{"what":["feed"],"user":`+id+`}`, "400", "user: "+id+" is not an id")
	}
	for _, what := range []string{`[]`, `null`} {
		r.refuses("read", `{"user":7,"what":`+what+`}`, "400", "what is missing: a list of 1 to 128 of comment, mention, feed, channel:<name>, all")
	}
	r.refuses("read", `{"user":7}`, "400", "what is missing")
	r.refuses("read", `{"user":7,"what":"feed"}`, "400", `what: "feed" is not a list`)
	r.refuses("read", `{"user":7,"what":["feed"],"what":["all"]}`, "400", `what is given twice`)
	r.refuses("read", `{"user":7,"what":["feed",5]}`, "400", `what[1]: 5 is not a name`)
	for _, name := range []string{`channel:`, `channel:A`, `channel:a.b`, `channel:é`, `channel:` + strings.Repeat("a", 65)} {
		r.refuses("read", `{"user":7,"what":["`+name+`"]}`, "400", "what[0]: ", "is not a channel's name")
	}
	r.refuses("read", `{"user":7,"what":[`+strings.Repeat(`"feed",`, 128)+`"feed"]}`, "413", "what: more than 128")
	// Suffixes and hidden columns are no names of a read.
	for _, name := range []string{"likes", "cntuc", "old", "", "Feed", "channel", "unread.comment"} {
		r.refuses("read", `{"user":7,"what":["comment","`+name+`"]}`, "404", `what[1]: "`+name+`" is not something unread; there are: comment, mention, feed, channel:<name>, all`)
	}
	for _, name := range []string{"likes", "cntuc", "old", "feed", "all", "channel:system"} {
		r.refuses("read", `{"user":7,"what":["all"],"seen":{"comment":1,"`+name+`":1}}`, "404", `seen: "`+name+`" is not an unread column; there are: comment, mention`)
	}
	for _, n := range []string{`-1`, `1.5`, `1e3`, `"x"`, `""`, `null`, `true`, `[1]`, fmt.Sprint(uint64(pipeline.Limit) + 1)} {
		r.refuses("read", `{"user":7,"what":["all"],"seen":{"comment":`+n+`}}`, "400", "seen.comment: "+n+" is not a count")
	}
	r.refuses("read", `{"user":7,"what":["all"],"seen":{"comment":1,"comment":1}}`, "400", "seen.comment is given twice")
	r.refuses("read", `{"user":7,"what":["all"],"seen":{},"seen":{}}`, "400", "seen is given twice")
	r.refuses("read", `{"user":7,"what":["all"],"seen":[3]}`, "400", "seen: [3] is not an object of counts")
	for _, p := range []string{`-1`, `1.0`, `"soon"`, `18446744073709551616`, `{}`} {
		r.refuses("read", `{"user":7,"what":["all"],"as_of":`+p+`}`, "400", "as_of: "+p+" is not a position")
	}
	r.refuses("read", `{"user":7,"what":["all"],"wait":"yes"}`, "400", `wait: "yes" is not true or false`)
	if events := r.events.Events(); len(events) > 0 {
		t.Errorf("refused, but published: %s", events)
	}
}

// Reads that wait for the log hold up nobody, and are bounded.
func TestReadHoldsUpNobody(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Requests = 4 })
	release := make(chan struct{})
	var inLog sync.WaitGroup
	inLog.Add(2)
	r.events.Before = func(context.Context) error { inLog.Done(); <-release; return nil }
	var reads sync.WaitGroup
	var mu sync.Mutex
	var answers []string
	for i := range 2 {
		reads.Go(func() {
			got := r.ask("tidemark.read", fmt.Sprintf(`{"user":%d,"what":["feed"]}`, i+1))
			mu.Lock()
			answers = append(answers, got)
			mu.Unlock()
		})
	}
	inLog.Wait()
	r.refuses("read", `{"user":9,"what":["feed"]}`, "503", "busy: 2 reads are in flight", "nothing was stored")
	r.get(`{"counter":"post","ids":[1],"columns":["like"]}`, `{"rows":[{"id":"1","like":0}],"as_of":"0"}`)
	r.refuses("read", `{"user":9,"what":[]}`, "400") // nor does it hold up other reads
	close(release)
	reads.Wait()
	slices.Sort(answers)
	if fmt.Sprint(answers) != `[{"position":"1024"} {"position":"2048"}]` {
		t.Errorf("%s", answers)
	}
}

// docs/contract.md: "with `wait`, also visible to every later query", "or fail after
// `timeout_ms`". docs/queries.md: "504 with the body `{"position":"…"}`: stored, but not
// visible in time. Do not send it again." With any other error nothing was stored.
func TestReadWaits(t *testing.T) {
	r := start(t)
	r.refuses("read", `{"user":"7","what":["feed"],"wait":true,"timeout_ms":5}`, "504",
		"stored at position 1024", "within 5 ms", "applied is 0", "do not send it again")
	// The position is there for programs, too.
	m, err := r.nc.Request("tidemark.read", []byte(`{"user":"7","what":["feed"],"wait":true,"timeout_ms":0}`), time.Minute)
	if err != nil || m.Header.Get("Nats-Service-Error-Code") != "504" || string(m.Data) != `{"position":"2048"}` {
		t.Errorf("%v %v", m, err)
	}
	// min_position comes before the log: nothing is stored.
	r.refuses("read", `{"user":"7","what":["feed"],"min_position":"5","timeout_ms":5}`, "504", "min_position 5", "nothing was stored")
	answers := r.sends([2]string{"read", `{"user":"7","what":["feed"],"wait":true,"min_position":"5","timeout_ms":30000}`})
	e2e.Until(t, "it waits", func() bool { return r.reader.Waiting() == 1 })
	if n := len(r.events.Events()); n != 2 {
		t.Errorf("%d events", n)
	}
	r.reader.Apply(5)
	e2e.Until(t, "it waits to be visible", func() bool { return r.reader.Waiting() == 1 && len(r.events.Events()) == 3 })
	r.reader.SetUnread(7, query.UserUnread{Feed: 99})
	r.reader.Apply(3072)
	if got := next(t, answers); got != `{"position":"3072"}` {
		t.Error(got)
	}
}

// An error of the log is not known to be a failure, and repeating it may harm; a log that
// is full, or has no leader, is known to have refused the read.
func TestReadFails(t *testing.T) {
	r := start(t, func(o *service.Options, _ *server.Options) { o.Limits.Publish = 30 * time.Millisecond })
	lost := errors.New("connection lost")
	never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	feed, seen := `{"user":"7","what":["feed"]}`, `{"user":"7","what":["comment"],"seen":{"comment":3}}`
	const uncertain = "503 it is not known whether the read was stored"
	for _, test := range []struct {
		log               func(context.Context) error
		body, words, data string
	}{
		{func(context.Context) error { return lost }, feed, uncertain + "; sending it again does no harm: connection lost", `{"uncertain":true}`},
		{func(context.Context) error { return lost }, seen, uncertain, `{"uncertain":true}`},
		{never, feed, uncertain + "; sending it again does no harm: context deadline exceeded", `{"uncertain":true}`},
		{func(context.Context) error { return fmt.Errorf("no room: %w", pipeline.ErrFull) }, seen, "503 the log is full, nothing was stored", ""},
		{func(context.Context) error { return fmt.Errorf("nobody: %w", pipeline.ErrNoLog) }, seen, "503 the log takes no events now: EVENTS has no leader, or is gone; nothing was stored", ""},
	} {
		r.events.Before = test.log
		m, err := r.nc.Request("tidemark.read", []byte(test.body), time.Minute)
		if err != nil || !strings.HasPrefix(told(m), test.words) || string(m.Data) != test.data {
			t.Errorf("%v, %q with %s, want %s", err, told(m), m.Data, test.words)
		} else if strings.Contains(told(m), "may take what was seen off twice") != (test.body == seen && test.data != "") {
			t.Error(told(m))
		}
	}
	r = start(t, func(o *service.Options, _ *server.Options) { o.Publisher = nil })
	r.refuses("read", feed, "503", "takes no reads")
	r.refuses("read", `{"user":"7","what":[]}`, "400")
}
