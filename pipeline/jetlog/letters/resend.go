package letters

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// An event that was refused is sent again once, however many letters there are of it
// and whatever is interrupted. EVENTS itself sees to that:
//
//	events.resent.<position>-<checksum>    of the event that was refused (EventID)
//
// is the subject of the event that is sent again, whatever its type, and it is stored
// on condition that the subject has no message. Its type is in a header, and a
// source gives readers the subject of that type. A letter whose subject has a message was
// sent before: it is deleted, as is one that was sent now. A trim does the same
// before it removes such a message (SettleBelow), so that no letter is left of it.

const (
	// ResendMax is how many letters are sent at once.
	ResendMax = 256
	// subjectNotEmpty is the server's code where a subject has a message and must
	// have none.
	subjectNotEmpty = 10071
)

// resentSubject is the subject of a letter's event when it is sent again. A message that is no
// node's letter has none that is ever used.
func (l *Letter) resentSubject() string {
	event, _ := l.Event()
	return jetlog.ResentSubject + event.String()
}

// Resent says which event a letter became.
type Resent struct {
	Sequence uint64            `json:"seq"` // in DEADLETTER
	Position pipeline.Position `json:"position,string"`
	Before   bool              `json:"-"` // it was sent before, or another letter of the event was
}

// Mended is a letter as it is to be sent again.
type Mended struct {
	Letter *Letter
	Type   string // of the event
	Body   []byte
}

// Resender sends letters again. One goroutine uses it.
type Resender struct {
	box *Box
	js  jetstream.JetStream
}

// Resender sends letters again.
func (b *Box) Resender() (*Resender, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(ResendMax+1), jetstream.WithPublishAsyncTimeout(letterTimeout))
	return &Resender{b, js}, err
}

// Sent is where the event of a letter is that was sent before; 0: it was not.
func (r *Resender) Sent(ctx context.Context, l *Letter) (pipeline.Position, error) {
	m, err := jetlog.LastStored(ctx, r.js.Conn(), jetlog.EventsStream, l.resentSubject())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("letters: look in %s whether dead letter %d was sent again: %w", jetlog.EventsStream, l.Sequence, err)
	}
	return pipeline.At(m.Sequence, 0), nil
}

// Settle deletes a letter whose event was sent before, and returns that; the zero: it was
// not sent.
func (r *Resender) Settle(ctx context.Context, l *Letter) (Resent, error) {
	at, err := r.Sent(ctx, l)
	if err != nil || at == 0 {
		return Resent{}, err
	}
	sent := Resent{l.Sequence, at, true}
	return sent, r.settle(ctx, []Resent{sent})
}

// Send publishes letters, ResendMax of them at most, and deletes them from
// DEADLETTER. It returns those that are in the log. With an error the others may be
// too: another Send of them finds out.
func (r *Resender) Send(ctx context.Context, letters []Mended) ([]Resent, error) {
	sent, failed := r.publish(ctx, letters)
	return sent, errors.Join(failed, r.settle(ctx, sent))
}

// settle deletes letters that were sent.
func (r *Resender) settle(ctx context.Context, sent []Resent) error {
	for _, s := range sent {
		if err := r.box.remove(ctx, s.Sequence); err != nil {
			return fmt.Errorf("letters: delete dead letter %d, which was sent again: %w", s.Sequence, err)
		}
	}
	return nil
}

func (r *Resender) publish(ctx context.Context, letters []Mended) (sent []Resent, failed error) {
	var futures []jetstream.PubAckFuture
	for _, m := range letters {
		f, err := r.js.PublishMsgAsync(r.message(m), jetstream.WithRetryAttempts(0))
		if failed = err; err != nil {
			break
		}
		futures = append(futures, f)
	}
	for n, f := range futures {
		letter := letters[n].Letter
		select {
		case ack := <-f.Ok():
			sent = append(sent, Resent{letter.Sequence, pipeline.At(ack.Sequence, 0), false})
		case err := <-f.Err():
			at, err := r.before(ctx, letter, err)
			if err != nil {
				failed = fmt.Errorf("letters: send dead letter %d again: %w", letter.Sequence, err)
				continue
			}
			sent = append(sent, Resent{letter.Sequence, at, true})
		case <-ctx.Done():
			return sent, ctx.Err()
		}
	}
	return sent, failed
}

// before is where the event is that was sent before, if that is why the server
// refused to store it.
func (r *Resender) before(ctx context.Context, l *Letter, refused error) (pipeline.Position, error) {
	api, is := errors.AsType[*jetstream.APIError](refused)
	if !is || api.ErrorCode != subjectNotEmpty {
		return 0, refused
	}
	at, err := r.Sent(ctx, l)
	if err == nil && at == 0 {
		err = refused // it has been trimmed since
	}
	return at, err
}

// message is a letter as an event. The headers that the event had come along,
// but for those that act on the stream (Nats-) and those that are ours: an
// import must not take it for its own.
func (r *Resender) message(m Mended) *nats.Msg {
	subject := m.Letter.resentSubject()
	out := &nats.Msg{Subject: subject, Data: m.Body, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {jetlog.EventsStream},
		jetstream.ExpectedLastSubjSeqHeader: {"0"},
		jetlog.HeaderResent:                 {strings.TrimPrefix(subject, jetlog.ResentSubject)},
		jetlog.HeaderType:                   {m.Type},
	}}
	for name, values := range m.Letter.Header {
		if !hasPrefixFold(name, "Nats-") && !hasPrefixFold(name, carriedPrefix) {
			out.Header[name] = values
		}
	}
	return out
}

// remove deletes a letter. One that is not there is none.
func (b *Box) remove(ctx context.Context, sequence uint64) error {
	err := b.stream.DeleteMsg(ctx, sequence)
	if err != nil {
		// The error does not say whether there was none to delete: it was
		// discarded, or purged, or deleted by another run.
		if _, there := jetlog.GetStored(ctx, b.nc, jetlog.DeadLetterStream, sequence); errors.Is(there, jetstream.ErrMsgNotFound) {
			return nil
		}
	}
	return err
}

// SettleBelow deletes the letters of events that were sent again and stand in EVENTS
// before a sequence. It is called before these are removed (Streams.Trim): nothing else
// says that they were sent.
func SettleBelow(ctx context.Context, s *jetlog.Streams, below uint64) error {
	fail := func(err error) error {
		return fmt.Errorf("letters: look for events of %s that were sent again: %w", jetlog.EventsStream, err)
	}
	events, err := s.JetStream().Stream(ctx, jetlog.EventsStream)
	if err != nil {
		return fail(err)
	}
	first, err := jetlog.NextStored(ctx, s.Conn(), jetlog.EventsStream, 1, jetlog.ResentSubject+">")
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && first.Sequence >= below {
		return nil
	}
	if err != nil {
		return fail(err)
	}
	box, err := OpenBox(ctx, s.Conn())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // there are no letters
	}
	if err != nil {
		return err
	}
	sent, err := events.Info(ctx, jetstream.WithSubjectFilter(jetlog.ResentSubject+">"))
	if err != nil {
		return fail(err)
	}
	return box.settle(ctx, sent.State.Subjects)
}

// settle deletes the letters of events that have one of the subjects.
func (b *Box) settle(ctx context.Context, sent map[string]uint64) error {
	return b.Visit(ctx, 1, "", func(l *Letter) error {
		if sent[l.resentSubject()] == 0 {
			return nil
		}
		return b.remove(ctx, l.Sequence)
	})
}
