package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/query/client"
)

// store is one program whose rows grow from measurement to measurement, and a Redis with
// the same counts.
type store struct {
	*bench
	p     *program
	c     *client.Client
	redis *redisServer // nil without the program
	rows  int
}

// rows measures all that needs many rows.
func (b *bench) rows() {
	s := &store{bench: b, redis: b.startRedis()}
	s.p, s.c = b.launch("")
	defer s.p.discard()
	defer s.redis.stop()
	if slices.ContainsFunc([]string{"memory", "disk", "multiget", "http", "restart", "pause"}, func(name string) bool { return b.wanted[name] }) {
		s.memory()
	}
	if b.wanted["disk"] {
		b.table.add(line{what: "on disk, a post row of 3 columns", unit: "bytes", ours: sample{s.p.rest() / float64(s.rows)}, target: atMost(9.3)})
	}
	for _, m := range []struct {
		name string
		run  func()
	}{{"multiget", s.multiGet}, {"http", s.http}, {"restart", s.restart}, {"pause", s.pause}, {"members", s.members}} {
		if b.wanted[m.name] {
			m.run()
		}
	}
}

// memory is bytes a row at growing numbers of rows, of which the largest counts, beside
// Redis with a key for each counter: all that it allocates more than when it was empty.
func (s *store) memory() {
	var each, theirs sample
	var by []string
	empty := s.redis.memory()
	for _, rows := range []int{s.size.rows / 4, s.size.rows / 2, s.size.rows} {
		s.say("rows: to %d", rows)
		publishRows(s.c, s.rows, rows)
		s.redis.load(s.rows, rows)
		s.rows = rows
		figures := s.p.figures()
		if held := figures[`tidemark_rows{counter="post"}`]; int(held) != rows {
			check(fmt.Errorf("%v post rows are in memory, %d were published", held, rows))
		}
		each = append(each, figures[`tidemark_row_bytes{counter="post"}`]/float64(rows))
		if s.redis != nil {
			theirs = append(theirs, (s.redis.memory()-empty)/float64(rows))
		}
		by = append(by, fmt.Sprintf("%s with %s rows", each.last(), number(float64(rows))))
	}
	if s.wanted["memory"] {
		s.table.add(line{
			what: "memory, a post row of 3 columns", unit: "bytes", ours: sample{slices.Max(each)},
			beside: "Redis, a key for each counter", theirs: theirs, target: atMost(14.3),
		})
		s.table.note("memory: bytes a row are %s.", strings.Join(by, ", "))
	}
}

// multiGet asks for 500 posts at a time, by 8 callers: of the program, of an echo of the same
// answers, and of Redis. Nobody pipelines: each asks when it has its answer.
func (s *store) multiGet() {
	const askers = 8
	echo, address := s.echo(s.p)
	defer echo.end(syscall.SIGKILL)
	way := line{what: "multi-get over NATS, 500 ids", unit: "ids/s", beside: bareEcho, target: ratioAtLeast(0.6)}
	beside := line{what: way.what, unit: way.unit, beside: "Redis, MGET of 500 keys", target: ratioAtLeast(6)}
	// The echo has one answer: who asks it draws as the others do, and asks for the same.
	same := getOf(manyIDs, like, func(i int, r *rand.Rand) uint64 {
		r.Uint64N(uint64(s.rows))
		return uint64(i)
	})
	for range s.size.rounds {
		way.ours = append(way.ours, manyIDs*callFor(askers, s.size.round, to(s.p.url, get(manyIDs, s.rows, like))))
		way.theirs = append(way.theirs, manyIDs*callFor(askers, s.size.round, to(address, same)))
		if s.redis != nil {
			beside.theirs = append(beside.theirs, manyIDs*callFor(askers, s.size.round, s.redis.mget(manyIDs, s.rows)))
		}
	}
	beside.ours = way.ours
	s.say("multiget: %s ids a second, an echo %s, Redis %s", way.ours.last(), way.theirs.last(), beside.theirs.last())
	s.table.add(way, beside)
}

