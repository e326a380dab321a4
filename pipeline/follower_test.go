package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
)

// What is not EVENTS may lose messages while nodes run: a window that was deleted
// before this node has read it is derived. One that does not go on where the window
// next to it ends is a fault, and left to the shards.
func TestDeletedWindowIsDerived(t *testing.T) {
	of := func(sequence, from, to uint64) Entry {
		h := Header{From: EndOf(from), To: EndOf(to)}
		return Entry{Sequence: sequence, Window: AppendWindow(nil, &Window{Header: h, Sections: [][]byte{nil}})}
	}
	for _, c := range []struct {
		name    string
		entries []Entry
		handed  []uint64 // where what was handed over begins
	}{
		{"all there", []Entry{of(3, 20, 30), of(4, 30, 40)}, []uint64{20, 30}},
		{"one is gone", []Entry{of(3, 20, 30), of(5, 40, 42)}, []uint64{20, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 40}},
		{"the first", []Entry{of(4, 22, 23), of(5, 23, 24)}, []uint64{20, 21, 22, 22, 23}},
		{"a fault", []Entry{of(3, 20, 30), of(4, 35, 40)}, []uint64{20, 35}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards := &remembering{at: EndOf(20), after: 2}
			over := errors.New("seen")
			f := Follower{
				Guard:  NewGuard(shards, eventsUpTo(100), &purgedLog{first: 1}, slog.New(slog.DiscardHandler)),
				Lane:   func() Deriver { return unmerged{} },
				Tailer: func(context.Context, uint64) (Tailer, error) { return &told{c.entries, over}, nil },
			}
			if err := f.Follow(t.Context()); !errors.Is(err, over) || !slices.Equal(shards.handed, c.handed) {
				t.Errorf("%v; windows after %d were handed over, want %d", err, shards.handed, c.handed)
			}
		})
	}
}

// told gives some entries, then an error.
type told struct {
	entries []Entry
	end     error
}

func (l *told) Next(context.Context) ([]Entry, error) {
	if len(l.entries) == 0 {
		return nil, l.end
	}
	some := l.entries[:1]
	l.entries = l.entries[1:]
	return some, nil
}
func (l *told) Close() error { return nil }

// remembering is shards, all at one position, that know after which events the windows began.
type remembering struct {
	at     Position
	after  uint64 // the window
	handed []uint64
}

func (s *remembering) Hand(_ context.Context, e Entry) error {
	h, err := DecodeHeader(e.Window)
	s.handed = append(s.handed, h.From.Sequence())
	s.at = max(s.at, h.To)
	return err
}
func (s *remembering) Settle(context.Context) error { return nil }
func (s *remembering) Sequence() uint64             { return s.after }
func (s *remembering) Resume(after uint64)          { s.after = after }
func (s *remembering) Positions() []Position        { return []Position{s.at} }
func (s *remembering) Kept() []Position             { return []Position{s.at} }
func (s *remembering) Handed() Position             { return s.at }
func (s *remembering) Furthest() (Position, int64)  { return 0, 0 } // none stands: nothing is lost
func (s *remembering) Stopped() bool                { return false }
func (s *remembering) Err() error                   { return nil }

// purgedLog is windows of ten events each, from the first one that there is.
type purgedLog struct {
	emptyLog
	first uint64
}

func (l *purgedLog) First(ctx context.Context) (Header, uint64, error) {
	h, err := l.At(ctx, l.first)
	return h, l.first, err
}

func (l *purgedLog) At(_ context.Context, sequence uint64) (Header, error) {
	if sequence < l.first {
		return Header{}, errors.New("purged")
	}
	return Header{From: EndOf(10 * (sequence - 1)), To: EndOf(10 * sequence)}, nil
}

// eventsUpTo is an EVENTS of so many messages.
type eventsUpTo uint64

func (e eventsUpTo) Open(_ context.Context, from Position) (Source, error) {
	return &remaining{from.Next(), uint64(e)}, nil
}

func (e eventsUpTo) Holds(context.Context, uint64, int64) error { return nil }

// remaining gives a message at a time.
type remaining struct{ next, last uint64 }

func (r *remaining) Next(context.Context) ([]Message, error) {
	if r.next > r.last {
		return nil, errors.New("EVENTS is at its end")
	}
	r.next++
	return []Message{{Sequence: r.next - 1}}, nil
}
func (r *remaining) Close() error { return nil }

// unmerged makes windows that change nothing.
type unmerged struct{}

func (unmerged) Derive(from, to Position, _ []Message) ([]Derived, error) {
	h := Header{From: from, To: to}
	return []Derived{{Header: h, Window: AppendWindow(nil, &Window{Header: h, Sections: [][]byte{nil}})}}, nil
}

// emptyLog never had a window.
type emptyLog struct{}

func (emptyLog) Tail(context.Context) (Header, uint64, error)           { return Header{}, 0, nil }
func (emptyLog) First(context.Context) (Header, uint64, error)          { return Header{}, 0, nil }
func (emptyLog) At(context.Context, uint64) (Header, error)             { return Header{}, errors.New("none") }
func (emptyLog) Append(context.Context, uint64, []byte) (uint64, error) { return 1, nil }
