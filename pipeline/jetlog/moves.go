package jetlog

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// HeaderMoved is on the copy of a message that was published again: the
// original's sequence and timestamp (Unix ns).
const HeaderMoved = "Tidemark-Moved"

const (
	// MovesMax is how many copies EVENTS may hold: far more than power cuts leave,
	// and 59 MB of memory for a reader.
	MovesMax = 1_000_000
)

// ErrMoves says that EVENTS holds, or would have to hold, more copies than
// MovesMax. Nothing can be deleted from it, so that does not pass.
var ErrMoves = fmt.Errorf("jetlog: more than %d messages of %s were published again, so it is no stream that lost its tail: "+
	"stop producers and nodes, delete the stream and run 'tidemark repair --adopt' on each node, which keeps the counts; "+
	"then deny everybody but nodes to publish to %s> (docs/security.md, Who may do what)", MovesMax, EventsStream, InternalPrefix)

// Original names a message that was published again. A sequence alone does not:
// it may have been used more than twice.
type Original struct {
	Sequence uint64
	Nanos    int64 // its timestamp in the stream, Unix
}

// Moves are the messages of EVENTS that stand at sequences which had been used before a
// lost tail, and were published again at the end (Events.Reclaim): the sequence of each
// one's copy. EVENTS cannot be deleted from, so they stay where they are and mean
// nothing there; the copy is the event, and says so itself. Every reader of EVENTS
// reads it through Moves: what a message means follows from the stream alone.
type Moves map[Original]uint64

// Note takes in a message, which may be a copy. Of several copies the first is
// the one.
func (m Moves) Note(p *pipeline.Message) {
	if of, is := copyOf(p); is {
		if first, known := m[of]; !known || p.Sequence < first {
			m[of] = p.Sequence
		}
	}
}

// Read is what a message means where it stands, with its stream's timestamp in
// Unix nanoseconds: the event; or, when it was moved, or is a copy of what has
// one already, a filler.
func (m Moves) Read(p pipeline.Message, nanos int64) pipeline.Message {
	m.Note(&p)
	return m.known(p, nanos)
}

// known is Read of a message that takes in nothing: all copies are known.
func (m Moves) known(p pipeline.Message, nanos int64) pipeline.Message {
	of, isCopy := copyOf(&p)
	_, moved := m[Original{p.Sequence, nanos}]
	switch {
	case moved || isCopy && m[of] != p.Sequence:
		p.Subject, p.Header, p.Data = FillerSubject, map[string][]string{HeaderFiller: {"1"}}, nil
	case isCopy:
		p.Subject = EventsSubject + typeOf(p.Subject)
	case len(p.Header[HeaderMoved]) > 0: // any client can send it: readers take it for a copy's
		p.Header = maps.Clone(p.Header)
		delete(p.Header, HeaderMoved)
	}
	p.Subject = resentAs(p.Subject, p.Header)
	return p
}

// copyOf is of which message p is a copy.
func copyOf(p *pipeline.Message) (of Original, is bool) {
	if !strings.HasPrefix(p.Subject, MovedSubject) || len(p.Header[HeaderMoved]) != 1 {
		return of, false
	}
	_, err := fmt.Sscanf(p.Header[HeaderMoved][0], "%d %d", &of.Sequence, &of.Nanos)
	return of, err == nil && of.Sequence < p.Sequence
}

// MarkAsCopy turns what is to be published into a copy of a message, which
// stands under moved (movedSubject).
func MarkAsCopy(moved, subject string, header map[string][]string, of Original) (copied string) {
	header[HeaderMoved] = []string{fmt.Sprintf("%d %d", of.Sequence, of.Nanos)}
	return moved + typeOf(subject)
}

// typeOf is the type of an event, or of a copy of one, by its subject.
func typeOf(subject string) string {
	if of, is := strings.CutPrefix(subject, MovedSubject); is {
		_, of, _ = strings.Cut(of, ".") // the token
		return of
	}
	return strings.TrimPrefix(subject, EventsSubject)
}

// newMoved is a subject for copies that nobody can guess: a message there takes an
// event away from where it stands.
func newMoved() string { return MovedSubject + nuid.Next() + ".>" }

// isMoved says whether subjects are those of an EVENTS that copies can stand in.
func isMoved(subjects []string) bool {
	if len(subjects) != 2 || subjects[0] != EventsSubject+">" {
		return false
	}
	token, is := strings.CutPrefix(subjects[1], MovedSubject)
	token, all := strings.CutSuffix(token, ".>")
	return is && all && token != "" && !strings.ContainsAny(token, ".*>")
}

// movedSubject begins the subjects of copies in an EVENTS.
func movedSubject(stream jetstream.Stream) (string, error) {
	subjects := stream.CachedInfo().Config.Subjects
	if !isMoved(subjects) {
		return "", fmt.Errorf("%s has the subjects %v: no copies can stand in it", EventsStream, subjects)
	}
	return strings.TrimSuffix(subjects[1], ">"), nil
}

// LoadMoves reads the copies that EVENTS holds, their headers alone. They have
// subjects of their own, so this costs a consumer, and nothing more where there
// are none.
func LoadMoves(ctx context.Context, js jetstream.JetStream) (Moves, error) {
	return loadMoves(ctx, js, MovesMax)
}

func loadMoves(ctx context.Context, js jetstream.JetStream, most uint64) (Moves, error) {
	moves, copies := Moves{}, uint64(0)
	all := jetstream.ConsumerConfig{FilterSubject: MovedSubject + ">"}
	err := VisitHeaders(ctx, js, EventsStream, all, func(m *Stored) error {
		if copies++; copies > most {
			return ErrMoves
		}
		moves.Note(&pipeline.Message{Sequence: m.Sequence, Subject: m.Subject, Header: m.Header})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for messages published again: %w", err)
	}
	return moves, nil
}
