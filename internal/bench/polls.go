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

// callers ask at once, each on a connection of its own.
const callers = 64

// small are the two smallest questions: what one user has not looked at yet,
// and one count of one post. One program answers both; beside it are an echo of
// the same answers, and Redis.
type small struct {
	*bench
	p     *program
	echo  *echoServer
	redis *redisServer // nil without Redis
}

// small measures what 64 callers get of small questions.
func (b *bench) small(ctx context.Context) error {
	b.say("polls, gets: to %s users who follow %d and as many who follow %d, and %s post rows",
		number(float64(b.size.pollers)), allPollers[0].follow, allPollers[1].follow, number(float64(b.size.asked)))
	p, c, err := b.launch(ctx, "")
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	s := &small{bench: b, p: p}
	if b.redis != "" {
		if s.redis, err = b.startRedis(ctx); err != nil {
			return err
		}
		defer s.redis.stop()
	}
	if err := s.load(ctx, c); err != nil {
		return err
	}
	get, err := getOf(likesOf(b.size.asked / 2))
	if err != nil {
		return err
	}
	if s.echo, err = b.startEcho(ctx, c, get, unreadOf([]uint64{allPollers[0].user(0)})); err != nil {
		return err
	}
	defer s.echo.stop()
	if b.wanted["polls"] {
		for _, group := range allPollers {
			if err := s.polls(ctx, group); err != nil {
				return fmt.Errorf("polls: %w", err)
			}
		}
	}
	if b.wanted["gets"] {
		if err := s.gets(ctx); err != nil {
			return fmt.Errorf("gets: %w", err)
		}
	}
	return nil
}

// The pollers and those they follow are users of this measurement's own.
const (
	firstFollowed = 1 << 44
	firstPolled   = 4_000_000_000_000_000 // posts
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

// load makes authors with a post each, who then are followed, and then one in
// fifty publishes another; and post rows. Redis gets the same.
func (s *small) load(ctx context.Context, c *client.Client) error {
	authors := s.size.polled
	err := feedLines(ctx, c, func(add func([]byte) error) error {
		var buffer []byte
		event := func(e client.Event) (err error) {
			if buffer, err = e.AppendJSON(buffer[:0]); err != nil {
				return err
			}
			return add(buffer)
		}
		for a := range authors {
			if err := event(client.Post(firstFollowed+uint64(a), firstPolled+uint64(a))); err != nil {
				return err
			}
		}
		for _, group := range allPollers {
			for i := range s.size.pollers {
				for _, a := range group.followed(i, authors) {
					if err := event(client.Follow(group.user(i), firstFollowed+uint64(a))); err != nil {
						return err
					}
				}
			}
		}
		for a := 0; a < authors; a += newOf {
			if err := event(client.Post(firstFollowed+uint64(a), firstPolled+uint64(authors+a))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := loadRows(ctx, c, 0, s.size.asked); err != nil {
		return err
	}
	if err := s.p.settle(ctx); err != nil {
		return err
	}
	if s.redis == nil {
		return nil
	}
	if err := loadStrings(ctx, s.redis, 0, s.size.asked); err != nil {
		return err
	}
	if err := s.loadSnapshots(ctx); err != nil {
		return err
	}
	return s.redis.settle(ctx)
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
	for _, q := range []struct {
		name string
		q    float64
		target
	}{{"p50", 0.5, target{}}, {"p99", 0.99, target{}}, {"p99.99", 0.9999, atMost(10)}} {
		s.quantiles(what+", "+q.name, q.q, besides, t, q.target)
	}
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
	s.quantiles(what+", p99", 0.99, "Redis, GET", t, target{})
	return nil
}

// turns are the rounds of the program, the echo and Redis.
type turns struct{ ours, echo, redis []tally }

// turns has callers call each of them in every round.
func (s *small) turns(ctx context.Context, what string, ours, echo, redis func() (call, io.Closer, error)) (t turns, err error) {
	for range s.size.rounds {
		for _, one := range []struct {
			to      *[]tally
			connect func() (call, io.Closer, error)
		}{{&t.echo, echo}, {&t.ours, ours}, {&t.redis, redis}} {
			if s.redis == nil && one.to == &t.redis {
				continue
			}
			got, err := callFor(ctx, callers, s.size.ask, one.connect)
			if err != nil {
				return t, err
			}
			*one.to = append(*one.to, got)
		}
		s.say("%s: %s a second, an echo %s, Redis %s", what, last(ratesOf(t.ours)), last(ratesOf(t.echo)), last(ratesOf(t.redis)))
	}
	return t, nil
}

func ratesOf(all []tally) (s sample) {
	for _, one := range all {
		s = append(s, one.perSecond)
	}
	return s
}

// quantilesOf are one of each round.
func quantilesOf(all []tally, q float64) (s sample) {
	for _, one := range all {
		s = append(s, one.took.quantile(q))
	}
	return s
}

// together is the quantile of all rounds' calls: of the rarest there are too
// few in one. It is empty where there is no round.
func together(all []tally, q float64) sample {
	var took sample
	for _, one := range all {
		took = append(took, one.took...)
	}
	if len(took) == 0 {
		return nil
	}
	return sample{took.quantile(q)}
}

const bareEcho = "a bare echo of the same answers"

// rates adds how many a second, beside both; the target is for the echo.
func (s *small) rates(what, unit, redis string, t turns, beside target) {
	s.table.add(line{what: what, unit: unit, ours: ratesOf(t.ours), beside: bareEcho, theirs: ratesOf(t.echo), target: beside})
	s.addRedis(line{what: what, unit: unit, ours: ratesOf(t.ours), beside: redis, theirs: ratesOf(t.redis)})
}

// quantiles adds how long they took, beside both.
func (s *small) quantiles(what string, q float64, redis string, t turns, bound target) {
	l := line{what: what, unit: "ms", ours: together(t.ours, q), among: quantilesOf(t.ours, q), target: bound}
	l.beside, l.theirs = bareEcho, together(t.echo, q)
	s.table.add(l)
	l.beside, l.theirs, l.target = redis, together(t.redis, q), target{}
	s.addRedis(l)
}

func (s *small) addRedis(l line) {
	if s.redis == nil {
		l.lack = errRedis
	}
	s.table.add(l)
}
