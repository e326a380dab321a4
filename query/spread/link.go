package spread

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/wire"
)

const (
	// batchMax is the most bytes of a batch, where the server's max_payload is not
	// less: one that is much longer holds up those behind it.
	batchMax = 512 << 10
	// partMax is the most bytes of a part, a quarter of a batch where that is less.
	partMax = 64 << 10
	// queueMax is the most bytes of parts that wait for one node.
	queueMax = 32 << 20
	// looksEach is how often a part is looked at while it waits: a share of its time,
	// within lookMin and lookMax. See link.look.
	looksEach = 32
	lookMin   = 10 * time.Millisecond
	lookMax   = 100 * time.Millisecond
	// silentLooks is after how many of these a node that owes a word is silent.
	silentLooks = 4
	// avoidFor is how long a node that failed, was late or lagged is asked only
	// where nobody else can be.
	avoidFor = time.Second
)

// part is what one call asks of one node, in one piece.
type part struct {
	call    *call
	kind    wire.Kind
	version byte // that body is written in
	items   []int32
	body    []byte
	link    *link
	tried   []string // the nodes that were asked before for these items
	final   bool     // the same node is asked again: there is no other
	more    bool     // other nodes have the same shards
	session string   // of the node, as far as was known
	shards  []pipeline.Shard
	stale   bool  // it was answered, and the answer is stale
	late    bool  // it was answered, and others were asked because the answer is old
	spare   *link // to a node that was silent or late, where no other is left
	until   time.Time
	every   time.Duration // how often to look whether the node is there
	look    time.Time     // when to do it next

	silent bool // given up because of that
	gone   bool // given up because the process that was asked is no more

	// Under link.mu until the part is done, then the call's.
	id     uint64
	batch  uint64 // that it was sent with; 0: it waits
	pieces [][]byte
	out    outcome
	words  string
}

// link is the way to one node.
type link struct {
	reader  *Reader
	node    string
	subject string // where it answers
	number  uint64 // in the subjects of its replies
	hash    uint64 // of the node

	asked   atomic.Int64  // parts that wait or are under way: how busy the link is
	avoid   atomic.Int64  // until then, Unix ns
	applied atomic.Uint64 // the latest that the node said
	heard   atomic.Int64  // when it said anything last, Unix ns
	speaks  atomic.Uint32 // the version of the wire that it said last; before, View.Wire of it

	mu      sync.Mutex
	waiting []*part
	bytes   int // of those that wait
	sent    map[uint64]*part
	lastID  uint64
	under   uint64    // the batch under way; 0: none
	left    int       // its parts that are not done
	since   time.Time // when it was sent
	owes    time.Time // what the node has said nothing to was sent then; zero: it owes no word
	looked  time.Time // when it was last asked whether it is there
	closed  bool
}

// version is the newest that this process and the node are known to understand.
func (l *link) version() byte { return wire.Both(byte(l.speaks.Load())) }

func (l *link) avoided(now time.Time) bool { return l.avoid.Load() > now.UnixNano() }

func (l *link) shun() { l.avoid.Store(time.Now().Add(avoidFor).UnixNano()) }

// ask sends a part, with the next batch if one is under way.
func (l *link) ask(p *part) {
	p.link, p.batch, p.out = l, 0, outUnsent
	l.asked.Add(1)
	l.mu.Lock()
	if l.closed || l.bytes+len(p.body) > queueMax {
		l.mu.Unlock()
		l.finish(p)
		return
	}
	l.waiting = append(l.waiting, p)
	l.bytes += len(p.body)
	batch, message := l.gatherLocked()
	l.mu.Unlock()
	l.publish(batch, message)
}

// finish gives parts back to their calls; they are in none of the link's lists.
func (l *link) finish(parts ...*part) {
	for _, p := range parts {
		l.asked.Add(-1)
		p.call.done(p)
	}
}

var messages = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// keepMessage gives memory back that was taken of messages; grown is what became of it.
func keepMessage(taken *[]byte, grown []byte) {
	if cap(grown) <= batchMax {
		*taken = grown
		messages.Put(taken)
	}
}

// gatherLocked makes the next batch of what waits, unless one is under way.
func (l *link) gatherLocked() (batch uint64, message *[]byte) {
	if l.under != 0 || len(l.waiting) == 0 {
		return 0, nil
	}
	message = messages.Get().(*[]byte)
	now, n, in := time.Now(), 0, l.waiting[0].version
	b := wire.BeginBatch((*message)[:0], l.reader.print, in)
	batch = l.reader.batches.Add(1)
	for ; n < min(len(l.waiting), wire.PartsMax); n++ {
		p := l.waiting[n]
		if p.version != in || n > 0 && len(b)+len(p.body)+wire.AskOverhead+wire.BatchOverhead > l.reader.batchBytes {
			break
		}
		l.lastID++
		p.id, p.batch = l.lastID, batch
		l.sent[p.id] = p
		l.bytes -= len(p.body)
		b = wire.AppendAsk(b, &wire.Ask{
			ID: p.id, Kind: p.kind, Min: p.call.min, Within: p.until.Sub(now),
			Wait: min(p.call.waits.Sub(now), p.until.Sub(now)*15/16), // so that the answer is in time
			Body: p.body,
		})
	}
	left := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[left:])
	l.waiting = l.waiting[:left]
	l.under, l.left, l.since = batch, n, now
	l.oweLocked(now)
	*message = wire.End(b)
	return batch, message
}

