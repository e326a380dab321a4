package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/query/client"
)

// growing is one program whose post rows grow from measurement to measurement,
// with two Redis servers that hold the same counts.
type growing struct {
	*bench
	p       *program
	c       *client.Client
	rows    int
	hot     bool         // there are size.hot rows
	strings *redisServer // a key for each counter; nil without Redis
	hashes  *redisServer // a hash for each post
}

// rows measures all that needs many rows, in ascending order of rows.
func (b *bench) rows(ctx context.Context) (err error) {
	// Nothing but complaints in the log: pauses are read from it.
	g := &growing{bench: b}
	if g.p, g.c, err = b.launch(ctx, "log: {level: error}\n"); err != nil {
		return err
	}
	defer g.p.discard()
	defer func() { g.c.Close() }()
	if b.redis != "" && (b.wanted["memory"] || b.wanted["multiget"]) {
		defer g.stopRedis()
		if g.strings, err = b.startRedis(ctx); err != nil {
			return err
		}
		if g.hashes, err = b.startRedis(ctx); err != nil {
			return err
		}
	}
	if b.wanted["memory"] {
		if err := g.memory(ctx); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
	} else if b.wanted["disk"] || b.wanted["multiget"] || b.wanted["restart"] {
		if err := g.growTo(ctx, b.size.rows[len(b.size.rows)-1]); err != nil {
			return err
		}
	}
	if b.wanted["disk"] {
		if err := g.disk(ctx); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	if b.wanted["multiget"] {
		if err := g.multiGet(ctx); err != nil {
			return fmt.Errorf("multiget: %w", err)
		}
	}
	g.stopRedis()
	if b.wanted["restart"] {
		if err := g.restart(ctx); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
	}
	if b.wanted["pause"] {
		if err := g.pauses(ctx); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	return nil
}

func (g *growing) stopRedis() {
	for _, s := range []**redisServer{&g.strings, &g.hashes} {
		if *s != nil {
			(*s).stop()
			*s = nil
		}
	}
}

// growTo loads rows up to a number, here and into Redis.
func (g *growing) growTo(ctx context.Context, rows int) error {
	g.say("rows: to %s post rows", number(float64(rows)))
	if err := loadRows(ctx, g.c, g.rows, rows); err != nil {
		return err
	}
	if g.strings != nil {
		if err := loadStrings(ctx, g.strings, g.rows, rows); err != nil {
			return err
		}
		if err := loadHashes(ctx, g.hashes, g.rows, rows); err != nil {
			return err
		}
		if err := errors.Join(g.strings.settle(ctx), g.hashes.settle(ctx)); err != nil {
			return err
		}
	}
	g.rows = rows
	return g.check(ctx, g.c)
}

// check asks for some posts that have all columns, and compares.
func (g *growing) check(ctx context.Context, c *client.Client) error {
	var ids []uint64
	var want []counts
	for i := range 10 {
		at := uint64(i * (g.rows - 1) / 9)
		ids, want = append(ids, postID(at)), append(want, countsOf(at))
	}
	reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns})
	if err != nil {
		return err
	}
	for i, row := range reply.Rows {
		if !slices.Equal(row.Values, want[i][:]) {
			return fmt.Errorf("post %d has %v and the answer says %v", row.ID, want[i], row.Values)
		}
	}
	return nil
}
