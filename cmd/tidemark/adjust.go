package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// change is what incr and set have in common: one event that changes one
// cell, and the cell's value once it has.
func (r *remote) change(t *terminal, target cell, event func(at column, id uint64) client.Event) error {
	return r.ask(func(ctx context.Context, c *client.Client) error {
		at, err := target.resolve(ctx, c)
		if err != nil {
			return err
		}
		position, err := r.publish(ctx, c, event(at, uint64(target.id)))
		if err != nil {
			return err
		}
		reply, err := c.Get(ctx, client.GetRequest{
			Counter: at.counter, IDs: []uint64{uint64(target.id)}, Columns: []string{at.name},
			MinPosition: position, Timeout: r.Timeout,
		})
		if err == nil {
			err = whole(reply)
		}
		if err != nil {
			return stored(position, err)
		}
		return r.printValue(t, target, at, position, reply.Rows[0].Values[0])
	})
}

// publish gives the event an id of its own, so that trying again after a lost
// acknowledgement counts it once.
func (r *remote) publish(ctx context.Context, c *client.Client, e client.Event) (client.Position, error) {
	position, err := c.Publish(ctx, e.ID(nuid.Next()))
	if errors.Is(err, nats.ErrNoResponders) {
		return 0, noEvents(ctx, c.Conn())
	}
	if errors.Is(err, client.ErrRefused) {
		return 0, errRefused
	}
	return position, err
}

var errRefused = errors.New("events are refused for all nodes, by hand: nothing was stored; 'tidemark degrade writes=on' ends it")

var (
	errNoEvents   = errors.New("no stream takes events here: the node runs, but its stream EVENTS is gone")
	errLeaderless = errors.New("nothing was stored: EVENTS has no leader now; it is about to have one, or most of its NATS servers are gone: try again in a moment")
)

// noEventsWithin is how long the reason is looked for.
const noEventsWithin = time.Second

// noEvents says why nobody took an event: the stream is gone, or nobody leads it.
func noEvents(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, noEventsWithin)
	defer cancel()
	if _, err := js.Stream(ctx, jetlog.EventsStream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return errNoEvents
	}
	return errLeaderless
}

// stored: the change will happen, or has happened, though it was not seen.
func stored(position client.Position, err error) error {
	return fmt.Errorf("the change is in the log at position %s, do not repeat it; its result cannot be shown: %s", position, sentence(err))
}

func (r *remote) printValue(t *terminal, target cell, at column, position client.Position, value int64) error {
	if !r.JSON {
		_, err := fmt.Fprintln(t.out, value)
		return err
	}
	return printJSON(t.out, struct {
		Counter  string `json:"counter"`
		ID       string `json:"id"`
		Column   string `json:"column"`
		Value    int64  `json:"value"`
		Position string `json:"position"`
	}{at.counter, strconv.FormatUint(uint64(target.id), 10), at.name, value, position.String()})
}
