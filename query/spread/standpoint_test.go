package spread_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Where a user stands is asked of other nodes, and is what it is here. A node of an
// earlier version does not know the question: another is asked, and where there is
// none, that is said at once, in words.
func TestStandpointOfAnotherNode(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(8, 8)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("earlier-real", querytest.NewHolder(w, "earlier", all))
	c.meddle("earlier", "earlier-real", &relay{question: func(m []byte) []byte {
		b, asks, err := wire.DecodeBatch(m, nil)
		if err != nil {
			t.Error(err)
		}
		m = wire.BeginBatch(nil, b.Schema, wire.Oldest)
		for _, a := range asks {
			if a.Kind > wire.Applied {
				a.Kind = 99 // it does not know the question
			}
			m = wire.AppendAsk(m, &a)
		}
		return wire.End(m)
	}})
	c.list("earlier", all)
	c.open()
	ask := &query.StandpointAsk{User: idIn(1, 0), Before: now, Limit: 21}
	stand := func() (got query.Standpoint, err error) {
		err = c.far(0, time.Minute).(query.BadgeReader).Standpoint(within(t, time.Minute), ask, &got, true)
		return got, err
	}
	if _, err := stand(); !errors.Is(err, query.ErrStopped) || !strings.Contains(err.Error(), "kind 99 is not known") {
		t.Errorf("only a node of an earlier version is there: %v", err)
	}
	c.node("b", all)
	for range 5 {
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
