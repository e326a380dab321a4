package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
)

// record is a message as its publisher knows it.
type record struct {
	lines []line
	acked uint64 // the sequence that it was acknowledged with; 0: not yet
	found uint64 // the sequence that it was read back at; 0: not yet
	lost  bool   // a power cut took it before anybody had counted it
}

// line is an event of a message, and whom it is about.
type line struct {
	event twin.Event
	about people
}

// people are a community, or the abuse's crowd.
type people interface {
	Users() []uint64
	Posts() []uint64
	Pages() []uint64
	Log(twin.Event, pipeline.Position)
	Events() int
	Answers() (users []twin.Answer, posts, pages [][]int64)
	About(id uint64) string
}

// book is what the publishers have done.
type book struct {
	board *twin.Board
	seed  uint64

	mu          sync.Mutex
	records     []*record // by number; 0 is nobody's
	communities []*twin.Community

	end        atomic.Uint64 // the last sequence acknowledged
	ends       ends          // and when
	events     atomic.Int64  // acknowledged
	retries    atomic.Int64  // of messages whose acknowledgement did not come
	duplicates atomic.Int64  // of them, those that had been stored
	trouble    atomic.Pointer[string]
}

func (b *book) open(lines []line) (number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, &record{lines: lines})
	return uint64(len(b.records) - 1)
}

func (b *book) acknowledge(number, sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[number]
	r.acked = sequence
	b.events.Add(int64(len(r.lines)))
	b.ends.note(time.Now(), sequence)
	for was := b.end.Load(); sequence > was && !b.end.CompareAndSwap(was, sequence); {
		was = b.end.Load()
	}
}

// settle draws a new community.
func (b *book) settle(r *rand.Rand) *twin.Community {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := twin.NewCommunity(rand.New(rand.NewPCG(r.Uint64(), 1)), len(b.communities), b.board)
	b.communities = append(b.communities, c)
	return c
}

// publishers publish at a pace until they are told to pause. In a pause every
// message that was published is acknowledged.
type publishers struct {
	book *book
	gate sync.RWMutex
	work sync.WaitGroup
	stop context.CancelFunc
}

const (
	publishersCount = 3
	livingAtOnce    = 12 // communities of one publisher
	linesMax        = 40 // of a pack
)

func startPublishers(url string, b *book, perSecond float64) (*publishers, error) {
	ctx, cancel := context.WithCancel(context.Background())
	ps := &publishers{book: b, stop: cancel}
	for i := range publishersCount {
		p, err := ps.newPublisher(url, uint64(100+i))
		if err != nil {
			cancel()
			return nil, err
		}
		p.pause = time.Duration(publishersCount * float64(time.Second) / perSecond)
		ps.work.Go(func() {
			defer p.nc.Close()
			p.run(ctx)
		})
	}
	return ps, nil
}

// newPublisher is one with a connection and a source of chance of its own; it
// goes by the pauses of all.
func (ps *publishers) newPublisher(url string, source uint64) (*publisher, error) {
	nc, err := connect(url)
	if err != nil {
		return nil, err
	}
	return &publisher{publishers: ps, nc: nc, random: rand.New(rand.NewPCG(ps.book.seed, source))}, nil
}

// connect is a connection that outlives everything.
func connect(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0), quiet)
}

// pause returns when all is acknowledged that was published; the server must
// be there for it.
func (ps *publishers) pause() { ps.gate.Lock() }

func (ps *publishers) resume() { ps.gate.Unlock() }

// close ends publishing, also in a pause.
func (ps *publishers) close() {
	ps.stop()
	ps.work.Wait()
}

// quiet: what a connection suffers is known, and shows in what it is for.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

type publisher struct {
	*publishers
	nc     *nats.Conn
	random *rand.Rand
	pause  time.Duration // for each event
	living []*life
}

// life is a community and how many events are still to come.
type life struct {
	*twin.Community
	left int
}

