package sinks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// bare is a node without owners and disk: its shards are written by hand, so
// that ten million authors take seconds.
type bare struct {
	*Node
	at       pipeline.Position
	sections [][]byte
	sequence uint64
	ahead    int64 // seconds by which the server's clock is wrong
}

const bareShards = 64

func newBare(b testing.TB) *bare {
	b.Helper()
	return newBareWith(b, shard.Limits{PostsMax: 1000, Retention: 30 * 86400, Inactive: 30 * 86400})
}

func newBareWith(b testing.TB, limits shard.Limits) *bare {
	b.Helper()
	schema, err := pipeline.NewSchema([]string{"unread"}, []pipeline.ColumnSpec{{Name: "comment"}, {Name: "like"}, {Name: "follower"}})
	if err != nil {
		b.Fatal(err)
	}
	n := &Node{schema: schema, o: Options{Shards: bareShards, Users: limits}, clock: shard.NewClock(limits.Retention)}
	n.commons = &tier.Commons{Commons: shard.NewCommons(bareShards, n.clock, shard.State{}, nil, nil, shard.ChannelLimits{})}
	var shards []*tier.Shard
	for i := range bareShards {
		shards = append(shards, &tier.Shard{Shard: shard.New(pipeline.Shard(i), schema, limits, n.clock, shard.State{})})
	}
	n.held.Store(newHeld(shards, shards, n.commons))
	return &bare{Node: n, sections: make([][]byte, bareShards+1)}
}

func (n *bare) operate(section int, o pipeline.Operation) {
	n.sections[section] = pipeline.AppendOperation(n.sections[section], n.at, &o)
}

func (n *bare) own(o pipeline.Operation) { n.operate(int(pipeline.ShardOf(o.ID, bareShards)), o) }

// apply closes the window and has every shard apply it.
func (n *bare) apply(b testing.TB, to pipeline.Position) {
	n.sequence++
	w := &pipeline.Window{Header: pipeline.Header{From: n.at, To: to}, Sections: n.sections}
	w.Marks = []pipeline.TimeMark{{Second: int64(1000+n.sequence) + n.ahead, Position: n.at + 1}}
	n.clock.Note(w.Marks)
	for _, u := range n.units() {
		if err := u.Apply(n.sequence, w, nil); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n.sections {
		n.sections[i] = n.sections[i][:0]
	}
	n.at = to
	n.progress.set(to)
}

// Feed unread in process: users who follow 500 of so many authors, each of
// whom has posted; one author in fifty has something new.
func BenchmarkFeedUnread(b *testing.B) {
	for _, authors := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("authors=%d", authors), func(b *testing.B) {
			n := newBare(b)
			r := rand.New(rand.NewPCG(1, 2))
			const users, followees, each = 2000, 500, 1 << 16
			const first = uint64(1 << 40) // users are not authors
			for at := 0; at < authors; at += each {
				from := n.at
				for i := at; i < min(at+each, authors); i++ {
					p := from + pipeline.Position(i-at+1)
					n.own(pipeline.Operation{Op: pipeline.OpPost, ID: uint64(i + 1), Other: uint64(i + 1), Position: p})
				}
				n.apply(b, from+each)
			}
			for u := range uint64(users) {
				p := n.at
				for range followees {
					p++
					n.own(pipeline.Operation{Op: pipeline.OpFollow, ID: first + u, Other: 1 + r.Uint64N(uint64(authors)), Position: p})
				}
				p++
				n.own(pipeline.Operation{Op: pipeline.OpRead, ID: first + u, Position: p, Mark: p, Looked: pipeline.LookedFeed})
				n.apply(b, p)
			}
			for at := 0; at < authors/50; at += each {
				from := n.at
				for i := range uint64(min(each, authors/50-at)) {
					n.own(pipeline.Operation{Op: pipeline.OpPost, ID: 1 + r.Uint64N(uint64(authors)), Other: 1<<50 + uint64(at) + i, Position: from + pipeline.Position(i+1)})
				}
				n.apply(b, from+each)
			}
			runtime.GC()
			var out query.Unreads
			user, total := uint64(0), uint64(0)
			for b.Loop() {
				if err := n.Unread(context.Background(), []uint64{first + user}, nil, &out, true); err != nil {
					b.Fatal(err)
				}
				total += out.Users[0].Feed
				user = (user + 1) % users
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "users/s")
			b.ReportMetric(float64(total)/float64(b.N), "unread/user")
		})
	}
}

// A reset is one mark, however many the user follows.
func BenchmarkReset(b *testing.B) {
	for _, followees := range []int{5, 5000} {
		b.Run(fmt.Sprintf("followees=%d", followees), func(b *testing.B) {
			n := newBare(b)
			for i := range uint64(followees) {
				n.own(pipeline.Operation{Op: pipeline.OpFollow, ID: 1, Other: 2 + i, Position: n.at + 1 + pipeline.Position(i)})
			}
			n.apply(b, n.at+pipeline.Position(followees))
			for b.Loop() {
				n.own(pipeline.Operation{Op: pipeline.OpRead, ID: 1, Position: n.at + 1, Mark: n.at + 1, Looked: pipeline.LookedAll | pipeline.LookedFeed})
				n.apply(b, n.at+2)
			}
		})
	}
}

// A notice to everyone is one entry, however many they are.
func BenchmarkNotice(b *testing.B) {
	for _, users := range []int{10, 10_000_000} {
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			n := newBare(b)
			const each = 1 << 16
			for at := 0; at < users; at += each {
				p := n.at
				for i := at; i < min(at+each, users); i++ {
					p++
					n.own(pipeline.Operation{Op: pipeline.OpRead, ID: uint64(i + 1), Position: p, Mark: p, Looked: pipeline.LookedAll})
				}
				n.apply(b, p)
			}
			notice, to := uint64(0), n.at
			for b.Loop() {
				notice++
				to++
				n.operate(bareShards, pipeline.Operation{Op: pipeline.OpNotice, ID: notice, Position: to, Channels: []string{"system"}})
				if notice%1000 == 0 {
					n.apply(b, to)
				}
			}
		})
	}
}
