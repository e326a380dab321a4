package letters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
// on condition that the subject has no message. Its type is in a header, and Moves
// gives readers the subject of that type. A letter whose subject has a message was
// sent before: it is deleted, as is one that was sent now. A trim does the same
// before it removes such a message (SettleBelow), so that no letter is left of it.

const (
	// ResendMax is how many letters are sent at once.
	ResendMax = 256
	// resentMax is how many letters that were sent are remembered, the last
	// ones, so that asking for one again gets an answer better than "not there".
	resentMax = 1000
	resentKey = "resend"

	// subjectNotEmpty is the server's code where a subject has a message and must
	// have none.
	subjectNotEmpty = 10071
)

// resentSubject is the subject of a letter's event when it is sent again. A message
// of DEADLETTER that is no node's letter is an event of its own.
func (l *Letter) resentSubject(letters time.Time) string {
	if event, ok := l.Event(); ok {
		return jetlog.ResentSubject + event.String()
	}
	return fmt.Sprintf("%sletter-%x-%d", jetlog.ResentSubject, letters.UnixNano(), l.Sequence)
}

// Resent says which event a letter became.
type Resent struct {
	Sequence uint64            `json:"seq"` // in DEADLETTER
	Position pipeline.Position `json:"position,string"`
	Before   bool              `json:"-"` // it was sent before, or another letter of the event was
}

// resentNote is what the bucket keeps of letters that were sent again. Nothing is
// decided by it.
type resentNote struct {
	Letters time.Time `json:"letters"` // when DEADLETTER was created
	Events  time.Time `json:"events"`  // when EVENTS was created
	Sent    []Resent  `json:"sent,omitempty"`
}

// Mended is a letter as it is to be sent again.
type Mended struct {
	Letter *Letter
	Type   string // of the event
	Body   []byte
}

// Resender sends letters again. One goroutine uses it.
type Resender struct {
	box    *Box
	js     jetstream.JetStream
	events jetstream.Stream
	bucket jetstream.KeyValue // nil: there is none at the moment
	note   resentNote
}

// Resender opens what it needs.
func (b *Box) Resender(ctx context.Context) (*Resender, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(ResendMax+1), jetstream.WithPublishAsyncTimeout(letterTimeout))
	if err != nil {
		return nil, err
	}
	r := &Resender{box: b, js: js}
	if r.events, err = js.Stream(ctx, jetlog.EventsStream); err != nil {
		return nil, fmt.Errorf("letters: open %s: %w", jetlog.EventsStream, err)
	}
	if r.bucket, err = js.KeyValue(ctx, jetlog.Bucket); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("letters: open bucket %s: %w", jetlog.Bucket, err)
	}
	letters, err := b.State(ctx)
	if err != nil {
		return nil, err
	}
	r.note = r.noted(ctx)
	if events := r.events.CachedInfo().Created; !r.note.Letters.Equal(letters.Created) || !r.note.Events.Equal(events) {
		r.note = resentNote{Letters: letters.Created, Events: events}
	}
	return r, nil
}

// noted reads the note; one that cannot be read says nothing.
func (r *Resender) noted(ctx context.Context) (n resentNote) {
	if r.bucket == nil {
		return n
	}
	e, err := r.bucket.Get(ctx, resentKey)
	if err != nil || json.Unmarshal(e.Value(), &n) != nil {
		return resentNote{}
	}
	return n
}

// Position is where the event of a letter is that was sent before and is deleted; 0
// when that is not known.
func (r *Resender) Position(sequence uint64) pipeline.Position {
	for _, s := range slices.Backward(r.note.Sent) {
		if s.Sequence == sequence {
			return s.Position
		}
	}
	return 0
}

// Sent is where the event of a letter is that was sent before; 0: it was not.
func (r *Resender) Sent(ctx context.Context, l *Letter) (pipeline.Position, error) {
	m, err := jetlog.LastStored(ctx, r.js.Conn(), jetlog.EventsStream, l.resentSubject(r.note.Letters))
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

// settle deletes letters that were sent, and notes them.
func (r *Resender) settle(ctx context.Context, sent []Resent) error {
	for _, s := range sent {
		if err := r.box.remove(ctx, s.Sequence); err != nil {
			return fmt.Errorf("letters: delete dead letter %d, which was sent again: %w", s.Sequence, err)
		}
	}
	return r.remember(ctx, sent)
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
	subject := m.Letter.resentSubject(r.note.Letters)
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

// remember notes letters that were sent, beside what others have noted since.
func (r *Resender) remember(ctx context.Context, sent []Resent) error {
	if len(sent) == 0 || r.bucket == nil {
		return nil
	}
	if now := r.noted(ctx); now.Letters.Equal(r.note.Letters) && now.Events.Equal(r.note.Events) {
		r.note.Sent = now.Sent
	}
	all := append(slices.Clone(r.note.Sent), sent...)
	r.note.Sent = all[max(0, len(all)-resentMax):]
	b, err := json.Marshal(r.note)
	if err == nil {
		_, err = r.bucket.Put(ctx, resentKey, b)
	}
	if err != nil {
		return fmt.Errorf("letters: write key %s of bucket %s: %w", resentKey, jetlog.Bucket, err)
	}
	return nil
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
	state, err := b.State(ctx)
	if err != nil {
		return err
	}
	return b.Visit(ctx, 1, "", func(l *Letter) error {
		if sent[l.resentSubject(state.Created)] == 0 {
			return nil
		}
		return b.remove(ctx, l.Sequence)
	})
}
