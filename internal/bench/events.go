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
	actor, author := 1+c.r.Uint64N(users), 1+c.r.Uint64N(users)
	post := firstPost + c.posts.Uint64()
	field := func(name string, value uint64) {
		body = append(append(append(body, ',', '"'), name...), '"', ':')
		body = strconv.AppendUint(body, value, 10)
	}
	begin := func(name string) {
		kind = name
		body = append(append(append(body, `{"type":"`...), name...), '"')
		field("actor", actor)
	}
	switch n := c.r.IntN(100); {
	case n < 55:
		begin("like")
		field("post", post)
		field("author", author)
	case n < 70:
		begin("comment")
		field("post", post)
		field("author", author)
	case n < 80:
		begin("post")
		field("post", firstNew+c.r.Uint64N(1<<40))
	case n < 95:
		begin("post")
		field("post", firstNew+c.r.Uint64N(1<<40))
		field("repost_of", post)
		field("author", author)
	default:
		begin("mention")
		field("target", author)
	}
	field("at", 1_341_286_912_000)
	return kind, append(body, '}')
}

// fill publishes n events, so many a message, and returns the number of
// messages.
func fill(ctx context.Context, nc *nats.Conn, n, pack int) (messages int, err error) {
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
	c := newCommunity(1)
	var body bytes.Buffer
	for ; messages < n/pack; messages++ {
		body.Reset()
		kind := ""
		for line := range pack {
			if line > 0 {
				body.WriteByte('\n')
			}
			var event []byte
			kind, event = c.event(body.AvailableBuffer())
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
