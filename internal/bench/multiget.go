package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	getIDs  = 500 // in one question
	askers  = 8   // goroutines that ask, each on a connection of its own
	likesAt = 2   // the column "like" among columns
)

// asker asks for the posts at some places, and gives the sum of all counts in
// the answer.
type asker func(at []uint64) (sum int64, err error)

// overNATS asks Tidemark for columns.
func overNATS(ctx context.Context, c *client.Client, columns []string) asker {
	ids := make([]uint64, getIDs)
	return func(at []uint64) (sum int64, err error) {
		for i, place := range at {
			ids[i] = postID(place)
		}
		reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns})
		for _, row := range reply.Rows {
			for _, v := range row.Values {
				sum += v
			}
		}
		return sum, err
	}
}

// byMGET asks Redis for the keys of as many columns.
func byMGET(ctx context.Context, c *redis.Client, suffixes []string) asker {
	keys := make([]string, 0, getIDs*len(suffixes))
	var key []byte
	return func(at []uint64) (sum int64, err error) {
		keys = keys[:0]
		for _, place := range at {
			key = strconv.AppendUint(key[:0], postID(place), 10)
			for _, suffix := range suffixes {
				keys = append(keys, string(append(key, suffix...)))
			}
		}
		values, err := c.MGet(ctx, keys...).Result()
		for _, v := range values {
			text, _ := v.(string)
			n, _ := strconv.ParseInt(text, 10, 64)
			sum += n
		}
		return sum, err
	}
}

// multiGet asks for 500 posts at a time, of all rows alike, by as many
// goroutines and connections on both sides: the Go client, which speaks the binary
// form, and go-redis. Neither pipelines: each asks when it has its answer. The echo
// answers the Go client with as many bytes, and reads no row.
func (g *growing) multiGet(ctx context.Context) error {
	one := line{
		what: "multi-get over NATS, 500 ids", unit: "ids/s",
		beside: "Redis, MGET of 500 keys", target: ratioAtLeast(10),
	}
	way := line{what: one.what, unit: one.unit, beside: bareEcho}
	three := line{what: "multi-get over NATS, 500 ids, 3 columns", unit: "ids/s", beside: "Redis, MGET of 1,500 keys"}
	some := make([]uint64, getIDs)
	for i := range some {
		some[i] = uint64(i)
	}
	echo, err := g.startEcho(ctx, g.p, asks{"tidemark.get", func(c *client.Client) error {
		_, err := overNATS(ctx, c, columns[likesAt:])(some)
		return err
	}})
	if err != nil {
		return err
	}
	defer echo.stop()
	for range g.size.rounds {
		for _, l := range []struct {
			*line
			columns, suffixes []string
		}{{&one, columns[likesAt:], stringSuffixes[likesAt:]}, {&three, columns, stringSuffixes}} {
			rate, err := g.ask(overNATSTo(ctx, g.p.connect, l.columns), len(l.columns))
			if err != nil {
				return err
			}
			l.ours = append(l.ours, rate)
			if g.strings == nil {
				l.lack = errRedis
				continue
			}
			rate, err = g.ask(func() (asker, io.Closer, error) {
				c := g.strings.connect()
				return byMGET(ctx, c, l.suffixes), c, nil
			}, len(l.columns))
			if err != nil {
				return err
			}
			l.theirs = append(l.theirs, rate)
		}
		rate, err := g.ask(overNATSTo(ctx, func() (*client.Client, error) { return client.Connect(echo.url) }, columns[likesAt:]), unchecked)
		if err != nil {
			return err
		}
		way.theirs = append(way.theirs, rate)
		g.say("multiget: %s ids a second, Redis %s, an echo %s; 3 columns %s, %s", last(one.ours), last(one.theirs), last(way.theirs), last(three.ours), last(three.theirs))
	}
	way.ours = one.ours
	g.table.add(one)
	g.table.add(way)
	g.table.add(three)
	return nil
}

// overNATSTo connects an asker.
func overNATSTo(ctx context.Context, connect func() (*client.Client, error), columns []string) func() (asker, io.Closer, error) {
	return func() (asker, io.Closer, error) {
		c, err := connect()
		if err != nil {
			return nil, nil, err
		}
		return overNATS(ctx, c, columns), closer(c.Close), nil
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

// unchecked is the number of columns of answers that are not compared.
const unchecked = 0

// ask has all askers ask for a while, and gives ids a second. Each answer is
// compared by its sum.
func (g *growing) ask(connect func() (asker, io.Closer, error), columns int) (perSecond float64, err error) {
	var work errgroup.Group
	asked := make([]int, askers)
	begun := time.Now()
	until := begun.Add(g.size.ask)
	for n := range askers {
		work.Go(func() error {
			ask, connection, err := connect()
			if err != nil {
				return err
			}
			defer connection.Close()
			r := rand.New(rand.NewPCG(uint64(n), 1))
			at := make([]uint64, getIDs)
			for time.Now().Before(until) {
				for i := range at {
					at[i] = r.Uint64N(uint64(g.rows))
				}
				sum, err := ask(at)
				if err != nil {
					return err
				}
				// The sum costs as much to know as to ask: now and then.
				if columns != unchecked && asked[n]%100 == 0 && sum != sumOf(at, columns) {
					return fmt.Errorf("a multi-get's counts sum up to %d, not %d", sum, sumOf(at, columns))
				}
				asked[n]++
			}
			return nil
		})
	}
	err = work.Wait()
	total := 0
	for _, n := range asked {
		total += n * getIDs
	}
	return float64(total) / time.Since(begun).Seconds(), err
}

// sumOf is what the last columns of some posts sum up to.
func sumOf(at []uint64, columns int) (sum int64) {
	for _, place := range at {
		all := countsOf(place)
		for _, v := range all[len(all)-columns:] {
			sum += v
		}
	}
	return sum
}
