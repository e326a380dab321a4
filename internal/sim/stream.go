package sim

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Stored is a message as a stream holds it. It does not change.
type Stored struct {
	Sequence uint64
	Time     time.Time
	Subject  string
	Header   map[string][]string
	Data     []byte
	Tag      any // whatever its producer wants to know it by; a copy has it too
}

// stream is a JetStream stream in memory. The server's lock guards it.
//
//	first ≤ sequences held ≤ last; last ≤ synced is what a power cut leaves
type stream struct {
	name        string
	created     time.Time
	first, last uint64
	synced      uint64
	held        map[uint64]*Stored
	ids         map[string]remembered // Nats-Msg-Id
}

// remembered is where a message id was stored, and when.
type remembered struct {
	sequence uint64
	at       time.Time
}

func newStream(name string, created time.Time) *stream {
	return &stream{name: name, created: created, held: map[uint64]*Stored{}, ids: map[string]remembered{}}
}

func (s *stream) state() jetlog.StreamState {
	state := jetlog.StreamState{Name: s.name, Created: s.created, First: s.first, Last: s.last, Messages: uint64(len(s.held))}
	for _, m := range s.held {
		state.Bytes += uint64(len(m.Data))
	}
	return state
}

// store appends m. A message id that the stream remembers is stored once:
// the sequence it got is the answer again.
func (s *stream) store(m Stored, now time.Time) uint64 {
	id := ""
	if of := m.Header[msgID]; len(of) > 0 {
		id = of[0]
	}
	if have, ok := s.ids[id]; ok && id != "" && now.Sub(have.at) < jetlog.DuplicateWindow {
		return have.sequence
	}
	s.last++
	s.first = max(s.first, 1)
	m.Sequence, m.Time = s.last, now
	s.held[s.last] = &m
	if id != "" {
		s.ids[id] = remembered{s.last, now}
	}
	return s.last
}

const msgID = "Nats-Msg-Id"

// remove takes one message away.
func (s *stream) remove(sequence uint64) {
	delete(s.held, sequence)
	s.closeFront()
}

// purge takes away what is below a sequence.
func (s *stream) purge(below uint64) {
	below = min(below, s.last+1)
	for seq := s.first; seq < below; seq++ {
		delete(s.held, seq)
	}
	s.first = max(s.first, below)
	s.closeFront()
}

// closeFront moves first to what is there; an emptied stream has first = last+1.
func (s *stream) closeFront() {
	for s.first <= s.last && s.held[s.first] == nil {
		s.first++
	}
}

// cut takes away the tail behind a sequence, as a power cut does, and forgets
// the ids that were in it.
func (s *stream) cut(last uint64) {
	if last >= s.last {
		return
	}
	for seq := last + 1; seq <= s.last; seq++ {
		delete(s.held, seq)
	}
	for id, at := range s.ids {
		if at.sequence > last {
			delete(s.ids, id)
		}
	}
	s.last, s.synced = last, last
	s.first = min(s.first, last+1)
}

// after are the messages behind a sequence, in order, at most n.
func (s *stream) after(sequence uint64, n int) (messages []*Stored) {
	for seq := max(sequence+1, s.first); seq <= s.last && len(messages) < n; seq++ {
		if m := s.held[seq]; m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

// same is an error when the stream is not the one that was opened (I10).
func (s *stream) same(created time.Time) error {
	if s.created.Equal(created) {
		return nil
	}
	return fmt.Errorf("%w: %s was created %v, the one opened %v", jetlog.ErrTail, s.name, s.created, created)
}
