package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

var communityLines = []string{
	`{"type":"follow","actor":7,"target":8}`, `{"type":"follow","actor":7,"target":9}`, `{"type":"follow","actor":8,"target":7}`,
	`{"type":"notice","channel":"system","notice":3}`,
	`{"type":"read","actor":7,"what":["all"]}`,
	`{"type":"post","actor":8,"post":50}`, `{"type":"post","actor":9,"post":51}`, `{"type":"post","actor":9,"post":52,"repost_of":50,"author":8}`,
	`{"type":"like","actor":7,"post":50,"author":8}`, `{"type":"like","actor":9,"post":50,"author":8}`,
	`{"type":"comment","actor":8,"post":51,"author":9}`, `{"type":"mention","actor":8,"target":7}`,
	`{"type":"message","actor":9,"target":7}`, `{"type":"notice","channel":"system","notice":4}`,
}

// sixQueries are what communityLines bear on.
var sixQueries = []struct{ subject, body string }{
	{"get", `{"counter":"post","ids":[50,51,52,53]%s}`},
	{"get", `{"counter":"user","ids":[7,8,9,10],"columns":["post","follower","friend"]%s}`},
	{"unread", `{"users":[7,8,9,10]%s}`},
	{"feed", `{"user":7,"limit":2%s}`},
	{"following", `{"user":7%s}`},
	{"followers", `{"user":7%s}`},
	{"schema", `{}`},
}

func (s *site) six(position string) (replies []any) {
	s.T.Helper()
	for _, q := range sixQueries {
		body := q.body
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, `,"min_position":"`+position+`"`)
		}
		var reply any
		s.Until("an answer", func() error { // not in time, on a busy machine
			text := s.Ask(q.subject, body)
			if json.Unmarshal([]byte(text), &reply) != nil || strings.Contains(text, `"missing"`) {
				return fmt.Errorf("%s %s: %s", q.subject, body, text)
			}
			return nil
		})
		replies = append(replies, reply)
	}
	return replies
}

// A process that only answers says what one says that holds everything.
func TestThinAnswersAsHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("holder", "route hold answer")
	all := s.Start(c)
	position := s.Publish(communityLines...)
	want := s.six(position)
	s.Stop(all)

	c.Roles = []string{config.RoleRoute, config.RoleHold}
	s.Ready(s.Start(c))
	tc := s.Config("", "answer")
	thin := s.Start(tc)
	s.Ready(thin)
	got := s.six(position)
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%s %s\ngot  %v\nwant %v", sixQueries[i].subject, sixQueries[i].body, got[i], want[i])
		}
	}

	// "tidemark.read works": the holders have it when it is answered.
	s.Asks("read", `{"user":7,"what":["all"],"wait":true}`, `"position"`)
	s.Asks("unread", `{"users":[7],"columns":["total"]}`, `"7"`)
	// A machine that stands still for a moment has old answers, and says so.
	s.Until("after a read", func() error {
		reply := s.Ask("unread", `{"users":[7]}`)
		if strings.Contains(reply, `"mention":0`) && strings.Contains(reply, `"feed":0`) {
			return nil
		}
		if !strings.Contains(reply, `"degraded"`) {
			t.Errorf("after a read: %s", reply)
		}
		return errors.New(reply)
	})
	// It knows where the log ends.
	for position, want := range map[string]string{"4096": "504 ", "99999999": "400 "} {
		s.Until("position "+position+", which is to come", func() error {
			reply := s.Ask("get", `{"counter":"post","ids":[50],"min_position":"`+position+`","timeout_ms":200}`)
			if strings.HasPrefix(reply, want) {
				return nil
			}
			return errors.New(reply)
		})
	}

	if page := s.Page(thin, "/readyz"); page != "200 ok\n" {
		t.Errorf("/readyz: %s", page)
	}
	if _, err := os.Stat(tc.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a data directory was made: %v", err)
	}
	if thin.WaitApplied(t.Context(), 1024) != nil || thin.Reader() == nil || thin.URL() == "" {
		t.Error("it cannot be asked from within its program")
	}

	// It has answers, without a restart, also where the generation that it hears of next is in
	// the slot of the one that it knew, as after two rebuilds while it was suspended, or beside
	// nodes that were restored from a backup. What has its name there is itself.
	thin.thin.end()
	before := thin.Serving()
	next := counting.Spec{Number: before.Number, Slot: before.Slot, Config: thin.config}
	if err := thin.thin.change(t.Context(), thin.newGeneration(thin.ctx, next)); err != nil {
		t.Fatal(err)
	}
	s.Asks("get", `{"counter":"post","ids":[50]}`, `"like":2`)
	s.Until("its member", func() error {
		if m, there := s.Members()[thin.name]; !there || m.Session != thin.shared.Session {
			return fmt.Errorf("%+v", m)
		}
		return nil
	})

	// It is a member under a name of its own, and leaves nothing behind.
	s.Until("a member", func() error { // unless no holder was heard of just now
		me, there := s.Members()[thin.name]
		if !there || me.Roles != cluster.Answer || me.Shards != 0 || me.Fingerprint != 0 || me.Ready.Len() != 0 ||
			thin.name == "" {
			return fmt.Errorf("%v %+v", there, me)
		}
		return nil
	})
	s.Stop(thin)
	if m, there := s.Members()[thin.name]; there {
		t.Errorf("it has left, and there is %+v", m)
	}
}

// "A node that only answers starts without holders; every request gets
// 503 with words, and it becomes ready by itself when a holder comes", and goes on when
// the server is gone and back.
func TestThinWithoutHolders(t *testing.T) {
	t.Parallel()
	const words = "no node that holds counters is known"
	s := newSite(t)
	thin := s.Start(s.Config("", "answer"))
	for _, q := range sixQueries {
		body := strings.ReplaceAll(q.body, "%s", "")
		if reply := s.Ask(q.subject, body); !strings.HasPrefix(reply, "503 ") || !strings.Contains(reply, words) {
			t.Errorf("%s %s: %s", q.subject, body, reply)
		}
	}
	if page := s.Page(thin, "/readyz"); page != "503 "+words+"\n" {
		t.Errorf("/readyz: %q", page)
	}
	if page := s.Page(thin, "/healthz"); page != "200 ok\n" {
		t.Errorf("/healthz: %q", page)
	}
	if reply := s.Ask("read", `{"user":7,"what":["all"]}`); !strings.HasPrefix(reply, "503 ") ||
		!strings.Contains(reply, words) {
		t.Errorf("read: %s", reply)
	}
	if reply := s.Ask("nodes", `{}`); reply != `{"epoch":0,"nodes":[]}` {
		t.Errorf("nodes: %s", reply)
	}
	if reply := s.Ask("stats", `{"min_position":"1024"}`); !strings.HasPrefix(reply, "503 ") {
		t.Errorf("stats of a position: %s", reply)
	}
	js, err := jetstream.New(s.NC)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := js.AccountInfo(t.Context()); err != nil || info.Streams != 0 {
		t.Errorf("it has made streams: %v %+v", err, info)
	}

	c := s.Config("holder", "route hold")
	s.Start(c)
	s.Publish(communityLines...)
	s.Ready(thin)
	s.Asks("get", `{"counter":"post","ids":[50],"columns":["like"]}`, `"like":2`)

	// NATS is gone, and comes back
	s.Server.Stop()
	s.Until("the server is gone", func() error {
		if err := thin.Ready(); err == nil || !strings.Contains(err.Error(), "lost") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	s.Server.Start()
	s.Ready(thin)
	s.Asks("get", `{"counter":"post","ids":[50],"columns":["like"]}`, `"like":2`)
}
