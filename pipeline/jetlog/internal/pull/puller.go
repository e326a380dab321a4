package pull

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// PullMessages are asked for in one request; two are under way at most.
	// Fewer let the server run dry between requests, more only wait in memory.
	PullMessages = 4096
	// PullBytes bounds one request likewise (a request holds at least two
	// messages of the largest size). What waits here is bounded by twice this.
	PullBytes = 8 << 20
	// pullExpires ends a request that found nothing; the next one follows.
	pullExpires = 30 * time.Second
	// controlMessages is room for heartbeats and the ends of requests.
	controlMessages = 256
	// consumerInactive is when the server forgets a consumer left behind.
	consumerInactive = time.Minute
	// pendingHeader says, at a request's early end, how much of it was left.
	pendingHeader = "Nats-Pending-Messages"
)

// Puller is one consumer on the server and what it sends. It is thrown away
// whenever anything is odd; the reader then makes the next one.
type Puller struct {
	nc       *nats.Conn
	stream   string
	consumer string
	inbox    *nats.Subscription
	Arrived  chan *nats.Msg // holds all that may be under way: nats.go drops what does not fit
	next     string         // the subject of requests
	bounds   pullBounds
	batch    int // messages in a request
	left     int // messages that may still be asked for; below 0: however many

	Waiting   uint64 // messages there were when the consumer was made
	prefix    string // of reply subjects, from the first message
	Delivered uint64 // consumer sequence of the last message
	asked     int    // messages asked for and not yet seen
}

// pullBounds are the bounds of a request, as the server reads them.
type pullBounds struct {
	Batch     int           `json:"batch"`
	Bytes     int64         `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// Options bound what a Puller asks for. Zeros take the defaults; Heartbeat has none.
type Options struct {
	Ahead      int           // messages in one request; default and most PullMessages
	AheadBytes int           // in one request; default PullBytes, and at least two messages of the largest size
	Messages   int           // asked for in all; 0: all that come
	Heartbeat  time.Duration // how often the server says that it has nothing
}

// Open makes a consumer and asks for the first messages. first says with
// which messages it begins, and which it reads.
func Open(ctx context.Context, js jetstream.JetStream, stream string, first jetstream.ConsumerConfig, o Options) (*Puller, error) {
	nc := js.Conn()
	p := &Puller{
		nc: nc, stream: stream, batch: min(cmp.Or(o.Ahead, PullMessages), PullMessages), left: -1,
		consumer: "tidemark_" + nuid.Next(),
		bounds:   pullBounds{Bytes: max(int64(cmp.Or(o.AheadBytes, PullBytes)), 2*nc.MaxPayload()), Expires: pullExpires, Heartbeat: o.Heartbeat},
	}
	if o.Messages > 0 {
		p.left = o.Messages
	}
	p.Arrived = make(chan *nats.Msg, 2*p.batch+controlMessages)
	p.next = jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + stream + "." + p.consumer
	var err error
	first.Name = p.consumer
	first.AckPolicy = jetstream.AckNonePolicy
	first.MemoryStorage, first.Replicas = true, 1
	first.InactiveThreshold = consumerInactive
	consumer, err := js.CreateConsumer(ctx, stream, first)
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", err)
	}
	p.Waiting = consumer.CachedInfo().NumPending
	if p.inbox, err = nc.ChanSubscribe(nc.NewInbox(), p.Arrived); err != nil {
		p.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if err := p.ask(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// ask requests more when at least one request's worth is used up.
func (p *Puller) ask() error {
	for p.asked <= p.batch && p.left != 0 {
		p.bounds.Batch = p.batch
		if p.left > 0 {
			p.bounds.Batch = min(p.batch, p.left)
			p.left -= p.bounds.Batch
		}
		request, err := json.Marshal(p.bounds)
		if err == nil {
			err = p.nc.PublishRequest(p.next, p.inbox.Subject, request)
		}
		if err != nil {
			return fmt.Errorf("request messages: %w", err)
		}
		p.asked += p.bounds.Batch
	}
	return nil
}

// errBroken: this consumer cannot go on; the stream may.
var errBroken = errors.New("consumer interrupted")

// Take accounts for an arrival. stored is false for a control message, which
// has no reply subject: nothing that a producer publishes can pass for one.
func (p *Puller) Take(m *nats.Msg) (a Ack, stored bool, err error) {
	if m.Reply == "" {
		return Ack{}, false, p.control(m.Header)
	}
	if p.prefix == "" {
		p.prefix = ackPrefix(m.Reply)
	}
	a, ok := parseAck(p.prefix, m.Reply)
	if !ok {
		return Ack{}, false, fmt.Errorf("%w: unknown reply subject %q", errBroken, m.Reply)
	}
	if a.Consumer != p.Delivered+1 {
		return Ack{}, false, fmt.Errorf("%w: delivery %d came after %d", errBroken, a.Consumer, p.Delivered)
	}
	p.Delivered = a.Consumer
	p.asked--
	if p.asked <= p.batch {
		return a, true, p.ask()
	}
	return a, true, nil
}

// IsHeartbeat says that an arrival is no message of the stream, but the server's word that it
// has none.
func IsHeartbeat(m *nats.Msg) bool { return m.Reply == "" && isHeartbeat(m.Header) }

func isHeartbeat(h nats.Header) bool { return h.Get("Status") == "100" }

// control reads a status message. Only two kinds are part of going well:
// heartbeats, and the early end of a request, which says how much was left.
func (p *Puller) control(h nats.Header) error {
	if isHeartbeat(h) {
		return nil
	}
	if left := h.Get(pendingHeader); left != "" {
		n, err := strconv.Atoi(left)
		if err != nil {
			return fmt.Errorf("%w: %s %q", errBroken, pendingHeader, left)
		}
		p.asked -= n
		if p.left >= 0 {
			p.left += n
		}
		return p.ask()
	}
	return fmt.Errorf("%w: status %s %s", errBroken, h.Get("Status"), h.Get("Description"))
}

// Close lets the server forget the consumer at once when it can be reached.
func (p *Puller) Close() {
	if p.inbox != nil {
		_ = p.inbox.Unsubscribe()
	}
	if p.nc.IsConnected() {
		// Not waited for: it goes away by itself (consumerInactive).
		_ = p.nc.Publish(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE."+p.stream+"."+p.consumer, nil)
	}
}
