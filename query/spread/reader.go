package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/recent"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Options are what a Reader is made of. Schema and Directory must be given.
type Options struct {
	Schema    *pipeline.Schema
	Directory Directory
	// Generation is whose counts are asked for; 0 is the first.
	Generation generation.Number
	// ColdReads is how many calls read this process's disk at a time, beside those
	// of service.Limits.ColdReads: calls that need other nodes too. Default 16.
	ColdReads int
	// Recent is how many bytes it takes to remember the newest posts of authors whom other
	// nodes hold. Default 16 MiB.
	Recent int
	// Fresh says how old an answer can be; nil: none is ever too old.
	Fresh query.Freshness
	// Wait is after how long every whole answer of any process has what is stored now
	// (pipeline.FreshnessWait). nil: not known; then nodes that cannot be asked are not
	// waited out.
	Wait func() time.Duration
	// Silent is for how long nothing has been heard of the holders; nil: it is known.
	Silent     func() time.Duration
	Registerer prometheus.Registerer // nil: no metrics
}

// Reader is the state of all nodes. It implements [query.Spread].
type Reader struct {
	nc         *nats.Conn
	dir        Directory
	of         generation.Number
	schema     *pipeline.Schema
	unread     counterNames // of the 1:1 counters
	print      uint64
	batchBytes int
	partBytes  int
	metrics    *readerMetrics
	cold       chan struct{}
	recent     *recent.Outboxes
	fresh      query.Freshness      // nil: answers are never too old
	wait       func() time.Duration // nil: not known
	silent     func() time.Duration
	seed       uint64 // of this process, to choose copies by

	given     []given       // by shard
	givenMost atomic.Uint64 // of all
	mine      mine

	inbox   string // what the subjects of replies begin with
	sub     *nats.Subscription
	batches atomic.Uint64 // the last one's number
	reached atomic.Uint64 // the furthest position that any node said it has applied

	mu       sync.RWMutex
	links    map[string]*link
	byNumber map[uint64]*link
	lastLink uint64
	epoch    uint64 // as of which links of nodes that hold nothing are gone
	closed   bool
	vain     sync.Map // pipeline.Shard: the epoch of the view as of which asking again was in vain
}

// counterNames is a counter with its shown columns, and their names as they go
// over the wire.
type counterNames struct {
	columns []pipeline.Column
	packed  []byte
}

var _ query.Spread = (*Reader)(nil)

// New makes a Reader that asks over a connection, which outlives it.
func New(nc *nats.Conn, o Options) (*Reader, error) {
	if o.Schema == nil || o.Directory == nil {
		return nil, errors.New("spread: a reader needs a schema and a directory")
	}
	if most := nc.MaxPayload(); most < wire.MessageMin {
		return nil, fmt.Errorf("spread: the NATS server's max_payload is %d; nodes need %d at least to ask each other", most, wire.MessageMin)
	}
	if o.ColdReads <= 0 {
		o.ColdReads = 16
	}
	if o.Recent <= 0 {
		o.Recent = recentBytes
	}
	r := &Reader{
		recent: recent.New(o.Recent),
		nc:     nc, dir: o.Directory, of: o.Generation, schema: o.Schema, print: wire.Fingerprint(o.Schema, len(o.Directory.View().Holders)),
		batchBytes: int(min(nc.MaxPayload(), batchMax)),
		cold:       make(chan struct{}, o.ColdReads),
		inbox:      nc.NewInbox() + ".",
		links:      map[string]*link{}, byNumber: map[uint64]*link{},
	}
	r.partBytes = min(partMax, r.batchBytes/4)
	r.fresh, r.wait, r.silent, r.seed = o.Fresh, o.Wait, o.Silent, hash(r.inbox)
	shards := len(o.Directory.View().Holders)
	r.given, r.mine.shards = make([]given, shards), make([]atomic.Bool, shards)
	r.unread.packed = wire.AppendNames(nil, wire.Names{})
	if counter, ok := o.Schema.Counter("unread"); ok {
		r.unread.columns = o.Schema.Visible(counter)
		r.unread.packed = packed(o.Schema, counter, r.unread.columns)
	}
	var err error
	if r.metrics, err = newReaderMetrics(o.Registerer, r); err != nil {
		return nil, err
	}
	if r.sub, err = nc.Subscribe(r.inbox+"*", r.handle); err == nil {
		err = errors.Join(r.sub.SetPendingLimits(-1, -1), nc.Flush())
	}
	if err != nil {
		return nil, fmt.Errorf("spread: listen for answers: %w", err)
	}
	return r, nil
}