// publish sends a batch, if there is one.
func (l *link) publish(batch uint64, message *[]byte) {
	if message == nil {
		return
	}
	r := l.reader
	r.metrics.batches.Inc()
	r.metrics.bytes.Add(float64(len(*message)))
	err := r.nc.PublishRequest(l.subject, r.inboxOf(l, batch), *message)
	keepMessage(message, *message)
	if err != nil {
		l.failed(batch, outUnsent, err.Error())
	}
}

// failed ends a batch, and all of its parts that are not done. Where no process
// listens, what was sent before is not answered either: those that others can answer go
// there.
func (l *link) failed(batch uint64, out outcome, words string) {
	if out != outUnsent {
		l.shun()
	}
	var done []*part
	l.mu.Lock()
	l.owes = time.Time{}
	for _, p := range l.sent {
		if p.batch == batch || out == outNobody && p.more {
			p.out, p.words = out, words
			l.dropLocked(p)
			done = append(done, p)
		}
	}
	if out == outNobody {
		batch = l.under
	}
	next, message := l.freeLocked(batch)
	l.mu.Unlock()
	l.finish(done...)
	l.publish(next, message)
}

// dropLocked takes a part off those that are sent.
func (l *link) dropLocked(p *part) {
	delete(l.sent, p.id)
	if p.batch == l.under {
		l.left--
	}
}

// freeLocked says that a batch is under way no more, and makes the next.
func (l *link) freeLocked(batch uint64) (next uint64, message *[]byte) {
	if l.under != batch {
		return 0, nil
	}
	l.under = 0
	return l.gatherLocked()
}

// replied takes in a message of replies. What is there twice, or of a part that no call
// waits for, is passed over.
func (l *link) replied(batch uint64, head wire.Replies, replies []wire.Reply) {
	var done []*part
	var next uint64
	var message *[]byte
	l.mu.Lock()
	l.owes = time.Time{}
	for i := range replies {
		r := &replies[i]
		if p := l.sent[r.ID]; p != nil && p.batch == batch {
			if p.take(r) {
				l.dropLocked(p)
				done = append(done, p)
			}
		}
	}
	if head.Taken || l.left == 0 { // the word that it is taken may be lost
		next, message = l.freeLocked(batch)
	}
	l.mu.Unlock()
	l.finish(done...)
	l.publish(next, message)
}

// take takes in a piece and says whether the part is done.
func (p *part) take(r *wire.Reply) (done bool) {
	if r.Status != wire.Answered {
		p.out, p.words = outcome(r.Status), string(r.Body)
		if int(r.Status) >= len(statuses) { // a newer node's
			p.out = outRefused
		}
		return true
	}
	switch {
	case r.Piece < len(p.pieces): // there already
		return false
	case r.Piece > len(p.pieces): // a part's pieces come in order
		p.out, p.words = outGarbled, "a piece is lost"
		return true
	}
	p.pieces, p.out = append(p.pieces, r.Body), outAnswered
	return r.Last
}

func (l *link) oweLocked(now time.Time) {
	if l.owes.IsZero() {
		l.owes = now
	}
}

// look says whether the node has been silent for some of the looks of a part that
// waits for it; then what waits for its batch is sent. probe: a batch of nothing is
// sent, to which a node that is there says taken, and NATS that it is gone.
func (l *link) look(now time.Time, every time.Duration, probe bool) (silent bool) {
	var next, nothing uint64
	var message *[]byte
	l.mu.Lock()
	silent = !l.owes.IsZero() && now.Sub(l.owes) >= silentLooks*every
	if silent && now.Sub(l.since) >= every {
		next, message = l.freeLocked(l.under)
	}
	if probe && now.Sub(l.looked) >= every {
		nothing, l.looked = l.reader.batches.Add(1), now
		l.oweLocked(now)
	}
	l.mu.Unlock()
	l.publish(next, message)
	if nothing > 0 {
		message = messages.Get().(*[]byte)
		*message = wire.End(wire.BeginBatch((*message)[:0], l.reader.print, l.version()))
		l.publish(nothing, message)
	}
	return silent
}

// abandon gives a part up that was not answered in time. false: it is done, and
// its call hears of it.
func (l *link) abandon(p *part) bool {
	var next uint64
	var message *[]byte
	l.mu.Lock()
	found := false
	if p.batch == 0 {
		for i, w := range l.waiting {
			if w == p {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				l.bytes -= len(p.body)
				found = true
				break
			}
		}
	} else if l.sent[p.id] == p {
		l.dropLocked(p)
		found = true
		// Nobody said that the batch is taken: it may be lost, and those that
		// wait for it with it.
		next, message = l.freeLocked(p.batch)
	}
	l.mu.Unlock()
	l.publish(next, message)
	if found {
		l.asked.Add(-1)
		l.shun()
	}
	return found
}

// close ends all parts.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	done := l.waiting
	l.waiting, l.bytes = nil, 0
	for id, p := range l.sent {
		p.out, p.words = outUnsent, "the reader is closed"
		delete(l.sent, id)
		done = append(done, p)
	}
	l.mu.Unlock()
	l.finish(done...)
}

// says notes what a node said of itself.
func (l *link) says(p pipeline.Position) {
	raise(&l.applied, uint64(p))
	l.heard.Store(time.Now().UnixNano())
	raise(&l.reader.reached, uint64(p))
}

func raise(to *atomic.Uint64, p uint64) {
	for was := to.Load(); was < p && !to.CompareAndSwap(was, p); {
		was = to.Load()
	}
}
