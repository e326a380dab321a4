package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// explained is what the contract says of a reply.
type explained struct {
	ID     string `json:"id"`
	Value  int64  `json:"value"`
	AsOf   string `json:"as_of"`
	Events []struct {
		Position string         `json:"position"`
		Time     string         `json:"time"`
		Type     string         `json:"type"`
		Change   string         `json:"change"`
		Event    map[string]any `json:"event"`
	} `json:"events"`
	Next string `json:"next"`
	Base struct {
		Position string `json:"position"`
		Value    int64  `json:"value"`
	} `json:"base"`
}

func (s *site) explain(body string) (e explained) {
	s.T.Helper()
	s.Until("explain "+body, func() error { // not in time, on a busy machine
		reply := s.Ask("explain", body)
		if strings.HasPrefix(reply, "504 ") || reply == nats.ErrTimeout.Error() {
			return errors.New(reply)
		}
		if err := json.Unmarshal([]byte(reply), &e); err != nil {
			s.T.Fatalf("%s: %s", body, reply)
		}
		return nil
	})
	return e
}

func (e *explained) changes() string {
	var all []string
	for _, event := range e.Events {
		all = append(all, event.Position+" "+event.Change)
	}
	return strings.Join(all, ", ")
}

// "`{"number":"post.like","id":"42","limit":20,"before":"…"}` |
// `{"id":"42","value":3,"as_of":"…","events":[{"position":"…","time":"2026-…Z","type":"like","change":"+1","event":{…}}],"next":"…","base":{"position":"…","value":0}}`":
// by a process that holds, also where another one answers. Dead letters are not in it.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder := s.Start(s.Config("h", "route hold"))
	s.Start(s.Config("t", "answer"))
	s.Ready(holder)
	at := s.Publish(
		`{"type":"like","actor":1,"post":42,"author":7}`,
		`{"type":"like","actor":2,"post":42}`, // no author: a dead letter
		`{"type":"like","actor":2,"post":"42","author":7}`,
		`{"type":"like","actor":2,"post":42,"author":7,"delete":true}`,
		`{"type":"adjust","counter":"post","column":"like","set":5,"id":42}`,
		`{"type":"like","actor":"\u0033","post":"\u0034\u0032","author":7}`,
		`{"type":"like","actor":18446744073709551615,"post":18446744073709551615,"author":7}`,
	)
	ask := func(more string) explained {
		return s.explain(`{"number":"post.like","id":"42","min_position":"` + at + `"` + more + `}`)
	}
	all := ask("")
	if all.ID != "42" || all.Value != 6 || all.changes() != "1029 +1, 1028 =5, 1027 -1, 1026 +1, 1024 +1" || all.Next != "" || all.Base.Position != "0" || all.Base.Value != 0 {
		t.Errorf("%+v", all)
	}
	if e := all.Events[4]; e.Type != "like" || e.Event["author"] != 7.0 || !strings.HasSuffix(e.Time, "Z") || len(e.Time) != len("2026-01-02T15:04:05.678Z") {
		t.Errorf("%+v", e)
	}
	for limit := 1; limit <= 5; limit++ {
		var pages []string
		for before := ""; ; {
			page := ask(fmt.Sprintf(`,"limit":%d%s`, limit, before))
			pages = append(pages, page.changes())
			if before = `,"before":"` + page.Next + `"`; page.Next == "" {
				break
			}
		}
		if got := strings.Join(pages, ", "); got != all.changes() {
			t.Errorf("in pages of %d: %s", limit, got)
		}
	}
	if e := s.explain(`{"number":"user.liked","id":7}`); e.Value != 3 || len(e.Events) != 5 {
		t.Errorf("%+v", e)
	}
	if e := s.explain(`{"number":"post.like","id":"18446744073709551615"}`); e.changes() != "1030 +1" {
		t.Errorf("%+v", e)
	}
	if e := s.explain(`{"number":"post.like","id":43}`); e.Value != 0 || len(e.Events) != 0 || e.Next != "" {
		t.Errorf("%+v", e)
	}
	for body, want := range map[string]string{
		`{"number":"post.like"}`:                           "400 number and id are wanted",
		`{"id":42}`:                                        "400 number and id are wanted",
		`{"number":"post.like","id":0}`:                    "400 id: 0 is not an id",
		`{"number":"like","id":42}`:                        "400 number: like is neither COUNTER.COLUMN",
		`{"number":7,"id":42}`:                             "400 number: 7 is not a name",
		`{"number":"post.nope","id":42}`:                   `404 number: counter post has no column "nope"; there are: repost`,
		`{"number":"no.like","id":42}`:                     "404 ",
		`{"number":"post.like","id":42,"limit":1001}`:      "413 limit: 1001 is more than 1000",
		`{"number":"post.like","id":42,"before":"x"}`:      "400 before: ",
		`{"number":"post.like","id":42,"timeout_ms":-1}`:   "400 timeout_ms",
		`{"number":"post.like","id":42`:                    "400 ",
		`{"number":"post.like","id":18446744073709551616}`: "400 id: ",
	} {
		if got := s.Ask("explain", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// The copy of a message that was published again counts, where it stands; the
// original counts no more. (With filters: internal/twin, TestExplain.)
func TestExplainCountsWhatWasMovedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("h", "route hold answer")
	h := s.Start(c)
	s.Ready(h)
	js, err := jetstream.New(s.NC)
	if err != nil {
		t.Fatal(err)
	}
	stream := natstest.Stream(t, s.NC, jetlog.EventsStream)
	s.Publish(`{"type":"like","actor":1,"post":42,"author":7}`)
	at := s.Publish(`{"type":"like","actor":2,"post":42,"author":7}`)
	s.explain(`{"number":"post.like","id":"42","min_position":"` + at + `"}`)
	second, err := stream.GetMsg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	under := strings.TrimSuffix(stream.CachedInfo().Config.Subjects[1], ">")
	header := nats.Header{}
	subject := jetlog.MarkAsCopy(under, second.Subject, header, jetlog.Original{Sequence: 2, Nanos: second.Time.UnixNano()})
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: second.Data}); err != nil {
		t.Fatal(err)
	}
	last := s.Publish(`{"type":"like","actor":3,"post":42,"author":7}`)
	if e := s.explain(`{"number":"post.like","id":"42","min_position":"` + last + `"}`); e.changes() != "4096 +1, 3072 +1, 1024 +1" {
		t.Errorf("%+v", e)
	}
}