// Close ends what is asked: it is missing, as far as no other node has it. No call may
// begin after it.
func (r *Reader) Close() error {
	err := r.sub.Unsubscribe()
	r.mu.Lock()
	r.closed = true
	links := r.links
	r.links, r.byNumber = nil, nil
	r.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("spread: close: %w", err)
	}
	return nil
}

// inboxOf is where the replies to a batch go: <link>-<batch>.
func (r *Reader) inboxOf(l *link, batch uint64) string {
	b := make([]byte, 0, len(r.inbox)+24)
	b = append(b, r.inbox...)
	b = strconv.AppendUint(b, l.number, 36)
	b = append(b, '-')
	return string(strconv.AppendUint(b, batch, 36))
}

// handle takes in what nodes reply.
func (r *Reader) handle(m *nats.Msg) {
	number, batchText, _ := strings.Cut(m.Subject[len(r.inbox):], "-")
	n, err1 := strconv.ParseUint(number, 36, 64)
	batch, err2 := strconv.ParseUint(batchText, 36, 64)
	r.mu.RLock()
	l := r.byNumber[n]
	r.mu.RUnlock()
	if err1 != nil || err2 != nil || l == nil {
		return
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		l.failed(batch, outNobody, "no responders")
		return
	}
	var room [64]wire.Reply
	head, replies, err := wire.DecodeReplies(m.Data, room[:0])
	if err != nil {
		r.metrics.damaged.Inc()
		out := outGarbled
		if errors.Is(err, wire.ErrVersion) {
			out = outRefused
		}
		l.failed(batch, out, err.Error())
		return
	}
	l.speaks.Store(uint32(head.Version))
	for i := range replies {
		l.says(replies[i].Applied)
		if replies[i].ID == 0 {
			l.failed(batch, outcome(min(replies[i].Status, wire.Garbled)), string(replies[i].Body))
			return
		}
	}
	l.replied(batch, head, replies)
}

// linkTo is the way to a node; nil when the Reader is closed.
func (r *Reader) linkTo(node string, v *View) *link {
	r.mu.RLock()
	l := r.links[node]
	r.mu.RUnlock()
	if l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if l = r.links[node]; l != nil {
		return l
	}
	r.pruneLocked(v)
	r.lastLink++
	l = &link{reader: r, node: node, hash: hash(node), subject: Subject(node, r.of), number: r.lastLink, sent: map[uint64]*part{}}
	l.speaks.Store(uint32(v.Wire[node]))
	r.links[node], r.byNumber[l.number] = l, l
	return l
}

// pruneLocked forgets, once an epoch, the ways to nodes that hold nothing and of which
// nothing is asked. A caller may come with a view that is older than another's: it
// knows less of the holders.
func (r *Reader) pruneLocked(v *View) {
	if v.Epoch <= r.epoch {
		return
	}
	r.epoch = v.Epoch
	named := map[string]bool{}
	for _, nodes := range slices.Concat(v.Holders, v.Behind) {
		for _, node := range nodes {
			named[node] = true
		}
	}
	for node, l := range r.links {
		if !named[node] && l.asked.Load() == 0 {
			l.close()
			delete(r.links, node)
			delete(r.byNumber, l.number)
		}
	}
}

// Applied implements [query.Spread].
func (r *Reader) Applied() pipeline.Position {
	if own := r.dir.Own(); own != nil {
		return own.Applied()
	}
	return pipeline.Position(r.reached.Load())
}

