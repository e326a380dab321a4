package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/tidemark-io/tidemark/query/client"
)

// likesOf is the question for the likes of the i-th post.
func likesOf(i int) (ids []uint64) { return []uint64{postID(uint64(i))} }

// gets asks for one count of one post.
func (s *small) gets(ctx context.Context) error {
	ask := func(url string, check bool) func() (call, io.Closer, error) {
		return func() (call, io.Closer, error) {
			c, err := client.Connect(url)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, r *rand.Rand) error {
				i := r.Uint64N(uint64(s.size.asked))
				reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{postID(i)}, Columns: columns[likesAt:]})
				if err != nil {
					return err
				}
				got, _ := reply.Value(0, columns[likesAt])
				if want := countsOf(i)[likesAt]; check && got != want {
					return fmt.Errorf("post %d has %d likes and the answer says %d", postID(i), want, got)
				}
				return nil
			}, closer(c.Close), nil
		}
	}
	getRedis := func() (call, io.Closer, error) {
		c := s.redis.connect()
		return func(ctx context.Context, r *rand.Rand) error {
			i := r.Uint64N(uint64(s.size.asked))
			got, err := c.Get(ctx, strconv.FormatUint(postID(i), 10)+stringSuffixes[likesAt]).Int64()
			if want := countsOf(i)[likesAt]; err == nil && got != want {
				err = fmt.Errorf("post %d has %d likes and Redis says %d", postID(i), want, got)
			}
			return err
		}, c, nil
	}
	t, err := s.turns(ctx, "gets", ask(s.p.url, true), ask(s.echo.url, false), getRedis)
	if err != nil {
		return err
	}
	const what = "single gets, 64 callers"
	s.rates(what, "gets/s", "Redis, GET", t, target{})
	return nil
}
