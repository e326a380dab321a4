package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/query/client"
)

// The pollers and those they follow are users of this measurement's own.
const (
	firstFollowed = 1 << 44
	firstPolled   = 4_000_000_000_000_000 // posts
	followees     = 500                   // of a user
	// newOf: one author in so many has something new.
	newOf = 50
)

// pollers are users who follow so many authors each.
type pollers struct {
	first  uint64
	follow int
}

// allPollers: those who follow as many as in the line about the feed, and those
// who follow so few that the way is nearly all.
var allPollers = [2]pollers{{1 << 43, followees}, {1<<43 + 1<<40, followed}}

func (g pollers) user(i int) uint64 { return g.first + uint64(i) }

// followed are the authors that the i-th follows, by number: no two the same
// as long as there are more authors than that and 37 does not divide their
// number.
func (g pollers) followed(i, authors int) []int {
	all := make([]int, g.follow)
	for j := range all {
		all[j] = (i*7919 + j*37) % authors
	}
	return all
}

// unread is how many posts are new to the i-th.
func (g pollers) unread(i, authors int) (n int) {
	for _, author := range g.followed(i, authors) {
		if author%newOf == 0 {
			n++
		}
	}
	return n
}

// What a team with Redis does: a key counts each author's posts, and a user's
// snapshot has the counts that the user has seen. What is new is the difference.
func countKey(author uint64) string    { return strconv.FormatUint(author, 10) + ".cntfd" }
func snapshotKey(user uint64) string   { return strconv.FormatUint(user, 10) + ".seen" }
func snapshotUser(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func snapshotCount(b []byte) (n int64) { return int64(binary.LittleEndian.Uint32(b[8:])) }

// snapshotBytes: of one author the id, 8 bytes, and the count, 4.
const snapshotBytes = 12

// loadSnapshots sets the counts, and the snapshots from before the last posts.
func (s *small) loadSnapshots(ctx context.Context) error {
	authors := s.size.polled
	pipe := s.redis.Pipeline()
	flush := func(every int) error {
		if pipe.Len() < every {
			return nil
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	for a := range authors {
		count := 1
		if a%newOf == 0 {
			count = 2
		}
		pipe.Set(ctx, countKey(firstFollowed+uint64(a)), count, 0)
		if err := flush(redisBatch); err != nil {
			return err
		}
	}
	for _, group := range allPollers {
		for i := range s.size.pollers {
			snapshot := make([]byte, 0, group.follow*snapshotBytes)
			for _, a := range group.followed(i, authors) {
				snapshot = binary.LittleEndian.AppendUint64(snapshot, firstFollowed+uint64(a))
				snapshot = binary.LittleEndian.AppendUint32(snapshot, 1)
			}
			pipe.Set(ctx, snapshotKey(group.user(i)), snapshot, 0)
			if err := flush(redisBatch); err != nil {
				return err
			}
		}
	}
	return flush(1)
}

// polls asks what one user has not looked at yet.
func (s *small) polls(ctx context.Context, group pollers) error {
	expected := make([]uint64, s.size.pollers)
	for i := range expected {
		expected[i] = uint64(group.unread(i, s.size.polled))
	}
	ask := func(url string, check bool) func() (call, io.Closer, error) {
		return func() (call, io.Closer, error) {
			c, err := client.Connect(url)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, r *rand.Rand) error {
				i := r.IntN(s.size.pollers)
				reply, err := c.Unread(ctx, group.user(i))
				if err != nil {
					return err
				}
				if got := reply.Users[0].Feed; check && got != expected[i] {
					return fmt.Errorf("user %d has %d unread posts and the answer says %d", group.user(i), expected[i], got)
				}
				return nil
			}, closer(c.Close), nil
		}
	}
	pollRedis := func() (call, io.Closer, error) {
		c := s.redis.connect()
		return func(ctx context.Context, r *rand.Rand) error {
			i := r.IntN(s.size.pollers)
			got, err := pollOf(ctx, c, group.user(i))
			if err == nil && got != int64(expected[i]) {
				err = fmt.Errorf("user %d has %d unread posts and Redis says %d", group.user(i), expected[i], got)
			}
			return err
		}, c, nil
	}
	t, err := s.turns(ctx, "polls", ask(s.p.url, true), ask(s.echo.url, false), pollRedis)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("unread polls of users who follow %d, 64 callers", group.follow)
	besides := fmt.Sprintf("Redis, GET and MGET of %d counts", group.follow)
	s.rates(what, "polls/s", besides, t, ratioAtLeast(0.9))
	s.quantiles(what+", p99.99", 0.9999, besides, t, atMost(10))
	return nil
}

// pollOf asks Redis for a user's snapshot, and then for the counts of all who
// are in it: what is new is the difference.
func pollOf(ctx context.Context, c *redis.Client, user uint64) (unread int64, err error) {
	snapshot, err := c.Get(ctx, snapshotKey(user)).Bytes()
	if err != nil {
		return 0, err
	}
	keys := make([]string, 0, len(snapshot)/snapshotBytes)
	for entry := range slices.Chunk(snapshot, snapshotBytes) {
		keys = append(keys, countKey(snapshotUser(entry)))
		unread -= snapshotCount(entry)
	}
	counts, err := c.MGet(ctx, keys...).Result()
	for _, count := range counts {
		text, _ := count.(string)
		n, _ := strconv.ParseInt(text, 10, 64)
		unread += n
	}
	return unread, err
}