// http asks for the same 500 posts by one caller over HTTP and over NATS, both in JSON.
func (s *store) http() {
	ids := make([]string, manyIDs)
	for i := range ids {
		ids[i] = strconv.FormatUint(postID(uint64(i)), 10)
	}
	out := line{what: "HTTP get of 500", unit: "gets/s", beside: "the same over NATS", target: ratioAtLeast(0.9)}
	path := "/v1/get/post/" + strings.Join(ids, ",") + "?columns=like"
	body := fmt.Appendf(nil, `{"counter":"post","ids":["%s"],"columns":["like"]}`, strings.Join(ids, `","`))
	nc := must(nats.Connect(s.p.url))
	defer nc.Close()
	for range s.size.rounds {
		out.ours = append(out.ours, callFor(1, s.size.round, func() (call, func()) {
			return func(*rand.Rand) error { return caught(func() { s.p.page(path) }) }, func() {}
		}))
		out.theirs = append(out.theirs, callFor(1, s.size.round, func() (call, func()) {
			return func(*rand.Rand) error {
				m, err := nc.Request("tidemark.get", body, time.Minute)
				if err == nil && m.Header.Get("Nats-Service-Error") != "" {
					err = fmt.Errorf("%v", m.Header)
				}
				return err
			}, func() {}
		}))
	}
	s.say("http: %s gets a second, NATS %s", out.ours.last(), out.theirs.last())
	s.table.add(out)
}

// restart measures from the start of the process until the first right answer over NATS,
// and until all rows are in memory; after an orderly end and after kill -9.
func (s *store) restart() {
	rows := number(float64(s.rows))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		how := "restart with " + rows + " post rows"
		if signal == syscall.SIGKILL {
			how = "the same after kill -9"
		}
		first := line{what: how + ", first right answer", unit: "s", target: atMost(0.3)}
		warm := line{what: how + ", warm", unit: "s", target: atMost(1.5)}
		for range s.size.rounds {
			s.c.Close()
			s.p.end(signal)
			s.p.spawn()
			s.p.until("wait for an answer", time.Millisecond, func() (err error) {
				if s.c, err = client.Connect(s.p.url, nats.NoReconnect()); err == nil {
					err = get(10, s.rows, columns)(s.c, rand.New(rand.NewPCG(1, 1)))
				}
				return err
			})
			first.ours = append(first.ours, time.Since(s.p.begun).Seconds())
			s.p.until("wait until all rows are in memory", 5*time.Millisecond, func() error {
				return caught(func() {
					if held := s.p.figures()[`tidemark_rows{counter="post"}`]; int(held) < s.rows {
						check(fmt.Errorf("%v rows are in memory", held))
					}
				})
			})
			warm.ours = append(warm.ours, time.Since(s.p.begun).Seconds())
		}
		s.say("%s: %s s to the first answer, %s s to be warm", how, first.ours.last(), warm.ours.last())
		s.table.add(first, warm)
	}
}

// pause is how long the garbage collector stops the program at most, while it holds many
// rows, takes events and answers.
func (s *store) pause() {
	s.beside(s.p, "producers", func() (took sample) {
		callFor(2, 5*s.size.round, to(s.p.url, get(manyIDs, s.rows, like)))
		return nil
	})
	longest := 1000 * s.p.figures()[`go_gc_duration_seconds{quantile="1"}`]
	s.table.add(line{what: "longest GC pause, beside producers and multi-gets", unit: "ms", ours: sample{longest}, target: atMost(2)})
}

// members are those of the sets of likes: what one takes in memory and on disk, its part of
// the rows included, beside the like as JSON.
func (s *store) members() {
	held := func() (n, bytes float64) {
		figures := s.p.figures()
		return figures[`tidemark_entries{kind="members"}`], figures[`tidemark_entry_bytes{kind="members"}`]
	}
	n, bytes := held()
	disk, json := s.p.rest(), 0
	hot := rand.NewZipf(rand.New(rand.NewPCG(4, 4)), 1.1, 10, postsToLike)
	publish(s.c, func(add func([]byte)) {
		for i := range s.size.members {
			_, body := event(0, 1+uint64(i), 1, firstPost+hot.Uint64(), 0)
			json += len(body)
			add(body)
		}
	})
	now, taken := held()
	n, bytes, disk = now-n, taken-bytes, s.p.rest()-disk
	s.table.add(
		line{what: "a member of a set, memory", unit: "bytes", ours: sample{bytes / n}, target: atMost(12)},
		line{what: "a member of a set, on disk", unit: "bytes", ours: sample{disk / n}, beside: "the like, as JSON", theirs: sample{float64(json) / float64(s.size.members)}, target: atMost(6)})
	s.table.note("members: %s likes have %s members.", number(float64(s.size.members)), number(n))
}
