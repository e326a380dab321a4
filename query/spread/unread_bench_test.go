package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
)

// Processor time of a poll of users who follow 500 of 20,000 authors, of whom one in
// fifty has something new: in place, and over holders asked by a process that
// holds nothing. A third of the users have read their feed since they follow; a third
// never have, so where each of their followees counts from goes along; a third follow
// 20, who ask nearly as many holders: the difference is what followees cost. 16
// callers at once; all is in this process, the NATS server included.
func BenchmarkUnreadOver(b *testing.B) {
	const users, authors, shards = 3000, 20_000, 64
	const event = 1 << 10 // positions of one message each
	r := rand.New(rand.NewPCG(1, 2))
	w := newWindows(b, shards)
	base := w.at
	p := base
	for id := uint64(1); id <= authors; id++ {
		p += event
		w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: id, Other: id, Position: p}, base)
	}
	w.cut(p)
	for u := range uint64(users) {
		p, user := w.at, 1<<40+u
		var followed []uint64
		for len(followed) < []int{500, 500, 20}[u%3] {
			if author := 1 + r.Uint64N(authors); !slices.Contains(followed, author) {
				followed = append(followed, author)
				p += event
				w.operate(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: author, Position: p}, w.at)
			}
		}
		p += event
		if u%3 != 1 {
			w.operate(pipeline.Operation{Op: pipeline.OpRead, ID: user, Position: p, Mark: p, Looked: pipeline.LookedFeed}, w.at)
		}
		w.cut(p)
	}
	base, p = w.at, w.at
	for i := range uint64(authors / 50) {
		p += event
		w.operate(pipeline.Operation{Op: pipeline.OpPost, ID: 1 + r.Uint64N(authors), Other: 1<<50 + i, Position: p}, base)
	}
	w.cut(p)
	whole := w.node(b, nil)
	poll := func(b *testing.B, name string, reader func() query.Reader) {
		for group, who := range []string{"read", "never read", "20 followees"} {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.SetParallelism(8)
				b.ReportAllocs()
				var seed, unread atomic.Uint64
				before := processor()
				b.RunParallel(func(pb *testing.PB) {
					r := rand.New(rand.NewPCG(seed.Add(1), 5))
					var out query.Unreads
					for pb.Next() {
						user := 1<<40 + 3*r.Uint64N(users/3) + uint64(group)
						err := reader().Unread(context.Background(), []uint64{user}, nil, &out, true)
						if err == nil && len(out.Missing) > 0 {
							err = errors.New("missing")
						}
						if err != nil {
							b.Error(err)
							return
						}
						unread.Add(out.Users[0].Feed)
					}
				})
				b.ReportMetric(float64((processor()-before).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
				b.ReportMetric(float64(unread.Load())/float64(b.N), "unread/user")
			})
		}
	}
	poll(b, "in place", func() query.Reader { return whole })
	for _, n := range []int{1, 2, 4} {
		c := w.nodes(b, n, 1)
		reader, err := spread.New(querytest.Connect(b, c.server), spread.Options{Schema: w.schema, Directory: c})
		if err != nil {
			b.Fatal(err)
		}
		poll(b, fmt.Sprint(n, " holders"), func() query.Reader { return reader.Far(0, time.Now()) })
		if err := reader.Close(); err != nil {
			b.Error(err)
		}
	}
}
