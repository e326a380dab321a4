package spread

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// rowsWork is the memory that a question for rows works in.
type rowsWork struct {
	ask  wire.RowsAsk
	rows query.Rows
}

var rowsWorks = sync.Pool{New: func() any { return new(rowsWork) }}

func (b *batch) rows(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	work := rowsWorks.Get().(*rowsWork)
	defer rowsWorks.Put(work)
	if err := work.ask.Decode(a.Kind, a.Body, b.version); err != nil {
		return refused(err)
	}
	r, err := b.server.names.find(work.ask.Names)
	switch ids := work.ask.IDs; {
	case err != nil:
		return refused(err)
	case r.counter < 0:
		return refused(errors.New("no counter is named"))
	case len(ids)*max(len(r.columns), len(work.ask.Sets)) > wire.CellsMax:
		return refused(fmt.Errorf("%d ids of %d columns, %d members, are more than one part may ask", len(ids), len(r.columns), len(work.ask.Sets)))
	}
	rows := &work.rows
	if rows.Sets, err = b.server.setsOf(rows.Sets[:0], r, work.ask.Sets); err != nil {
		return err
	}
	if err := t.read(ctx, func(disk bool) error {
		return b.server.holder.Rows(ctx, r.counter, r.columns, work.ask.IDs, rows, disk)
	}); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.Rows(rows, len(r.columns))
		p.End(wire.Tail{AsOf: rows.AsOf, Cost: rows.Cost})
		return nil
	})
}

// countsWork is the memory that a question for counts works in.
type countsWork struct {
	asks   wire.CountAsks
	counts query.Counts
}

var countsWorks = sync.Pool{New: func() any { return new(countsWork) }}

// countsKeep is how many followees that memory holds on to.
const countsKeep = 1 << 14

func putCounts(work *countsWork) {
	if work.asks.Cap() <= countsKeep {
		countsWorks.Put(work)
	}
}

// counts answers in the form that holders sent followees in.
func (b *batch) counts(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	work := countsWorks.Get().(*countsWork)
	defer putCounts(work)
	if err := work.asks.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	return b.count(ctx, w, a, t, work.asks.Asks, &work.counts)
}

func (b *batch) count(ctx context.Context, w *writer, a *wire.Ask, t *turn, asks []query.CountAsk, counts *query.Counts) error {
	if err := t.read(ctx, func(disk bool) error { return b.server.holder.CountPosts(ctx, asks, counts, disk) }); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.Counts(counts)
		p.End(wire.Tail{AsOf: counts.AsOf, Cost: counts.Cost})
		return nil
	})
}

func (b *batch) posts(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	var ask wire.PostsAsk
	if err := ask.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	var page query.FeedPage
	if err := t.read(ctx, func(disk bool) error {
		return b.server.holder.Posts(ctx, ask.Followees, ask.From, ask.Before, ask.Limit, &page, disk)
	}); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.FeedPage(&page)
		p.End(wire.Tail{AsOf: page.AsOf, Cost: page.Cost})
		return nil
	})
}

func (b *batch) users(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	var ask wire.PageAsk
	if err := ask.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	var page query.UserPage
	var from pipeline.Position
	h := b.server.holder
	if err := t.read(ctx, func(disk bool) (err error) {
		switch a.Kind {
		case wire.Followees:
			from, err = h.Followees(ctx, ask.User, ask.After, ask.Limit, &page, disk)
		case wire.Following:
			err = h.Following(ctx, ask.User, ask.After, ask.Limit, &page, disk)
		default:
			err = h.Followers(ctx, ask.User, ask.After, ask.Limit, &page, disk)
		}
		return err
	}); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.UserPage(&page, from)
		p.End(wire.Tail{AsOf: page.AsOf, Cost: page.Cost})
		return nil
	})
}

// profilesWork is the memory that a question for profiles works in.
type profilesWork struct {
	out     query.Profiles
	sharing wire.Sharing
}

var profilesWorks = sync.Pool{New: func() any { return new(profilesWork) }}

// profilesKeep is how many followees of a user that memory holds on to.
const profilesKeep = 4096

func putProfiles(work *profilesWork) {
	rest := work.out.Rest[:cap(work.out.Rest)] // a lot before may have been longer
	for i := range rest {
		if cap(rest[i].Followees) > profilesKeep {
			rest[i].Followees = nil
		}
	}
	if work.sharing.Cap() > profilesKeep {
		work.sharing = wire.Sharing{}
	}
	profilesWorks.Put(work)
}

// profiles answers some users at a time: what is read of one lot is sent before the
// next is read.
func (b *batch) profiles(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	var ask wire.ProfilesAsk
	if err := ask.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	r, err := b.server.names.find(ask.Names)
	if err != nil {
		return refused(err)
	}
	channels := ask.Channels
	if ask.All {
		channels = nil
	} else if channels == nil {
		channels = []string{}
	}
	if t == nil && len(ask.Users) > usersAtOnce {
		return query.ErrCold // some may be: then part of the answer would have gone out
	}
	work := profilesWorks.Get().(*profilesWork)
	defer putProfiles(work)
	out := &work.out
	read := func(users []uint64) error {
		return t.read(ctx, func(disk bool) error { return b.server.holder.Profiles(ctx, users, channels, out, disk) })
	}
	lot := ask.Users[:min(len(ask.Users), usersAtOnce)]
	if err := read(lot); err != nil {
		return err
	}
	tail := wire.Tail{AsOf: out.AsOf}
	var notices, dots channelPlaces
	counts := make([]int64, len(r.visible))
	return w.answer(a, func(p *wire.Pieces) error {
		for at := 0; ; {
			tail.AsOf = min(tail.AsOf, out.AsOf)
			tail.Cost.Cold += out.Cost.Cold
			tail.Cost.Disk += out.Cost.Disk
			p.Missing(at, out.Missing)
			p.ChannelNames(false, notices.add(out.Notices))
			p.ChannelNames(true, dots.add(out.Dots))
			missing := marked(out.Missing, len(lot))
			for i := range lot {
				if missing != nil && missing[i] {
					continue
				}
				u := &out.Users[i]
				for j, place := range r.visible {
					if counts[j] = 0; place >= 0 && place < len(u.Counts) {
						counts[j] = u.Counts[place]
					}
				}
				p.User(at+i, u, counts, notices.places, dots.places)
				if rest := &out.Rest[i]; len(rest.Followees) > 0 {
					p.Rest(at+i, rest, b.server.shards, &work.sharing)
				}
			}
			at += len(lot)
			lot = ask.Users[at:min(len(ask.Users), at+usersAtOnce)]
			if len(lot) == 0 {
				break
			}
			if err := read(lot); err != nil {
				return err
			}
		}
		p.End(tail)
		return nil
	})
}

// channelPlaces numbers channels in the order in which an answer names them.
type channelPlaces struct {
	of     map[string]int
	places []int // of those given to add
}

// add returns those that are new.
func (c *channelPlaces) add(names []string) (added []string) {
	c.places = c.places[:0]
	if c.of == nil {
		c.of = make(map[string]int, len(names))
	}
	for _, name := range names {
		place, known := c.of[name]
		if !known {
			place = len(c.of)
			c.of[name] = place
			added = append(added, name)
		}
		c.places = append(c.places, place)
	}
	return added
}

// marked is a list of indexes below n as a lookup; nil: none.
func marked(indexes []int, n int) []bool {
	if len(indexes) == 0 {
		return nil
	}
	marks := make([]bool, n)
	for _, i := range indexes {
		marks[i] = true
	}
	return marks
}
