package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A letter that is sent again becomes an event once, whatever is interrupted:
//
//	I. Before letters are sent, their sequences are written to the bucket (the
//	   journal), with where EVENTS ended then.
//	II. The event's Nats-Msg-Id is made of the letter's sequence, not of its
//	   text. When it is stored, the letter is deleted.
//	III. Who finds sequences in the journal reads back what EVENTS has behind
//	   the place noted there: an event with the id is the one that was sent, and
//	   its letter is deleted now. Then the journal is cleared. Where EVENTS does
//	   not begin early enough to tell, it stays, and nothing is sent.
//
// So beyond the server's window of duplicates the log itself says what was
// sent, and only what an interrupted run left has to be looked for. The journal
// is written by compare-and-set. Who finds it open waits whether it still
// changes, and who has not written it for journalFresh writes it again before
// it sends: as with imports, two that resend at once are told, and should they
// send the same, the stream keeps one.

const (
	journalKey = "resend"
	// journalFresh: what was sent after the journal was last written is stored
	// by then, or its sender knows that it may not be.
	journalFresh = 5 * time.Second
	// ResendMax is how many letters are sent at once.
	ResendMax = 256
	// resentMax is how many letters that were sent are remembered, the last
	// ones, so that asking for one again gets an answer better than "not there".
	resentMax = 1000
	// filtersMax bounds the subjects a consumer is given.
	filtersMax = 32

	// HeaderResent of an event says which letter it was, by its sequence in
	// DEADLETTER.
	HeaderResent = carriedPrefix + "Resent"
)

// ErrResending: another process sends letters again at this moment.
var ErrResending = errors.New("jetlog: another process sends dead letters again at this moment")

// journal is what the bucket keeps of letters that are sent again.
type journal struct {
	Letters time.Time  `json:"letters"` // when DEADLETTER was created
	Events  time.Time  `json:"events"`  // when EVENTS was created
	After   uint64     `json:"after"`   // its last sequence before the open ones were sent
	Open    []outgoing `json:"open,omitempty"`
	Sent    []Resent   `json:"sent,omitempty"` // the oldest first
}

type outgoing struct {
	Sequence uint64 `json:"seq"`
	Subject  string `json:"subject"`
}

// Resent says which event a letter became.
type Resent struct {
	Sequence uint64            `json:"seq"` // in DEADLETTER
	Position pipeline.Position `json:"position,string"`
}

// Mended is a letter as it is to be sent again.
type Mended struct {
	Letter  *Letter
	Subject string // in EVENTS
	Body    []byte
}

// Resender sends letters again. One goroutine uses it.
type Resender struct {
	box      *LetterBox
	js       jetstream.JetStream
	events   jetstream.Stream
	bucket   jetstream.KeyValue
	journal  journal
	revision uint64
	written  time.Time
	fresh    time.Duration
}

// Resender opens the journal and finishes what an interrupted run has left,
// which takes some seconds. ErrResending when another process is at it.
func (b *LetterBox) Resender(ctx context.Context) (*Resender, error) {
	return b.resender(ctx, journalFresh)
}

func (b *LetterBox) resender(ctx context.Context, fresh time.Duration) (*Resender, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(ResendMax+1), jetstream.WithPublishAsyncTimeout(letterTimeout))
	if err != nil {
		return nil, err
	}
	r := &Resender{box: b, js: js, fresh: fresh}
	if r.events, err = js.Stream(ctx, EventsStream); err != nil {
		return nil, fmt.Errorf("jetlog: open %s: %w", EventsStream, err)
	}
	if r.bucket, err = js.KeyValue(ctx, Bucket); err != nil {
		return nil, fmt.Errorf("jetlog: open bucket %s: %w", Bucket, err)
	}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	if len(r.journal.Open) == 0 {
		return r, nil
	}
	was := r.revision
	select {
	case <-time.After(r.fresh):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	if r.revision != was {
		return nil, ErrResending
	}
	return r, r.finish(ctx)
}

// load reads the journal. One of other streams says nothing of these.
func (r *Resender) load(ctx context.Context) error {
	r.journal, r.revision = journal{}, 0
	e, err := r.bucket.Get(ctx, journalKey)
	if err == nil {
		r.revision = e.Revision()
		err = json.Unmarshal(e.Value(), &r.journal)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("jetlog: read key %s of bucket %s: %w", journalKey, Bucket, err)
	}
	letters, err := r.box.State(ctx)
	if err != nil {
		return err
	}
	events, err := r.events.Info(ctx)
	if err != nil {
		return fmt.Errorf("jetlog: look at %s: %w", EventsStream, err)
	}
	if !r.journal.Letters.Equal(letters.Created) {
		r.journal = journal{Letters: letters.Created}
	}
	if !r.journal.Events.Equal(events.Created) {
		r.journal.Events, r.journal.After, r.journal.Sent = events.Created, 0, nil
	}
	return nil
}