// WaitApplied implements [query.Spread].
func (r *Reader) WaitApplied(ctx context.Context, p pipeline.Position) error {
	if own := r.dir.Own(); own != nil {
		return own.WaitApplied(ctx, p)
	}
	for p > r.Applied() {
		if err := r.askApplied(ctx, p); err != nil && !errors.Is(err, query.ErrBehind) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Lags implements [query.Spread].
func (r *Reader) Lags() bool {
	return r.dir.Own() != nil && slices.Contains(r.dir.View().OwnBehind, true)
}

// Rows implements [query.Reader] with what this process holds.
func (r *Reader) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	return r.idsHere(ids, func(own query.Holder) (missing []int, asOf pipeline.Position, err error) {
		err = own.Rows(ctx, counter, columns, ids, rows, disk)
		return rows.Missing, rows.AsOf, err
	})
}

// idsHere reads what this process holds of ids; missing are indexes of them.
func (r *Reader) idsHere(ids []uint64, read func(query.Holder) (missing []int, asOf pipeline.Position, err error)) error {
	own, v := r.dir.Own(), r.dir.View()
	if own == nil {
		return query.ErrFar
	}
	if !v.Whole {
		for _, id := range ids {
			if shard := v.shardOf(id); !own.Holds(shard) || v.ownLast(shard) {
				return query.ErrFar
			}
		}
	}
	missing, asOf, err := read(own)
	if err != nil {
		return err
	}
	for _, i := range missing {
		if len(v.Holders[v.shardOf(ids[i])]) > 0 {
			return query.ErrFar
		}
	}
	if v.Whole && !r.wholeEnough(asOf, v) || !v.Whole && !r.partEnough(asOf, v, ids) {
		return query.ErrFar
	}
	return nil
}

// whole is this process's state when it has all of it.
func (r *Reader) whole() (query.Reader, *View) {
	v := r.dir.View()
	if !v.Whole {
		return nil, v
	}
	whole, _ := r.dir.Own().(query.Reader)
	return whole, v
}

// Unread implements [query.Reader] with what this process holds.
func (r *Reader) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	whole, v := r.whole()
	if whole == nil {
		return query.ErrFar
	}
	if err := whole.Unread(ctx, users, channels, out, disk); err != nil {
		return err
	}
	if len(out.Missing) > 0 && v.others() || !r.wholeEnough(out.AsOf, v) {
		return query.ErrFar
	}
	return nil
}

// Feed implements [query.Reader] with what this process holds.
func (r *Reader) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	whole, v := r.whole()
	if whole == nil {
		return query.ErrFar
	}
	err := whole.Feed(ctx, user, before, limit, out, disk)
	if (errors.Is(err, query.ErrStopped) || err == nil && out.Missing) && v.others() || err == nil && !r.wholeEnough(out.AsOf, v) {
		return query.ErrFar
	}
	return err
}

// Following implements [query.Reader] with what this process holds.
func (r *Reader) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return r.pageHere(user, func(own query.Holder) (asOf pipeline.Position, err error) {
		err = own.Following(ctx, user, after, limit, out, disk)
		return out.AsOf, err
	})
}

// Followers implements [query.Reader] with what this process holds.
func (r *Reader) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return r.pageHere(user, func(own query.Holder) (asOf pipeline.Position, err error) {
		err = own.Followers(ctx, user, after, limit, out, disk)
		return out.AsOf, err
	})
}

// pageHere reads a page of one id's, if this process holds it.
func (r *Reader) pageHere(id uint64, read func(query.Holder) (asOf pipeline.Position, err error)) error {
	own, v := r.dir.Own(), r.dir.View()
	shard := v.shardOf(id)
	if own == nil || !v.Whole && (!own.Holds(shard) || v.ownLast(shard)) {
		return query.ErrFar
	}
	asOf, err := read(own)
	switch {
	case errors.Is(err, query.ErrElsewhere), errors.Is(err, query.ErrStopped) && len(v.Holders[shard]) > 0,
		err == nil && !r.partEnough(asOf, v, []uint64{id}):
		return query.ErrFar
	}
	return err
}

// Far implements [query.Spread].
func (r *Reader) Far(p pipeline.Position, until time.Time) query.Reader { return &far{r, p, until} }

// far is a Reader that asks other nodes for what is not here.
type far struct {
	*Reader // Applied and WaitApplied
	min     pipeline.Position
	waits   time.Time
}
