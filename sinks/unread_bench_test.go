package sinks

import (
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// bare is a node without owners and disk: its shards are written by hand, so
// that ten million users take seconds.
type bare struct {
	*Node
	at       pipeline.Position
	sections [][]byte
	sequence uint64
}

const bareShards = 64

func newBare(b testing.TB) *bare {
	b.Helper()
	limits := shard.Limits{PostsMax: 1000, Retention: 30 * 86400, Inactive: 30 * 86400}
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
	w.Marks = []pipeline.TimeMark{{Second: int64(1000 + n.sequence), Position: n.at + 1}}
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
