package spread_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/query/wire"
)

// earlier answers like a node of the version before standpoints, which knows kinds
// up to Applied: that it does not know the question.
func (c *cluster) earlier(name string) {
	c.t.Helper()
	nc := querytest.Connect(c.t, c.server)
	_, err := nc.Subscribe(spread.Subject(name, 0), func(m *nats.Msg) {
		_, asks, err := wire.DecodeBatch(m.Data, nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		replies := wire.BeginReplies(nil, wire.Oldest)
		for i := range asks {
			r := wire.Reply{ID: asks[i].ID, Status: wire.Refused, Last: true, Body: []byte("not understood: kind 9 is not known to version 1")}
			if asks[i].Kind <= wire.Applied {
				c.t.Errorf("%s was asked", asks[i].Kind)
			}
			replies = wire.AppendReply(replies, &r)
		}
		wire.SetTaken(replies)
		_ = m.Respond(wire.End(replies))
	})
	if err != nil || nc.Flush() != nil {
		c.t.Fatal(err)
	}
}

// Where a user stands is asked of other nodes, and is what it is here. A node of an
// earlier version does not know the question: another is asked, and where there is
// none, that is said at once, in words.
func TestStandpointOfAnotherNode(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(8, 8)), 300)
	c := newCluster(t, w, &server.Options{})
	c.earlier("earlier")
	c.list("earlier", all)
	c.open()
	ask := &query.StandpointAsk{User: idIn(1, 0), Before: now, Limit: 21}
	stand := func() (got query.Standpoint, err error) {
		err = c.far(0, time.Minute).(query.BadgeReader).Standpoint(within(t, time.Minute), ask, &got, true)
		return got, err
	}
	begun := time.Now()
	if _, err := stand(); !errors.Is(err, query.ErrStopped) || !strings.Contains(err.Error(), "kind 9 is not known to version 1") {
		t.Errorf("only a node of an earlier version is there: %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it was waited for %v", took)
	}
	c.node("b", all)
	for range 20 {
		ask.User++
		var want query.Standpoint
		if err := querytest.NewHolder(w, "own", all).Standpoint(t.Context(), ask, &want, true); err != nil {
			t.Fatal(err)
		}
		got, err := stand()
		if err != nil || got.Read != want.Read || !reflect.DeepEqual(got.Feed.Followees, want.Feed.Followees) && len(want.Feed.Followees) > 0 || got.AsOf != want.AsOf {
			t.Fatalf("%+v, want %+v: %v", got, want, err)
		}
	}
}
