package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// kills is how long it takes until all is well again when one is gone, with two
// holders of each shard and two that can route.
func (b *bench) kills(ctx context.Context) error {
	f, err := b.fleet(ctx, "replicas: 2, ")
	if err != nil {
		return err
	}
	defer f.close()
	var routers []*program
	for _, name := range []string{"first", "second"} {
		p, err := f.add(ctx, name, "roles: [route]\n")
		if err != nil {
			return err
		}
		routers = append(routers, p)
	}
	if err := f.hold(ctx, 3); err != nil {
		return err
	}
	if f.thin, err = f.add(ctx, "thin", "roles: [answer]\n"); err != nil {
		return err
	}
	if err := f.arrived(ctx, 2); err != nil {
		return err
	}
	if err := loadRows(ctx, f.c, 0, 1000); err != nil {
		return err
	}
	holder := line{what: "kill -9 of one of two holders, until every answer is whole", unit: "s", target: atMost(1)}
	router := line{what: "kill -9 of the router, until events count", unit: "s", target: atMost(2)}
	for round := range f.size.rounds {
		victim := f.holders[round%len(f.holders)]
		begun := time.Now()
		victim.end(syscall.SIGKILL)
		took, why, err := f.untilWhole(ctx, begun)
		if err != nil {
			return err
		}
		holder.ours = append(holder.ours, took.Seconds())
		if err := victim.spawn(); err != nil {
			return err
		}
		active, err := f.active(ctx, routers)
		if err != nil {
			return err
		}
		begun = time.Now()
		active.end(syscall.SIGKILL)
		at, err := f.c.Publish(ctx, client.Like(1, 2, 3))
		if err == nil {
			err = applied(ctx, f.c, at)
		}
		if err != nil {
			return err
		}
		router.ours = append(router.ours, time.Since(begun).Seconds())
		if err := active.spawn(); err != nil {
			return err
		}
		if err := f.arrived(ctx, 2); err != nil {
			return err
		}
		f.say("nodes: whole %s s after a holder was killed (%s), counting %s s after the router was", last(holder.ours), why, last(router.ours))
	}
	f.table.add(holder)
	f.table.add(router)
	return nil
}

const (
	// longAnswer is from when on an answer counts as one that was not there.
	longAnswer = 150 * time.Millisecond
	// calmAnswers are so many in a row that were there: if a later one takes long, the
	// machine is busy. That one lacks something counts at any time.
	calmAnswers = 100
)

// untilWhole asks for ids of all shards for some seconds, and gives when the
// last answer came that was not whole, or took long, and why.
func (f *fleet) untilWhole(ctx context.Context, begun time.Time) (took time.Duration, why string, err error) {
	ids := idOfEachShard()
	why, calm := "all answers were", 0
	for time.Since(begun) < 3*time.Second {
		asked := time.Now()
		reply, err := f.c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns[likesAt:]})
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		waited := time.Since(asked)
		calm++
		if err != nil || len(reply.Missing) > 0 || waited > longAnswer && calm <= calmAnswers {
			took, calm = time.Since(begun), 0
			why = fmt.Sprintf("the last that was not took %v and lacked %d ids", waited.Round(time.Millisecond), len(reply.Missing))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return took, why, nil
}

// active is the one that routes.
func (f *fleet) active(ctx context.Context, routers []*program) (is *program, err error) {
	err = f.thin.until(ctx, "wait for a router", nodesArrived, func() error {
		for _, p := range routers {
			figures, err := p.figures()
			if err == nil && figures["tidemark_router_active"] == 1 {
				is = p
				return nil
			}
		}
		return errors.New("nobody routes")
	})
	return is, err
}
