package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
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

// readRows is the one place that asks a reader for rows in process.
func readRows(ctx context.Context, r query.Reader, columns []pipeline.Column, ids []uint64, rows *query.Rows) error {
	const post = 0 // the first counter of the default configuration
	return r.Rows(ctx, post, columns, ids, rows, true)
}

// inProcess reads 500 ids at a time from a node within this process, by one
// goroutine: that is one core. Beside it: a Go map of the same rows.
func (b *bench) inProcess(ctx context.Context) error {
	b.say("inprocess: to %s post rows", number(float64(b.size.inProcess)))
	dir, err := os.MkdirTemp(b.dir, "inprocess-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := twin.EveryTime(config.Default())
	c.DataDir, c.HTTP.Listen, c.NATS.Listen, c.Limits.TimeoutMax = filepath.Join(dir, "data"), "", "127.0.0.1:0", applyWithin
	n, err := node.Start(ctx, c, node.Options{Version: "0.0.0", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	defer n.Close()
	loading, err := client.Connect(n.URL())
	if err != nil {
		return err
	}
	defer loading.Close()
	if err := loadRows(ctx, loading, 0, b.size.inProcess); err != nil {
		return err
	}
	schema, err := c.Schema()
	if err != nil {
		return err
	}
	all := make(map[uint64]counts, b.size.inProcess)
	for i := range uint64(b.size.inProcess) {
		all[postID(i)] = countsOf(i)
	}
	visible := schema.Visible(0)
	var rows query.Rows
	values := make([]int64, 0, getIDs*len(columns))
	out := line{what: "multi-get in process, 500 ids, a core", unit: "ids/s", beside: "a Go map of the same rows", target: ratioAtLeast(3)}
	for range b.size.rounds {
		theirs, err := b.readFor(func(ids []uint64) ([]int64, error) {
			values = values[:0]
			for _, id := range ids {
				row := all[id]
				values = append(values, row[:]...)
			}
			return values, nil
		})
		if err != nil {
			return err
		}
		ours, err := b.readFor(func(ids []uint64) ([]int64, error) {
			err := readRows(ctx, n.Reader(), visible, ids, &rows)
			return rows.Values, err
		})
		if err != nil {
			return err
		}
		out.ours, out.theirs = append(out.ours, ours), append(out.theirs, theirs)
		b.say("inprocess: %s ids a second, a Go map %s", last(out.ours), last(out.theirs))
	}
	b.table.add(out)
	return nil
}

// readFor reads for a while, and gives ids a second. Values are those of all
// columns, id by id.
func (b *bench) readFor(read func(ids []uint64) ([]int64, error)) (perSecond float64, err error) {
	const questions = 1024 // drawn before, so that drawing is not measured
	r := rand.New(rand.NewPCG(1, 1))
	at := make([]uint64, questions*getIDs)
	ids := make([]uint64, len(at))
	for i := range at {
		at[i] = r.Uint64N(uint64(b.size.inProcess))
		ids[i] = postID(at[i])
	}
	runtime.GC()
	asked := 0
	begun := time.Now()
	for ; time.Since(begun) < b.size.ask; asked++ {
		from := asked % questions * getIDs
		values, err := read(ids[from : from+getIDs])
		if err != nil {
			return 0, err
		}
		if want := countsOf(at[from]); counts(values[:len(want)]) != want {
			return 0, fmt.Errorf("post %d has %v and the answer says %v", ids[from], want, values[:len(want)])
		}
	}
	return float64(asked*getIDs) / time.Since(begun).Seconds(), nil
}
