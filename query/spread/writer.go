package spread

import (
	"context"
	"errors"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// statusOf is what an asker gets of a holder's error.
func statusOf(err error) (status wire.Status, words string) {
	switch {
	case errors.Is(err, query.ErrElsewhere):
		return wire.Elsewhere, ""
	case errors.Is(err, query.ErrStopped):
		return wire.Stopped, ""
	case errors.Is(err, errRefused):
		return wire.Refused, clip(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return wire.Busy, "not read in time"
	}
	return wire.Failed, clip(err.Error())
}

// writer puts answers into messages.
type writer struct {
	batch *batch
	limit int
	buf   []byte
	begun int // where the answers of the message begin
	from  *[]byte
}

// writer is in memory that is reused: free gives it back.
func (b *batch) writer() *writer {
	from := messages.Get().(*[]byte)
	return &writer{batch: b, limit: int(b.server.nc.MaxPayload()), buf: (*from)[:0], from: from}
}

func (w *writer) free() { keepMessage(w.from, w.buf) }

// begin makes room for a piece.
func (w *writer) begin() {
	if len(w.buf) > w.begun && len(w.buf)+wire.ReplyOverhead+wire.RecordMax > w.limit {
		w.send()
	}
	if len(w.buf) == 0 {
		w.buf = wire.BeginReplies(w.buf, wire.Both(w.batch.version))
		w.begun = len(w.buf)
	}
}

// send sends the message, if there is anything in it.
func (w *writer) send() {
	if len(w.buf) > w.begun {
		w.batch.server.publish(w.batch.reply, w.buf)
	}
	w.reset()
}

// sendTaken sends the message as the one that says that the batch is taken.
func (w *writer) sendTaken() {
	if len(w.buf) == 0 {
		w.buf = wire.BeginReplies(w.buf, wire.Both(w.batch.version))
	}
	wire.SetTaken(w.buf)
	w.batch.server.publish(w.batch.reply, w.buf)
	w.reset()
}

// reset begins another message. buf has whole pieces only, at any time.
func (w *writer) reset() { w.buf, w.begun = w.buf[:0], 0 }

// answer appends the records that appendAnswer makes. After an error there is
// no last piece: another status must follow.
func (w *writer) answer(a *wire.Ask, appendAnswer func(*wire.Pieces) error) error {
	w.begin()
	r := wire.Reply{ID: a.ID, Applied: w.batch.server.holder.Applied()}
	buf, at := wire.BeginReply(w.buf, &r)
	p := &wire.Pieces{Buf: buf, Limit: w.limit - 4}
	p.Cut = func(p *wire.Pieces) {
		wire.EndReply(p.Buf, at, false)
		w.buf = p.Buf
		w.send()
		w.begin()
		r.Piece++
		p.Buf, at = wire.BeginReply(w.buf, &r)
	}
	if err := appendAnswer(p); err != nil {
		return err
	}
	wire.EndReply(p.Buf, at, true)
	w.buf = p.Buf
	w.batch.server.metrics.part(a.Kind, wire.Answered)
	return nil
}

// status answers a part without an answer.
func (w *writer) status(a *wire.Ask, status wire.Status, words string) {
	w.begin()
	w.buf = wire.AppendReply(w.buf, &wire.Reply{ID: a.ID, Status: status, Last: true, Applied: w.batch.server.holder.Applied(), Body: []byte(words)})
	w.batch.server.metrics.part(a.Kind, status)
}

// failed answers a part whose answer is an error; nil: it has one.
func (w *writer) failed(a *wire.Ask, err error) {
	if err == nil {
		return
	}
	status, words := statusOf(err)
	if status == wire.Failed {
		w.batch.server.log.Error("spread: a question could not be answered", "kind", a.Kind.String(), "error", err)
	}
	w.status(a, status, words)
}
