package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// errRedis is what the table says without it.
const errRedis = "no redis-server in PATH: apt install redis-server"

// redisServer is a Redis of the run's own, in memory alone. Its keys are as short as a
// careful team makes them.
type redisServer struct {
	*redis.Client
	*child
	address string
}

var suffixes = []string{".cntrn", ".cntcm", ".cntan"} // by column

// startRedis starts one; nil: there is no such program.
func (b *bench) startRedis() *redisServer {
	if b.redis == "" {
		return nil
	}
	s := &redisServer{address: freeAddress()}
	_, port, _ := net.SplitHostPort(s.address)
	dir := must(os.MkdirTemp(b.dir, "redis-"))
	s.child = b.children.start(dir+"/log", b.redis, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	s.Client = s.connect()
	s.until("start redis-server", 5*time.Millisecond, func() error { return s.Ping(ctx).Err() })
	return s
}

// connect is a client of one connection.
func (s *redisServer) connect() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.address, PoolSize: 1, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
}

// memory is Redis's own figure of what it has allocated.
func (s *redisServer) memory() float64 {
	if s == nil {
		return 0
	}
	return must(strconv.ParseFloat(s.InfoMap(ctx, "memory").Item("Memory", "used_memory"), 64))
}

// load sets a key for each counter of the posts [from, to).
func (s *redisServer) load(from, to int) {
	const batch = 1000 // posts
	for ; s != nil && from < to; from += batch {
		var pairs []any
		for i := from; i < min(from+batch, to); i++ {
			for j, value := range countsOf(uint64(i)) {
				pairs = append(pairs, strconv.FormatUint(postID(uint64(i)), 10)+suffixes[j], value)
			}
		}
		check(s.MSet(ctx, pairs...).Err())
	}
}

// mget is a caller that asks for the likes of n of the first posts, and compares one.
func (s *redisServer) mget(n, posts int) func() (call, func()) {
	return func() (call, func()) {
		c, keys := s.connect(), make([]string, n)
		return func(r *rand.Rand) error {
			at := uint64(0)
			for i := range keys {
				at = r.Uint64N(uint64(posts))
				keys[i] = strconv.FormatUint(postID(at), 10) + suffixes[2]
			}
			values, err := c.MGet(ctx, keys...).Result()
			if want := strconv.FormatInt(countsOf(at)[2], 10); err == nil && values[n-1] != want {
				err = fmt.Errorf("post %d has %s likes and Redis says %v", postID(at), want, values[n-1])
			}
			return err
		}, func() { c.Close() }
	}
}

// stop ends the server; there is nothing to keep.
func (s *redisServer) stop() {
	if s != nil {
		s.Close()
		s.end(syscall.SIGKILL)
	}
}
