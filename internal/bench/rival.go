package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

// The rival is what a team would write that counts in Redis: it reads EVENTS
// by an ordered consumer, decodes each event, and does one HINCRBY for every
// change that the default rules derive from it, in pipelines over several
// connections. It remembers no position and keeps no list of posts, which
// Tidemark does: it is spared the work.

// rivalEvent is what the rules look at.
type rivalEvent struct {
	Type     string `json:"type"`
	Actor    uint64 `json:"actor"`
	Post     uint64 `json:"post"`
	RepostOf uint64 `json:"repost_of"`
	Author   uint64 `json:"author"`
	Target   uint64 `json:"target"`
}

// changes are the default rules, by hand (see TestRivalCountsTheSame).
func (e *rivalEvent) changes(add func(counter string, id uint64, column string)) {
	unread := func(id uint64, column string) {
		if id != e.Actor {
			add("unread", id, column)
		}
	}
	switch e.Type {
	case "post":
		add("user", e.Actor, "post")
		if e.RepostOf == 0 {
			add("user", e.Actor, "original")
			return
		}
		add("post", e.RepostOf, "repost")
		add("user", e.Author, "reposted")
		unread(e.Author, "repost")
	case "comment":
		add("post", e.Post, "comment")
		add("user", e.Author, "commented")
		unread(e.Author, "comment")
	case "like":
		add("post", e.Post, "like")
		add("user", e.Author, "liked")
		unread(e.Author, "like")
	case "mention":
		add("user", e.Target, "mentioned")
		unread(e.Target, "mention")
	}
}

const (
	rivalBatch       = 100 // events in a pipeline: some 300 commands
	rivalConnections = 2
)

// redisKey is a counter's row: a hash of its columns.
func redisKey(counter string, id uint64) string { return counter + ":" + strconv.FormatUint(id, 10) }

// countIntoRedis stops the clock when the last pipeline is answered.
func (l *backlog) countIntoRedis(ctx context.Context, s *redisServer) (time.Duration, error) {
	if err := s.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	runtime.GC()
	begun := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	batches := make(chan [][]byte, rivalConnections)
	for range rivalConnections {
		work.Go(func() error {
			connection := s.connect()
			defer connection.Close()
			for batch := range batches {
				if err := increment(ctx, connection, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	work.Go(func() error {
		defer close(batches)
		return l.batches(ctx, batches)
	})
	err := work.Wait()
	return time.Since(begun), err
}

// batches reads the stream and hands its bodies on, some at a time.
func (l *backlog) batches(ctx context.Context, to chan<- [][]byte) error {
	var batch [][]byte
	hand := func() error {
		select {
		case to <- batch:
			batch = make([][]byte, 0, rivalBatch)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := l.messagesOf(ctx, func(m jetstream.Msg) error {
		if batch = append(batch, m.Data()); len(batch) < rivalBatch {
			return nil
		}
		return hand()
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return hand()
}

// increment is one pipeline.
func increment(ctx context.Context, to *redis.Client, batch [][]byte) error {
	pipe := to.Pipeline()
	for _, body := range batch {
		var e rivalEvent
		if err := json.Unmarshal(body, &e); err != nil {
			return err
		}
		e.changes(func(counter string, id uint64, column string) {
			pipe.HIncrBy(ctx, redisKey(counter, id), column, 1)
		})
	}
	_, err := pipe.Exec(ctx)
	return err
}

// compare asks both for some rows: the faster one must count the same.
func compare(ctx context.Context, c *client.Client, s *redisServer) error {
	r := rand.New(rand.NewPCG(3, 4))
	drawn := newCommunity(1)
	for counter, draw := range map[string]func() uint64{
		"post":   func() uint64 { return firstPost + drawn.posts.Uint64() },
		"user":   func() uint64 { return 1 + r.Uint64N(users) },
		"unread": func() uint64 { return 1 + r.Uint64N(users) },
	} {
		ids := make([]uint64, 200)
		for i := range ids {
			ids[i] = draw()
		}
		reply, err := c.Get(ctx, client.GetRequest{Counter: counter, IDs: ids})
		if err != nil {
			return err
		}
		for i, id := range ids {
			row, err := s.HGetAll(ctx, redisKey(counter, id)).Result()
			if err != nil {
				return err
			}
			for column, value := range reply.Map(i) {
				theirs, _ := strconv.ParseInt(row[column], 10, 64)
				if theirs != value {
					return fmt.Errorf("%s.%s of %d is %d, and %d in Redis", counter, column, id, value, theirs)
				}
			}
		}
	}
	return nil
}
