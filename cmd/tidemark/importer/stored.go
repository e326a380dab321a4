package importer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// packSubject is where packs go.
const packSubject = "events.pack"

// The headers of a pack.
const (
	headerImport = "Tidemark-Import"       // the import's id
	headerLines  = "Tidemark-Import-Lines" // "257-512": its lines, blank ones not counted
	headerHash   = "Tidemark-Import-Hash"  // of all lines up to its last one
)

func (p *pack) lines() string { return fmt.Sprintf("%d-%d", p.first, p.last) }

func (p *pack) message(id string) *nats.Msg {
	return &nats.Msg{Subject: packSubject, Data: p.body, Header: nats.Header{
		headerImport:                   {id},
		headerLines:                    {p.lines()},
		headerHash:                     {p.hash.String()},
		jetstream.MsgIDHeader:          {"import-" + id + "-" + p.lines() + "-" + p.hash.String()},
		jetstream.ExpectedStreamHeader: {eventsStream},
	}}
}

// packOf reads the headers of a message; nil when it is not of this import.
func packOf(id string, h nats.Header) (*pack, error) {
	if h.Get(headerImport) != id {
		return nil, nil
	}
	p := new(pack)
	first, last, _ := strings.Cut(h.Get(headerLines), "-")
	var errs [3]error
	p.first, errs[0] = strconv.ParseUint(first, 10, 64)
	p.last, errs[1] = strconv.ParseUint(last, 10, 64)
	errs[2] = p.hash.UnmarshalText([]byte(h.Get(headerHash)))
	return p, errors.Join(errs[:]...)
}

const (
	readBackBatch   = 1000 // messages asked for at once; without their bodies
	readBackTimeout = 10 * time.Second
)

// readBack finds the packs that the log has and the record does not count.
func (r *run) readBack(ctx context.Context, s *session) error {
	r.stored = map[uint64]*pack{}
	if info, err := s.stream.Info(ctx); err != nil {
		return fmt.Errorf("read back what was imported: %w", err)
	} else if first := info.State.FirstSeq; first > r.record.After+1 {
		return fatal{fmt.Errorf("import %s was broken off and EVENTS begins with message %d since: it cannot be told which lines after %d stood in messages %d to %d, and sending them again would count them twice; "+
			"cut the file behind what is counted and give it another name (--name)", r.id, first, r.record.Lines, r.record.After+1, first-1)}
	}
	err := s.headers(ctx, r.record.After+1, func(h nats.Header, sequence uint64) error {
		p, err := packOf(r.id, h)
		if err != nil {
			return fatal{fmt.Errorf("message %d of EVENTS has headers that no import made: %w", sequence, err)}
		}
		if p == nil || p.last <= r.record.Lines {
			return nil
		}
		p.sequence = sequence
		if r.stored[p.first] == nil {
			r.stored[p.first] = p
		}
		r.island = max(r.island, p.last)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read back what was imported: %w", err)
	}
	if len(r.stored) > 0 {
		r.log.Info("import: the log has more than was recorded", "import", r.id, "lines", r.record.Lines, "packs", len(r.stored))
	}
	return nil
}

// headers visits the packs of all producers in EVENTS from a sequence on, as
// far as they are there now.
func (s *session) headers(ctx context.Context, from uint64, visit func(nats.Header, uint64) error) error {
	consumer, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: packSubject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return err
	}
	i := consumer.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.stream.DeleteConsumer(ctx, i.Name) // or the server forgets it
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(readBackTimeout, cancel)
	defer late.Stop()
	for seen := uint64(0); seen < i.NumPending; late.Reset(readBackTimeout) {
		batch, err := consumer.Fetch(int(min(readBackBatch, i.NumPending-seen)), jetstream.FetchContext(ctx))
		if err != nil {
			return err
		}
		before := seen
		for m := range batch.Messages() {
			seen++
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if meta.Sequence.Consumer != seen {
				return fmt.Errorf("message %d came for %d", meta.Sequence.Consumer, seen)
			}
			if err := visit(m.Headers(), meta.Sequence.Stream); err != nil {
				return err
			}
		}
		switch err := errors.Join(batch.Error(), ctx.Err()); {
		case err != nil:
			return err
		case seen == before:
			return errors.New("the server sends nothing")
		}
	}
	return nil
}

// recall settles the question whether the log has a pack already.
func (r *run) recall(p *pack) error {
	found := r.stored[p.first]
	if found != nil && found.last == p.last && found.hash == p.hash {
		p.sequence = found.sequence
		return nil
	}
	for _, q := range r.stored {
		if q.first <= p.last && q.last >= p.first {
			return r.differs(p, q)
		}
	}
	if p.last < r.island && p.last > r.warned {
		r.warned = p.last
		r.log.Warn("import: lines come late: the log has later ones already", "import", r.id, "lines", p.lines())
	}
	return nil
}

func (r *run) differs(p, q *pack) error {
	return fatal{fmt.Errorf("%w: its lines %s are not those that have been imported as lines %s; to import it by itself, give it a name of its own (--name)",
		ErrDiffers, p.lines(), q.lines())}
}
