package importer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The headers of a pack.
const (
	headerImport = "Tidemark-Import"       // the import's id
	headerLines  = "Tidemark-Import-Lines" // "257-512": its lines, blank ones not counted
	headerHash   = "Tidemark-Import-Hash"  // of all lines up to its last one
)

func (p *pack) lines() string { return fmt.Sprintf("%d-%d", p.first, p.last) }

// messageID returns the pack's Nats-Msg-Id.
func (p *pack) messageID(prefix, id string) string {
	return prefix + "import-" + id + "-" + p.lines() + "-" + p.hash.String()
}

func (p *pack) message(prefix, id string) *nats.Msg {
	return &nats.Msg{Subject: jetlog.PackSubject, Data: p.body, Header: nats.Header{
		headerImport:                   {id},
		headerLines:                    {p.lines()},
		headerHash:                     {p.hash.String()},
		jetstream.MsgIDHeader:          {p.messageID(prefix, id)},
		jetstream.ExpectedStreamHeader: {eventsStream},
	}}
}

// packOf is the pack of this import that a message is, by its headers; nil: it is none. Other
// clients may publish the same ones, but for the Nats-Msg-Id.
func packOf(prefix, id string, h nats.Header) *pack {
	p := packIn(id, h)
	if p == nil || h.Get(jetstream.MsgIDHeader) != p.messageID(prefix, id) {
		return nil
	}
	return p
}

// packIn reads the headers of a pack of this import; nil: they are none of it.
func packIn(id string, h nats.Header) *pack {
	p := new(pack)
	first, last, _ := strings.Cut(h.Get(headerLines), "-")
	var errs [3]error
	p.first, errs[0] = strconv.ParseUint(first, 10, 64)
	p.last, errs[1] = strconv.ParseUint(last, 10, 64)
	errs[2] = p.hash.UnmarshalText([]byte(h.Get(headerHash)))
	if errors.Join(errs[:]...) != nil || h.Get(headerImport) != id {
		return nil
	}
	return p
}

// readBack finds the packs that the log has and the record does not count.
func (r *run) readBack(ctx context.Context, s *session) error {
	r.stored = map[uint64]*pack{}
	if info, err := s.stream.Info(ctx); err != nil {
		return fmt.Errorf("read back what was imported: %w", err)
	} else if first := info.State.FirstSeq; first > r.record.After+1 {
		return fatal{fmt.Errorf("import %s was broken off and EVENTS begins with message %d since: it cannot be told which lines after %d stood in messages %d to %d, and sending them again would count them twice; "+
			"cut the file behind what is counted and give it another name (--name)", r.id, first, r.record.Lines, r.record.After+1, first-1)}
	}
	packs := jetstream.ConsumerConfig{
		FilterSubject: jetlog.PackSubject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.record.After + 1,
	}
	err := jetlog.VisitHeaders(ctx, s.js, eventsStream, packs, func(m *jetlog.Stored) error {
		p := packOf(s.idPrefix, r.id, m.Header)
		if p == nil || p.last <= r.record.Lines {
			return nil
		}
		p.sequence = m.Sequence
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
