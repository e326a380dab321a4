package spread_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// Where a user stands is asked of other nodes, and is what it is here.
func TestStandpointOfAnotherNode(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(8, 8)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("b", all)
	c.open()
	ask := &query.StandpointAsk{User: idIn(1, 0), Before: now, Limit: 21}
	stand := func() (got query.Standpoint, err error) {
		err = c.far(0, time.Minute).(query.BadgeReader).Standpoint(within(t, time.Minute), ask, &got, true)
		return got, err
	}
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
