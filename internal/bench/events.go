package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// community draws the events of a million users whose posts are liked,
// commented and reposted by Zipf's law: the hot ones merge, the tail does not.
type community struct {
	r     *rand.Rand
	posts *rand.Zipf
}

const (
	users       = 1_000_000
	firstPost   = 1_000_000_000_000_000 // posts that events go to
	firstNew    = 2_000_000_000_000_000 // posts that events publish
	postsToLike = 5_000_000
)

func newCommunity(seed uint64) *community {
	r := rand.New(rand.NewPCG(seed, 2))
	return &community{r, rand.NewZipf(r, 1.1, 10, postsToLike)}
}

// event appends one event, about 100 bytes.
func (c *community) event(body []byte) (kind string, _ []byte) {
	e := event{actor: 1 + c.r.Uint64N(users), author: 1 + c.r.Uint64N(users), post: firstPost + c.posts.Uint64()}
	e.what, e.published = kindOf(c.r.IntN(100)), firstNew+c.r.Uint64N(1<<40)
	return e.append(body)
}

// kind is what an event does.
type kind uint8

const (
	likes kind = iota
	comments
	posts
	reposts
	mentions
	kinds int = iota
)

// kindOf is the kind of n of a hundred events.
func kindOf(n int) kind {
	switch {
	case n < 55:
		return likes
	case n < 70:
		return comments
	case n < 80:
		return posts
	case n < 95:
		return reposts
	}
	return mentions
}

// event is one before it is written; author is the target of a mention.
type event struct {
	what                           kind
	actor, author, post, published uint64
}

// append writes the event, and says which type it has.
func (e event) append(body []byte) (name string, _ []byte) {
	field := func(name string, value uint64) {
		body = append(append(append(body, ',', '"'), name...), '"', ':')
		body = strconv.AppendUint(body, value, 10)
	}
	name = [kinds]string{"like", "comment", "post", "post", "mention"}[e.what]
	body = append(append(append(body, `{"type":"`...), name...), '"')
	field("actor", e.actor)
	switch e.what {
	case likes, comments:
		field("post", e.post)
		field("author", e.author)
	case posts:
		field("post", e.published)
	case reposts:
		field("post", e.published)
		field("repost_of", e.post)
		field("author", e.author)
	case mentions:
		field("target", e.author)
	}
	field("at", 1_341_286_912_000)
	return name, append(body, '}')
}

// source appends the next event, and says which type it has.
type source func(body []byte) (kind string, _ []byte)

// fill publishes n events, so many a message, and returns the number of
// messages.
func fill(ctx context.Context, nc *nats.Conn, n, pack int, next source) (messages int, err error) {
	refused := make(chan error, 1) // the first
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case refused <- err:
			default:
			}
		}))
	if err != nil {
		return 0, err
	}
	var body bytes.Buffer
	for ; messages < n/pack; messages++ {
		body.Reset()
		kind := ""
		for line := range pack {
			if line > 0 {
				body.WriteByte('\n')
			}
			var event []byte
			kind, event = next(body.AvailableBuffer())
			body.Write(event)
		}
		if pack > 1 {
			kind = "pack"
		}
		if _, err := js.PublishAsync("events."+kind, bytes.Clone(body.Bytes()), jetstream.WithStallWait(time.Minute)); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("%d messages are without an acknowledgement", js.PublishAsyncPending())
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case err = <-refused:
	default:
	}
	return messages, err
}
