package spread

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

const (
	// partsAlone is how many parts of a batch one worker is for; those of a larger
	// batch are shared out among workers that are free.
	partsAlone = 8
	// heavyBytes is from how long a question on its part is answered apart, on
	// the workers for large ones: some 100 µs of work.
	heavyBytes = 8 << 10
	// usersAtOnce is how many profiles are read before they are sent: the lists of
	// followees with them may be long.
	usersAtOnce = 16
	// heavyPage is from how long a page is answered apart.
	heavyPage = 1000
)

// batch is one in work.
type batch struct {
	server  *Server
	reply   string
	version byte
	asks    []wire.Ask
	bytes   int
	left    atomic.Int64 // parts that are not done
}

// done counts off a part.
func (b *batch) done() {
	b.server.parts.Add(-1)
	if b.left.Add(-1) == 0 {
		b.server.bytes.Add(-int64(b.bytes))
	}
}

// serve answers what can be answered at once, says that the batch is taken, and
// leaves the rest to goroutines of their own.
func (b *batch) serve() {
	s := b.server
	defer s.work.Done()
	if !enter(s.ctx, s.workers) {
		for range b.asks {
			b.done()
		}
		return
	}
	defer leave(s.workers)
	if len(b.asks) == 0 {
		s.bytes.Add(-int64(b.bytes))
	}
	var next atomic.Int64
	work := func(w *writer) {
		for i := next.Add(1); i <= int64(len(b.asks)); i = next.Add(1) {
			b.part(w, &b.asks[i-1])
		}
	}
	var others sync.WaitGroup
	for extra := len(b.asks)/partsAlone - 1; extra > 0; extra-- {
		select {
		case s.workers <- struct{}{}:
			others.Go(func() {
				defer leave(s.workers)
				w := b.writer()
				defer w.free()
				work(w)
				w.send()
			})
			continue
		default:
		}
		break
	}
	w := b.writer()
	defer w.free()
	work(w)
	others.Wait()
	w.sendTaken()
}

func enter(ctx context.Context, lane chan struct{}) bool {
	select {
	case lane <- struct{}{}:
		return true
	default:
	}
	select {
	case lane <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func leave(lane chan struct{}) { <-lane }

// part answers a part at once, or leaves it to a goroutine of its own.
func (b *batch) part(w *writer, a *wire.Ask) {
	s := b.server
	switch applied := s.holder.Applied(); {
	case a.Min > applied && a.Min.Sequence() > applied.Sequence()+aheadMax:
		w.status(a, wire.Behind, "")
	case a.Min > applied:
		s.work.Go(func() { b.later(a, nil) })
		return
	case heavy(a):
		s.work.Go(func() { b.later(a, s.heavy) })
		return
	default:
		err := b.guard(w, a, func() error { return b.answer(s.ctx, w, a, nil) })
		if errors.Is(err, query.ErrCold) {
			s.work.Go(func() { b.later(a, s.heavy) })
			return
		}
		w.failed(a, err)
	}
	b.done()
}

func heavy(a *wire.Ask) bool {
	if len(a.Body) > heavyBytes {
		return true
	}
	switch a.Kind {
	case wire.Standpoint: // all that is followed, and all channels
		return true
	case wire.Profiles:
		return len(a.Body) > 512 // usersAtOnce and what channels are named, roughly
	case wire.Followees, wire.Following, wire.Followers:
		var p wire.PageAsk
		return p.Decode(a.Body, wire.Version+1) == nil && p.Limit > heavyPage
	case wire.Members:
		var m wire.MembersAsk
		return m.Decode(a.Body, wire.Version+1) == nil && m.Limit > heavyPage
	case wire.Inbox: // lists may be long, and all of them read
		return true
	}
	return false
}

// later answers a part in its own time: it waits for its position, for its turn
// on a lane, for the disk.
func (b *batch) later(a *wire.Ask, lane chan struct{}) {
	defer b.done()
	s, w := b.server, b.writer()
	defer w.free()
	defer w.send()
	ctx, cancel := context.WithTimeout(s.ctx, min(a.Within, waitMax))
	defer cancel()
	if a.Min > s.holder.Applied() {
		if err := s.waitApplied(ctx, a); err != nil {
			w.status(a, wire.Behind, clip(err.Error()))
			return
		}
	}
	if lane == nil {
		if lane = s.workers; heavy(a) {
			lane = s.heavy
		}
	}
	if !enter(ctx, lane) {
		w.status(a, wire.Busy, "no turn in time")
		return
	}
	t := &turn{s, lane, true}
	defer t.leave()
	w.failed(a, b.guard(w, a, func() error { return b.answer(ctx, w, a, t) }))
}

func (s *Server) waitApplied(ctx context.Context, a *wire.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, a.Wait)
	defer cancel()
	defer context.AfterFunc(s.waiting, cancel)()
	return s.holder.WaitApplied(ctx, a.Min)
}

// turn is a place on a lane, which is left while the disk is read: those lanes
// are for what is in memory.
type turn struct {
	server *Server
	lane   chan struct{}
	has    bool
}

func (t *turn) leave() {
	if t.has {
		leave(t.lane)
		t.has = false
	}
}

// read asks the holder, and where t is not nil again with the disk.
func (t *turn) read(ctx context.Context, ask func(disk bool) error) error {
	err := ask(false)
	if t == nil || !errors.Is(err, query.ErrCold) {
		return err
	}
	t.leave()
	if !enter(ctx, t.server.cold) {
		return ctx.Err()
	}
	t.server.metrics.cold.Inc()
	err = ask(true)
	leave(t.server.cold)
	if err == nil && !enter(ctx, t.lane) {
		return ctx.Err()
	}
	t.has = err == nil
	return err
}

// guard turns a panic into an answer: one bad question takes nobody along.
func (b *batch) guard(w *writer, a *wire.Ask, work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			b.server.log.Error("spread: a question made the node panic", "kind", a.Kind.String(), "panic", p, "stack", string(debug.Stack()))
			err = errors.New("internal error; the node's log has it")
		}
	}()
	return work()
}

// errRefused is wrapped by what is wrong with a question.
var errRefused = errors.New("not understood")

func refused(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }

// answer answers a part. Without t nothing was written where the error wraps
// ErrCold.
func (b *batch) answer(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	switch a.Kind {
	case wire.Rows, wire.RowsHas:
		return b.rows(ctx, w, a, t)
	case wire.Profiles:
		return b.profiles(ctx, w, a, t)
	case wire.CountPosts:
		return b.counts(ctx, w, a, t)
	case wire.Posts:
		return b.posts(ctx, w, a, t)
	case wire.Followees, wire.Following, wire.Followers:
		return b.users(ctx, w, a, t)
	case wire.Standpoint:
		return b.standpoint(ctx, w, a, t)
	case wire.Members:
		return b.members(ctx, w, a, t)
	case wire.Inbox:
		return b.inbox(ctx, w, a, t)
	case wire.Applied:
		return w.answer(a, func(p *wire.Pieces) error {
			p.End(wire.Tail{AsOf: b.server.holder.Applied()})
			return nil
		})
	}
	return refused(fmt.Errorf("%s is not known to version %d", a.Kind, wire.Version))
}
