package jetlog

import (
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
	// pullMessages are asked for in one request; two are under way at most.
	// Fewer let the server run dry between requests, more only wait in memory.
	pullMessages = 4096
	// pullBytes bounds one request likewise (a request holds at least two
	// messages of the largest size). What waits here is bounded by twice this.
	pullBytes = 8 << 20
	// pullExpires ends a request that found nothing; the next one follows.
	pullExpires = 30 * time.Second
	// controlMessages is room for heartbeats and the ends of requests.
	controlMessages = 256
	// consumerInactive is when the server forgets a consumer left behind.
	consumerInactive = time.Minute
	// pendingHeader tells, at a request's early end, how much of it was left.
	pendingHeader = "Nats-Pending-Messages"
)

// puller is one consumer on the server and what it sends. It is thrown away
// whenever anything is odd; the reader then makes the next one.
type puller struct {
	nc       *nats.Conn
	stream   string
	consumer string
	inbox    *nats.Subscription
	arrived  chan *nats.Msg // holds all that may be under way: nats.go drops what does not fit
	next     string         // the subject of requests
	bounds   pullBounds
	batch    int // messages in a request
	left     int // messages that may still be asked for; below 0: however many

	waiting   uint64 // messages there were when the consumer was made
	prefix    string // of reply subjects, from the first message
	delivered uint64 // consumer sequence of the last message
	asked     int    // messages asked for and not yet seen
}

// pullBounds are the bounds of a request, as the server reads them.
type pullBounds struct {
	Batch     int           `json:"batch"`
	Bytes     int64         `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// openPuller makes a consumer and asks for the first messages. first says with
// which messages it begins, and which it reads.
func openPuller(ctx context.Context, s *Streams, stream string, first jetstream.ConsumerConfig, o RunOptions) (*puller, error) {
	p := &puller{
		nc: s.nc, stream: stream, batch: min(o.Ahead, pullMessages), left: -1,
		consumer: "tidemark_" + nuid.Next(),
		bounds:   pullBounds{Bytes: max(int64(o.AheadBytes), 2*s.nc.MaxPayload()), Expires: pullExpires, Heartbeat: o.Heartbeat},
	}
	if o.Messages > 0 {
		p.left = o.Messages
	}
	p.arrived = make(chan *nats.Msg, 2*p.batch+controlMessages)
	p.next = jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + stream + "." + p.consumer
	var err error
	first.Name = p.consumer
	first.AckPolicy = jetstream.AckNonePolicy
	first.MemoryStorage, first.Replicas = true, 1
	first.InactiveThreshold = consumerInactive
	consumer, err := s.js.CreateConsumer(ctx, stream, first)
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", err)
	}
	p.waiting = consumer.CachedInfo().NumPending
	if p.inbox, err = s.nc.ChanSubscribe(s.nc.NewInbox(), p.arrived); err != nil {
		p.close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if err := p.ask(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// ask requests more when at least one request's worth is used up.
func (p *puller) ask() error {
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

// take accounts for an arrival. stored is false for a control message, which
// has no reply subject: nothing that a producer publishes can pass for one.
func (p *puller) take(m *nats.Msg) (a ack, stored bool, err error) {
	if m.Reply == "" {
		return ack{}, false, p.control(m.Header)
	}
	if p.prefix == "" {
		p.prefix = ackPrefix(m.Reply)
	}
	a, ok := parseAck(p.prefix, m.Reply)
	if !ok {
		return ack{}, false, fmt.Errorf("%w: unknown reply subject %q", errBroken, m.Reply)
	}
	if a.consumer != p.delivered+1 {
		return ack{}, false, fmt.Errorf("%w: delivery %d came after %d", errBroken, a.consumer, p.delivered)
	}
	p.delivered = a.consumer
	p.asked--
	if p.asked <= p.batch {
		return a, true, p.ask()
	}
	return a, true, nil
}

// control reads a status message. Only two kinds are part of going well:
// heartbeats, and the early end of a request, which tells how much was left.
func (p *puller) control(h nats.Header) error {
	if h.Get("Status") == "100" {
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

// close lets the server forget the consumer at once when it can be told.
func (p *puller) close() {
	if p.inbox != nil {
		_ = p.inbox.Unsubscribe()
	}
	if p.nc.IsConnected() {
		// Not waited for: it goes away by itself (consumerInactive).
		_ = p.nc.Publish(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE."+p.stream+"."+p.consumer, nil)
	}
}
