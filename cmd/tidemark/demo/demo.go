// Package demo is a small synthetic community, so that a node that was just
// started has something to count. None of it is real: users are numbers, and
// what they do is drawn by lot. It is bounded, in rate and in all.
//
// Users are 1 to Users, posts are numbered from 1, and the lower a number, the
// better known it is: posts 1 to 20 (by users 1 to 20) never go out of
// fashion, so `get post 1` and `unread 1` move at once. The draw is by a fixed
// seed: the same log at the start makes the same community.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

const (
	tick = 20 * time.Millisecond
	// backlogMax is how much of what a stall kept back is made up for.
	backlogMax = time.Second
	// linesMax is the most events in a message. See firstFree.
	linesMax  = 64
	packDelay = 5 * time.Millisecond
	// packPatience is how long the log may be away before the community
	// forgets what it was about to say.
	packPatience = 10 * time.Second
	retryWait    = time.Second
	closeTimeout = 2 * time.Second
	lookTimeout  = 5 * time.Second

	rateDefault      = 200
	usersDefault     = 1000
	eventsMaxDefault = 5_000_000 // seven hours at 200 a second
)

// Options size the community. Zero fields take their defaults.
type Options struct {
	Rate      int          // events a second; default 200
	Users     int          // at least 2; default 1000
	EventsMax int          // events in all, then Run returns; default 5,000,000
	Logger    *slog.Logger // default: none
}

// Run lets the community live until ctx ends or EventsMax is reached, both of
// which are no error. A log that is not there, busy or restarting is waited
// for; only a connection that was closed ends Run with an error.
func Run(ctx context.Context, nc *nats.Conn, o Options) error {
	o.Rate = cmp.Or(o.Rate, rateDefault)
	o.Users = cmp.Or(o.Users, usersDefault)
	o.EventsMax = cmp.Or(o.EventsMax, eventsMaxDefault)
	if o.Rate < 1 || o.Users < 2 || o.EventsMax < 1 {
		return fmt.Errorf("demo: %d events a second, %d users, %d events in all; allowed: from 1, 2 and 1", o.Rate, o.Users, o.EventsMax)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &demo{nc: nc, o: o}
	err := d.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type demo struct {
	nc     *nats.Conn
	o      Options
	town   *town
	packer *client.Packer // nil: to be opened
	told   int            // events so far
}

func (d *demo) run(ctx context.Context) error {
	last, err := d.lookUp(ctx)
	if err != nil {
		return err
	}
	d.o.Logger.Info("demo: a synthetic community comes to life; nothing of it is real",
		"users", d.o.Users, "events_per_second", d.o.Rate, "events_max", d.o.EventsMax)
	d.town = newTown(d.o.Users, firstFree(last), last == 0)
	defer d.close(ctx)
	if err := d.tell(ctx, d.town.opening()); err != nil {
		return err
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	rate := float64(d.o.Rate)
	for began, done := time.Now(), 0.0; d.told < d.o.EventsMax; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		due := time.Since(began).Seconds() * rate
		done = max(done, due-backlogMax.Seconds()*rate)
		var events []client.Event
		for ; done+1 <= due; done++ {
			events = append(events, d.town.next())
		}
		if err := d.tell(ctx, events); err != nil {
			return err
		}
	}
	d.o.Logger.Info("demo: the synthetic community has said all it may", "events", d.told)
	return nil
}

// lookUp waits for the log and says where it ends.
func (d *demo) lookUp(ctx context.Context) (last uint64, err error) {
	js, err := jetstream.New(d.nc)
	if err != nil {
		return 0, fmt.Errorf("demo: %w", err)
	}
	for {
		one, cancel := context.WithTimeout(ctx, lookTimeout)
		stream, err := js.Stream(one, jetlog.EventsStream)
		cancel()
		if err == nil {
			return stream.CachedInfo().State.LastSeq, nil
		}
		if err := d.pause(ctx, "the log is not there", err); err != nil {
			return 0, err
		}
	}
}

// tell publishes events, however long it takes. Events are lost, and said to
// be, when the log stays away; it is only a demo.
func (d *demo) tell(ctx context.Context, events []client.Event) error {
	events = events[:min(len(events), d.o.EventsMax-d.told)]
	for i := 0; i < len(events); {
		if err := d.open(); err != nil {
			if err := d.pause(ctx, "cannot publish", err); err != nil {
				return err
			}
			continue
		}
		// Add waits as long as the log is away: the end of ctx must end it.
		packer := d.packer
		stop := context.AfterFunc(ctx, func() { closePacker(ctx, packer) })
		err := packer.Add(events[i])
		if !stop() {
			return ctx.Err()
		}
		if err != nil {
			d.close(ctx)
			if err := d.pause(ctx, "the log did not take it", err); err != nil {
				return err
			}
			continue
		}
		d.told++
		i++
	}
	return nil
}

// pause comes before another attempt; its error ends the demo.
func (d *demo) pause(ctx context.Context, what string, err error) error {
	if d.nc.IsClosed() {
		return fmt.Errorf("demo: %s: %w", what, nats.ErrConnectionClosed)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.o.Logger.Warn("demo: "+what+", trying again", "error", err)
	t := time.NewTimer(retryWait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *demo) open() (err error) {
	if d.packer == nil {
		d.packer, err = client.New(d.nc).NewPacker(client.PackOptions{
			LinesMax: linesMax, Delay: packDelay, Patience: packPatience,
		})
	}
	return err
}

func (d *demo) close(ctx context.Context) {
	if d.packer != nil {
		if err := closePacker(ctx, d.packer); err != nil {
			d.o.Logger.Debug("demo: not everything was stored", "error", err)
		}
		d.packer = nil
	}
}

func closePacker(ctx context.Context, p *client.Packer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := p.Close(ctx); err != nil && !errors.Is(err, client.ErrClosed) {
		return err
	}
	return nil
}