func (p *publisher) run(ctx context.Context) {
	next := time.Now()
	for ctx.Err() == nil {
		if !p.gate.TryRLock() { // a pause, which may be the end
			time.Sleep(time.Millisecond)
			continue
		}
		lines := p.draw()
		p.publish(ctx, lines)
		p.gate.RUnlock()
		now := time.Now()
		if next.Before(now.Add(-time.Second)) {
			next = now.Add(-time.Second) // what was not published while nobody took it is not made up for
		}
		next = next.Add(time.Duration(len(lines)) * p.pause)
		if wait := next.Sub(now); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}
}

// publish publishes a message and stays with it until it is acknowledged; 0:
// ctx ended before.
func (p *publisher) publish(ctx context.Context, lines []line) (sequence uint64) {
	number := p.book.open(lines)
	m := message(lines, number)
	m.Header = nats.Header{nats.MsgIdHdr: {fmt.Sprintf("soak-%d-%d", p.book.seed, number)}}
	for ctx.Err() == nil {
		sequence, duplicate, err := p.send(ctx, m)
		if err == nil {
			if duplicate {
				p.book.duplicates.Add(1)
			}
			p.book.acknowledge(number, sequence)
			return sequence
		}
		text := err.Error()
		p.book.trouble.Store(&text)
		p.book.retries.Add(1)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return 0
}

// ackWithin is how long an acknowledgement is waited for.
const ackWithin = time.Second

func (p *publisher) send(ctx context.Context, m *nats.Msg) (sequence uint64, duplicate bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	reply, err := p.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, false, err
	}
	var ack struct {
		Seq       uint64
		Duplicate bool
		Error     *struct{ Description string }
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, false, err
	}
	if ack.Error != nil {
		return 0, false, fmt.Errorf("%s", ack.Error.Description)
	}
	return ack.Seq, ack.Duplicate, nil
}

// draw makes the events of a message: most are single ones. A pack is of one
// community, or of several.
func (p *publisher) draw() []line {
	count := 1
	if p.random.IntN(8) == 0 {
		count = 2 + p.random.IntN(linesMax-1)
	}
	mixed := p.random.IntN(4) == 0
	who := p.who()
	lines := make([]line, 0, count)
	for len(lines) < count {
		if mixed || who.left <= 0 {
			who = p.who()
		}
		e := who.Next(pipeline.EndOf(p.book.end.Load()))
		if e.Kind() == "" && len(lines) == 0 {
			continue // the first line has the message's number
		}
		who.left--
		lines = append(lines, line{e, who.Community})
	}
	return lines
}

// who is any of those that live; others come for those that do not.
func (p *publisher) who() *life {
	for len(p.living) < livingAtOnce {
		l := &life{p.book.settle(p.random), 50 + p.random.IntN(250)}
		if p.random.IntN(60) == 0 {
			l.left = 3000 // some see a good part of the run
		}
		p.living = append(p.living, l)
	}
	i := p.random.IntN(len(p.living))
	l := p.living[i]
	if l.left <= 0 {
		p.living = append(p.living[:i], p.living[i+1:]...)
		return p.who()
	}
	return l
}

// message is what goes to the stream. Each event carries the message's number
// and its line.
func message(lines []line, number uint64) *nats.Msg {
	for i := range lines {
		lines[i].event = lines[i].event.Numbered(eventNumber(number, i))
	}
	if len(lines) == 1 {
		e := &lines[0].event
		return &nats.Msg{Subject: "events." + e.Kind(), Data: e.JSON(0)}
	}
	var data bytes.Buffer
	for i := range lines {
		data.Write(lines[i].event.JSON(i))
		data.WriteByte('\n')
	}
	return &nats.Msg{Subject: "events.pack", Data: data.Bytes()}
}

func eventNumber(message uint64, line int) uint64 { return uint64(pipeline.At(message, line)) }
