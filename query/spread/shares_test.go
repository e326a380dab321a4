package spread_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/wire"
)

// version1 stands before a node, and makes of it one of version 1, which does not
// know shares, and of those who ask it, askers of version 1; as long as now says so,
// nil: always.
func version1(now func() bool) *relay {
	is := func() bool { return now == nil || now() }
	return &relay{
		question: func(m []byte) []byte {
			if !is() {
				return m
			}
			b, asks, err := wire.DecodeBatch(m, nil)
			if err != nil {
				return m
			}
			m = wire.BeginBatch(nil, b.Schema, wire.Oldest)
			m[4] = 1
			for _, a := range asks {
				if a.Kind.Since() > 1 {
					a.Kind = 99 // neither node knows it
				}
				m = wire.AppendAsk(m, &a)
			}
			return wire.End(m)
		},
		answer: func(m []byte) [][]byte {
			if is() {
				m[4] = 1
				m = wire.End(m[:len(m)-4])
			}
			return [][]byte{m}
		},
	}
}

// unreadsAre: users' numbers are what one says who holds all, and just those are
// missing of whom something is in shards that nobody has.
func (c *cluster) unreadsAre(users []uint64, gone func(pipeline.Shard) bool) error {
	var got, want query.Unreads
	ctx := within(c.t, 20*time.Second)
	if err := c.world.Reader().Unread(ctx, users, []string{}, &want, true); err != nil {
		return err
	}
	if err := c.far(0, 0).Unread(ctx, users, []string{}, &got, true); err != nil {
		return err
	}
	for i, user := range users {
		missing := gone(pipeline.ShardOf(user, shards))
		for followee := range c.world.Follows[user] {
			missing = missing || gone(pipeline.ShardOf(followee, shards))
		}
		if slices.Contains(got.Missing, i) != missing {
			return fmt.Errorf("user %d, who follows %d: missing is %v", user, len(c.world.Follows[user]), !missing)
		}
	}
	return sameUnreads(&got, &want)
}

func none(pipeline.Shard) bool { return false }

// "A node that is one version older or newer is understood, or is
// refused with words": nodes of both versions answer together, and a node whose earlier
// version is run again.
func TestNodesOfTwoVersions(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(4, 4)), 100)
	users := slices.Sorted(maps.Keys(w.Follows))
	c := newCluster(t, w, &server.Options{})
	c.node("a", even)
	c.serve("b-real", querytest.NewHolder(w, "b", odd))
	var old atomic.Bool
	old.Store(true)
	var asked [wire.Kinds]atomic.Int64
	b := version1(old.Load)
	before := b.question
	b.question = func(m []byte) []byte {
		if _, asks, err := wire.DecodeBatch(m, nil); err == nil {
			for _, a := range asks {
				asked[a.Kind].Add(1)
			}
		}
		return before(m)
	}
	c.meddle("b", "b-real", b)
	c.list("b", odd)
	c.open()
	poll := func(what string) (plain, shares int64) {
		t.Helper()
		plain, shares = asked[wire.CountPosts].Load(), asked[wire.CountShares].Load()
		for range 3 {
			if err := c.unreadsAre(users, none); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		return asked[wire.CountPosts].Load() - plain, asked[wire.CountShares].Load() - shares
	}
	if plain, shares := poll("b is of version 1"); plain == 0 || shares > 0 {
		t.Errorf("a node of version 1 was asked %d times in its words and %d times in others", plain, shares)
	}
	old.Store(false)
	if plain, shares := poll("b is of version 2"); plain > 0 || shares == 0 {
		t.Errorf("a node of version 2 was asked %d times in shares and %d times without", shares, plain)
	}
	// Now it is known as one of version 2. Who asks for one user whom the other node
	// holds hears of it when the shares are refused.
	old.Store(true)
	for _, user := range users {
		if pipeline.ShardOf(user, shards)%2 == 0 {
			if err := c.unreadsAre([]uint64{user}, none); err != nil {
				t.Error(err)
			}
		}
	}
	if asked[wire.CountShares].Load() == 0 || c.figure("tidemark_nodes_parts_total", "result=refused") == 0 {
		t.Error("nothing was refused: this test shows nothing")
	}
	refused := c.figure("tidemark_nodes_parts_total", "result=refused")
	if plain, shares := poll("b is of version 1 again"); plain == 0 || shares > 0 || c.figure("tidemark_nodes_parts_total", "result=refused") > refused {
		t.Errorf("a node that is of version 1 again was asked %d times in its words and %d times in others", plain, shares)
	}
}
