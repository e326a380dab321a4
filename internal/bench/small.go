package main

import (
	"context"
	"fmt"
	"io"

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
	s.echo, err = b.startEcho(ctx, p, asks{"tidemark.get", func(c *client.Client) error {
		_, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: likesOf(b.size.asked / 2), Columns: columns[likesAt:]})
		return err
	}}, asks{"tidemark.unread", func(c *client.Client) error {
		_, err := c.Unread(ctx, allPollers[0].user(0))
		return err
	}})
	if err != nil {
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
