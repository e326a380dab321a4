package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// errRedis stands in lines that would need it.
const errRedis = "no redis-server in PATH: apt install redis-server"

// findRedis is the path of redis-server, "" when there is none.
func findRedis() string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ""
	}
	return path
}

var redisVersionPattern = regexp.MustCompile(`v=(\S+)`)

// redisVersion is what redis-server says of itself.
func redisVersion(path string) string {
	out, err := exec.Command(path, "--version").Output()
	if m := redisVersionPattern.FindSubmatch(out); err == nil && m != nil {
		return string(m[1])
	}
	return "of unknown version"
}

// redisServer is a server on a free port of 127.0.0.1, in memory alone.
type redisServer struct {
	*redis.Client
	*child
	address string
	dir     string
}

// redisWithin bounds the start of an empty server.
const redisWithin = 10 * time.Second

func (b *bench) startRedis(ctx context.Context) (*redisServer, error) {
	dir, err := os.MkdirTemp(b.dir, "redis-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	p, err := b.children.start(dir+"/log", nil, b.redis,
		"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	s := &redisServer{child: p, dir: dir, address: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	s.Client = s.connect()
	for deadline := time.Now().Add(redisWithin); ; time.Sleep(5 * time.Millisecond) {
		err = s.Ping(ctx).Err()
		if err == nil {
			return s, nil
		}
		if ended := p.ended(); ended != nil || time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("start redis-server: %w", errors.Join(err, ended))
		}
	}
}

// connect is a client of one connection.
func (s *redisServer) connect() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.address, PoolSize: 1, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
}

// memory is Redis's own figure of what it has allocated.
func (s *redisServer) memory(ctx context.Context) (float64, error) {
	info := s.InfoMap(ctx, "memory")
	used, err := strconv.ParseFloat(info.Item("Memory", "used_memory"), 64)
	return used, errors.Join(info.Err(), err)
}

// settle ends what growing has left behind: while Redis moves its keys to a
// larger table, it holds both and looks into both. Each look moves one bucket,
// and the old table has no more buckets than there are keys.
func (s *redisServer) settle(ctx context.Context) error {
	keys, err := s.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	same := make([]string, 1000)
	for i := range same {
		same[i] = "x"
	}
	for done := int64(0); done < keys; {
		pipe := s.Pipeline()
		for range 10 {
			pipe.Exists(ctx, same...)
			done += int64(len(same))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the server; there is nothing to keep.
func (s *redisServer) stop() {
	s.Close()
	s.end(syscall.SIGKILL)
	os.RemoveAll(s.dir)
}