func (r *Resender) write(ctx context.Context) error {
	b, err := json.Marshal(r.journal)
	if err != nil {
		return err
	}
	now := time.Now()
	if r.revision == 0 {
		r.revision, err = r.bucket.Create(ctx, journalKey, b)
	} else {
		r.revision, err = r.bucket.Update(ctx, journalKey, b, r.revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return ErrResending
	}
	if err != nil {
		return fmt.Errorf("jetlog: write key %s of bucket %s: %w", journalKey, Bucket, err)
	}
	r.written = now
	return nil
}

// Position is where the event of a letter is that was sent before; 0 when that
// is not known.
func (r *Resender) Position(sequence uint64) pipeline.Position {
	for _, s := range slices.Backward(r.journal.Sent) {
		if s.Sequence == sequence {
			return s.Position
		}
	}
	return 0
}

// Send publishes letters, ResendMax of them at most, and deletes them from
// DEADLETTER. It returns those that are in the log. With an error the others
// may be: a Resender opened later knows, and this one is not used any more.
func (r *Resender) Send(ctx context.Context, letters []Mended) ([]Resent, error) {
	i, err := r.events.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("jetlog: look at %s: %w", EventsStream, err)
	}
	r.journal.After = i.State.LastSeq
	for _, m := range letters {
		r.journal.Open = append(r.journal.Open, outgoing{m.Letter.Sequence, m.Subject})
	}
	if err := r.write(ctx); err != nil {
		return nil, err
	}
	sent, failed := r.publish(ctx, letters)
	if err := r.settle(ctx, sent); err != nil {
		return sent, errors.Join(failed, err)
	}
	if failed != nil {
		return sent, failed // the journal stays open
	}
	r.journal.Open = nil
	return sent, r.write(ctx)
}

func (r *Resender) publish(ctx context.Context, letters []Mended) (sent []Resent, failed error) {
	var futures []jetstream.PubAckFuture
	for _, m := range letters {
		if time.Since(r.written) > r.fresh {
			if failed = r.write(ctx); failed != nil {
				break
			}
		}
		f, err := r.js.PublishMsgAsync(r.message(m), jetstream.WithRetryAttempts(0))
		if failed = err; err != nil {
			break
		}
		futures = append(futures, f)
	}
	for n, f := range futures {
		select {
		case ack := <-f.Ok():
			sent = append(sent, Resent{letters[n].Letter.Sequence, pipeline.At(ack.Sequence, 0)})
		case err := <-f.Err():
			failed = fmt.Errorf("jetlog: send dead letter %d again: %w", letters[n].Letter.Sequence, err)
		case <-ctx.Done():
			return sent, ctx.Err()
		}
	}
	return sent, failed
}

// message is a letter as an event. The headers that the event had come along,
// but for those that act on the stream (Nats-) and those that are ours: an
// import must not take it for its own.
func (r *Resender) message(m Mended) *nats.Msg {
	out := &nats.Msg{Subject: m.Subject, Data: m.Body, Header: nats.Header{
		jetstream.MsgIDHeader:          {r.id(m.Letter.Sequence)},
		jetstream.ExpectedStreamHeader: {EventsStream},
		HeaderResent:                   {strconv.FormatUint(m.Letter.Sequence, 10)},
	}}
	for name, values := range m.Letter.Header {
		if !hasPrefixFold(name, "Nats-") && !hasPrefixFold(name, carriedPrefix) {
			out.Header[name] = values
		}
	}
	return out
}

func (r *Resender) id(sequence uint64) string {
	return fmt.Sprintf("resend-%x-%d", r.journal.Letters.UnixNano(), sequence)
}

// settle deletes letters that became events.
func (r *Resender) settle(ctx context.Context, sent []Resent) error {
	for _, s := range sent {
		err := r.box.stream.DeleteMsg(ctx, s.Sequence)
		if err != nil {
			// The error does not say whether there was none to delete: it was
			// discarded, or purged, or deleted by a run that was interrupted then.
			if _, there := r.box.stream.GetMsg(ctx, s.Sequence); errors.Is(there, jetstream.ErrMsgNotFound) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("jetlog: delete dead letter %d, which was sent again: %w", s.Sequence, err)
		}
	}
	r.journal.Sent = append(r.journal.Sent, sent...)
	r.journal.Sent = slices.Clone(r.journal.Sent[max(0, len(r.journal.Sent)-resentMax):])
	return nil
}

