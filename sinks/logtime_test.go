package sinks

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// docs/contract.md: "Ages … are measured in log time": one event that a server's clock has stamped ten
// years ahead empties feeds and makes users inactive, also when the clock is right
// again (docs/decisions/0032-log-time.md). The same log gives the right numbers with
// ages that are longer than the jump: that is the way out, with a rebuild.
func TestOneEventStampedFarAhead(t *testing.T) {
	const year, day = 365 * 86400, 86400
	for _, test := range []struct {
		age  int64
		feed uint64
	}{{30 * day, 0}, {100 * year, 2}} {
		n := newBareWith(t, shard.Limits{PostsMax: 1000, Retention: test.age, Inactive: test.age})
		const user, author = 7, 9
		post := func(id uint64) {
			n.own(pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: id, Position: n.at + 1})
			n.apply(t, n.at+2)
		}
		n.own(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: author, Position: n.at + 1})
		n.apply(t, n.at+2)
		n.own(pipeline.Operation{Op: pipeline.OpRead, ID: user, Position: n.at + 1, Mark: n.at + 1, Looked: pipeline.LookedFeed})
		n.apply(t, n.at+2)
		post(100)
		if n.LogTime() > 2000 {
			t.Fatalf("log time is %d", n.LogTime())
		}
		n.ahead = 10 * year
		n.apply(t, n.at+2) // any event
		n.ahead = 0
		post(101)
		var out query.Unreads
		if err := n.Unread(t.Context(), []uint64{user}, nil, &out, false); err != nil {
			t.Fatal(err)
		}
		if feed := out.Users[0].Feed; feed != test.feed {
			t.Errorf("ages of %d days: %d unread posts, want %d", test.age/day, feed, test.feed)
		}
		if at := n.LogTime(); at < 9*year {
			t.Errorf("log time is %d: it went back", at)
		}
	}
}
