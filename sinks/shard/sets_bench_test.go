package shard_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// BenchmarkSetsApply applies windows of likes: the post's set and the author's, as
// the operators would have them, or plain counts. A like is one step.
func BenchmarkSetsApply(b *testing.B) {
	schema, err := pipeline.NewSchema([]string{"post", "user"}, []pipeline.ColumnSpec{
		{Counter: 0, Name: "like", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
		{Counter: 1, Name: "liked", Bits: 16, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersPairs}},
	})
	if err != nil {
		b.Fatal(err)
	}
	const likes = 1000 // a window
	for _, posts := range []uint64{1, 1000, 1 << 40} {
		for _, once := range []bool{false, true} {
			name := map[uint64]string{1: "one post", 1000: "thousand posts", 1 << 40: "any posts"}[posts]
			if once {
				name += ", once"
			}
			b.Run(name, func(b *testing.B) {
				s := shard.New(0, schema, shard.Limits{}, shard.NewClock(100), shard.State{})
				random := rand.New(rand.NewPCG(1, 2))
				from, sequence := pipeline.Position(1024), uint64(0)
				b.ReportAllocs()
				for i := 0; i < b.N; i += likes {
					b.StopTimer()
					w := &pipeline.Window{Header: pipeline.Header{From: from, To: from + likes, Time: 1}, Columns: []string{"post.like", "user.liked"}, Sections: [][]byte{nil, nil}}
					if sequence == 0 {
						w.From = 0
					}
					for n := range likes {
						actor, post := 1+random.Uint64N(1<<30), 1+random.Uint64N(posts)
						author := post*7 + 1
						at := w.From + pipeline.Position(n) + 1
						if !once {
							w.Sections[0] = pipeline.AppendChange(w.Sections[0], 0, post, pipeline.Add(1))
							w.Sections[0] = pipeline.AppendChange(w.Sections[0], 1, author, pipeline.Add(1))
							continue
						}
						w.Sections[0] = pipeline.AppendOperation(w.Sections[0], w.From, &pipeline.Operation{Op: pipeline.OpAdd, ID: post, Column: 0, Member: pipeline.Member{A: actor}, By: 1, Position: at})
						w.Sections[0] = pipeline.AppendOperation(w.Sections[0], w.From, &pipeline.Operation{Op: pipeline.OpAdd, ID: author, Column: 1, Member: pipeline.Member{A: post, B: actor}, By: 1, Position: at})
					}
					from, sequence = w.To, sequence+1
					b.StartTimer()
					if err := s.Apply(sequence, w, []pipeline.Column{0, 1}); err != nil {
						b.Fatal(err)
					}
					if sequence%100 == 0 {
						s.HandOver()
						s.Settle(true, func() {})
					}
				}
				b.ReportMetric(float64(s.Bytes())/float64(b.N), "B/like")
			})
		}
	}
}
