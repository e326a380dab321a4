package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// lists is whether an event costs more when much of its kind is there already:
// posts of one author beside as many authors with one each, and the last tenth
// of one user's follows beside the first.
func (b *bench) lists(ctx context.Context) error {
	p, c, err := b.launch(ctx, "")
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	l := &listing{b, p, c, 0}
	for _, n := range b.size.lists {
		b.say("lists: of %s", number(float64(n)))
		posts := line{
			what: fmt.Sprintf("%s posts by one author", number(float64(n))), unit: "s",
			beside: "by as many authors", target: ratioAtMost(1.5),
		}
		follows := line{
			what: fmt.Sprintf("the last %s of %s follows by one user", number(float64(n/10)), number(float64(n))), unit: "s",
			beside: "the first of them", target: ratioAtMost(1.5),
		}
		for range b.size.rounds {
			if err := l.posts(ctx, n, &posts); err != nil {
				return fmt.Errorf("posts: %w", err)
			}
			if err := l.follows(ctx, n, &follows); err != nil {
				return fmt.Errorf("follows: %w", err)
			}
			b.say("lists: posts %s s beside %s s, follows %s s beside %s s", last(posts.ours), last(posts.theirs), last(follows.ours), last(follows.theirs))
		}
		b.table.add(posts)
		b.table.add(follows)
	}
	return nil
}

// listing is one program whose users come new with each round.
type listing struct {
	*bench
	p     *program
	c     *client.Client
	drawn uint64 // ids taken so far
}

// id is one that nothing has had before.
func (l *listing) id() uint64 {
	l.drawn++
	return 1<<62 | pipeline.Mix(l.drawn)>>2
}

// posts adds a round of both.
func (l *listing) posts(ctx context.Context, n int, to *line) error {
	author := l.id()
	one, err := l.time(ctx, n, func(int) client.Event { return client.Post(author, l.id()) })
	if err != nil {
		return err
	}
	if err := l.is(ctx, author, "post", n); err != nil {
		return err
	}
	many, err := l.time(ctx, n, func(int) client.Event { return client.Post(l.id(), l.id()) })
	to.ours, to.theirs = append(to.ours, one), append(to.theirs, many)
	return err
}

// follows adds a round of the last and the first.
func (l *listing) follows(ctx context.Context, n int, to *line) error {
	user, tenth := l.id(), n/10
	follow := func(int) client.Event { return client.Follow(user, l.id()) }
	first, err := l.time(ctx, tenth, follow)
	if err != nil {
		return err
	}
	if _, err := l.time(ctx, n-2*tenth, follow); err != nil {
		return err
	}
	last, err := l.time(ctx, tenth, follow)
	if err != nil {
		return err
	}
	to.ours, to.theirs = append(to.ours, last), append(to.theirs, first)
	return l.is(ctx, user, "following", n)
}

// time publishes so many events, when the program has nothing else to do, and
// gives the seconds until all are answered.
func (l *listing) time(ctx context.Context, n int, event func(i int) client.Event) (seconds float64, err error) {
	lines := make([][]byte, n) // made before: making them is not the subject
	for i := range lines {
		if lines[i], err = event(i).AppendJSON(nil); err != nil {
			return 0, err
		}
	}
	if err := l.p.settle(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	err = feedLines(ctx, l.c, func(add func([]byte) error) error {
		for _, body := range lines {
			if err := add(body); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(begun).Seconds(), err
}

// is compares a user's count with what was published.
func (l *listing) is(ctx context.Context, user uint64, column string, want int) error {
	reply, err := l.c.Get(ctx, client.GetRequest{Counter: "user", IDs: []uint64{user}, Columns: []string{column}})
	if err != nil {
		return err
	}
	if got, _ := reply.Value(0, column); got != int64(want) {
		return fmt.Errorf("user.%s of %d is %d in the answer, not %d", column, user, got, want)
	}
	return nil
}