// finish settles what an interrupted run has left.
func (r *Resender) finish(ctx context.Context) error {
	open := map[string]uint64{}
	subjects := map[string]bool{}
	for _, o := range r.journal.Open {
		open[r.id(o.Sequence)] = o.Sequence
		subjects[o.Subject] = true
	}
	var sent []Resent
	err := r.readBack(ctx, slices.Sorted(maps.Keys(subjects)), func(id string, sequence uint64) {
		if letter, ok := open[id]; ok {
			delete(open, id)
			sent = append(sent, Resent{letter, pipeline.At(sequence, 0)})
		}
	})
	if err != nil {
		return fmt.Errorf("jetlog: read back which letters were sent: %w", err)
	}
	if err := r.settle(ctx, sent); err != nil {
		return err
	}
	unknown, err := r.unknown(ctx, open)
	if err != nil {
		return err
	}
	r.journal.Open = unknown
	if err := r.write(ctx); err != nil || len(unknown) == 0 {
		return err
	}
	return r.untold()
}

// unknown are those of the open letters that were not found, and that may have
// been sent all the same: EVENTS does not go back to where they would be. Looked
// at after the reading, since its beginning may have been removed meanwhile.
// Letters that are deleted are not sent any more, so that nothing is to be known.
func (r *Resender) unknown(ctx context.Context, open map[string]uint64) (unknown []outgoing, err error) {
	events, err := r.events.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("jetlog: look at %s: %w", EventsStream, err)
	}
	if events.State.FirstSeq <= r.journal.After+1 {
		return nil, nil
	}
	for _, o := range r.journal.Open {
		if _, is := open[r.id(o.Sequence)]; !is {
			continue
		}
		_, err := r.box.stream.GetMsg(ctx, o.Sequence)
		switch {
		case err == nil:
			unknown = append(unknown, o)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, fmt.Errorf("jetlog: read dead letter %d: %w", o.Sequence, err)
		}
	}
	return unknown, nil
}

// untold says that it cannot be told which of the open letters were sent.
func (r *Resender) untold() error {
	letters := make([]string, 0, len(r.journal.Open))
	for _, o := range r.journal.Open {
		letters = append(letters, strconv.FormatUint(o.Sequence, 10))
	}
	return fmt.Errorf("jetlog: an interrupted resend may have sent dead letters %s, and %s does not hold the messages behind %d any more that would tell: "+
		"delete those that are counted (nats stream rmm %s SEQ); if the others are not, delete the journal (nats kv del %s %s), and they can be sent again",
		strings.Join(letters, ", "), EventsStream, r.journal.After, DeadLetterStream, Bucket, journalKey)
}

// readBack visits the ids of the messages behind the journal's place that are
// there now.
func (r *Resender) readBack(ctx context.Context, subjects []string, visit func(id string, sequence uint64)) error {
	c := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.journal.After + 1,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, InactiveThreshold: time.Minute,
	}
	plain := func(s string) bool { return !strings.ContainsAny(s, "*>") }
	if len(subjects) <= filtersMax && !slices.ContainsFunc(subjects, func(s string) bool { return !plain(s) }) {
		c.FilterSubjects = subjects
	}
	consumer, err := r.events.CreateConsumer(ctx, c)
	if err != nil {
		return err
	}
	i := consumer.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = r.events.DeleteConsumer(ctx, i.Name) // or the server forgets it
	}()
	for seen := uint64(0); seen < i.NumPending; {
		batch, err := consumer.Fetch(int(min(visitBatch, i.NumPending-seen)), jetstream.FetchMaxWait(visitPatience))
		if err != nil {
			return err
		}
		before := seen
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if seen++; meta.Sequence.Consumer != seen {
				return fmt.Errorf("message %d came for %d", meta.Sequence.Consumer, seen)
			}
			visit(m.Headers().Get(jetstream.MsgIDHeader), meta.Sequence.Stream)
		}
		if err := errors.Join(batch.Error(), ctx.Err()); err != nil {
			return err
		}
		if seen == before {
			return errors.New("the server sends nothing")
		}
	}
	return nil
}

// Subject is the subject on which a letter's event came; "" when EVENTS does
// not have it any more.
func (r *Resender) Subject(ctx context.Context, l *Letter) (string, error) {
	if l.Position == 0 {
		return "", nil
	}
	m, err := r.events.GetMsg(ctx, l.Position.Sequence())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("jetlog: read message %d of %s: %w", l.Position.Sequence(), EventsStream, err)
	case !strings.HasPrefix(m.Subject, EventsSubject):
		return "", nil // published again behind a lost tail
	}
	return m.Subject, nil
}
