package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
)

// docs/architecture.md: "with an empty log, bring all shards to where the furthest
// stands": the router takes the last of the guard's cuts, which a shard that has stopped
// may have put there.
func TestAnEmptyLogBeginsWhereShardsStand(t *testing.T) {
	shards := &standing{at: EndOf(3), kept: []Position{EndOf(3), EndOf(5)}} // one stopped at 5
	g := NewGuard(shards, eventsUpTo(7), emptyLog{}, slog.New(slog.DiscardHandler))
	f := Follower{Guard: g, Lane: func() Deriver { return unmerged{} }}
	if err := f.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	begins := errors.New("seen")
	var from Position
	r := Router{Log: emptyLog{}, Cuts: g.Cuts, Open: func(_ context.Context, at Position) (Source, error) {
		from = at
		return nil, begins
	}}
	if err := r.Run(t.Context()); !errors.Is(err, begins) {
		t.Fatal(err)
	}
	if shards.at != from {
		t.Errorf("the shards that go on stand at %d, and the log begins at %d", shards.at, from)
	}
}

// DELTAS is purged as before while shards are derived: what they were to go on with may
// be gone when they are there. Then they derive that too, and fail at nothing. A hole in
// the middle of DELTAS is no such thing.
func TestRunGoesOnWhereDeltasBeginsByNow(t *testing.T) {
	over := errors.New("seen")
	for _, c := range []struct {
		name   string
		purges int  // it is purged so often while they join
		hole   bool // a window in the middle is gone too
		joined []uint64
		want   error
	}{
		{"never", 0, false, []uint64{2}, over},
		{"once", 1, false, []uint64{2, 4}, over},
		{"again and again", 4, false, []uint64{2, 4, 6, 8, 10}, over},
		{"a hole", 1, true, []uint64{2, 4}, ErrGap},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &purgedLog{first: 3}
			shards := &sequenced{}
			purges := c.purges
			f := Follower{
				Guard: NewGuard(shards, eventsUpTo(100), log, slog.New(slog.DiscardHandler)),
				Lane: func() Deriver {
					if purges > 0 {
						purges--
						log.first += 2
					}
					return unmerged{}
				},
				Tailer: func(_ context.Context, after uint64) (Tailer, error) {
					switch {
					case after+1 < log.first, c.hole && c.purges > purges && after+1 == log.first:
						return nil, fmt.Errorf("%w: it begins with %d", ErrGap, log.first)
					case shards.at.Sequence() != 10*after:
						t.Errorf("the shards stand at %d, and follow after window %d", shards.at, after)
					}
					return nil, over
				},
			}
			var joined []uint64
			err := f.Run(t.Context(), func(sequence uint64) { joined = append(joined, sequence) })
			if !errors.Is(err, c.want) || !slices.Equal(joined, c.joined) {
				t.Errorf("%v after it went on after windows %d, want %v after %d", err, joined, c.want, c.joined)
			}
		})
	}
}

// shortened is an EVENTS that has lost its tail.
type shortened struct {
	eventsUpTo
	to uint64
}

func (s *shortened) FastForward(_ context.Context, to uint64) error {
	s.to = to
	return nil
}

// standing is shards that go on, all at one position.
type standing struct {
	at   Position
	kept []Position
}

func (s *standing) Hand(_ context.Context, e Entry) error {
	h, err := DecodeHeader(e.Window)
	s.at = h.To
	return err
}
func (s *standing) Settle(context.Context) error { return nil }
func (s *standing) Sequence() uint64             { return 0 }
func (s *standing) Resume(uint64)                {}
func (s *standing) Positions() []Position        { return []Position{s.at} }
func (s *standing) Kept() []Position             { return s.kept }
func (s *standing) Handed() Position             { return s.at }
func (s *standing) Furthest() (Position, int64)  { return s.kept[len(s.kept)-1], 0 }
func (s *standing) Stopped() bool                { return false }
func (s *standing) Err() error                   { return nil }

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
			shards := &remembering{sequenced: sequenced{standing{at: EndOf(20)}, 2}}
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

// remembering is shards that know after which events the windows began.
type remembering struct {
	sequenced
	handed []uint64
}

func (s *remembering) Hand(ctx context.Context, e Entry) error {
	h, err := DecodeHeader(e.Window)
	s.handed = append(s.handed, h.From.Sequence())
	if err == nil && h.To > s.at {
		err = s.sequenced.Hand(ctx, e)
	}
	return err
}

// sequenced is shards that know after which window they go on.
type sequenced struct {
	standing
	after uint64
}

func (s *sequenced) Sequence() uint64      { return s.after }
func (s *sequenced) Resume(after uint64)   { s.after = after }
func (s *sequenced) Positions() []Position { return []Position{s.at} }
func (s *sequenced) Kept() []Position      { return []Position{s.at} }

// Furthest is where none stands: nothing is lost.
func (s *sequenced) Furthest() (Position, int64) { return 0, 0 }

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

func (e eventsUpTo) Last(context.Context) (uint64, error)                        { return uint64(e), nil }
func (e eventsUpTo) FastForward(context.Context, uint64) error                   { return nil }
func (e eventsUpTo) Reclaim(context.Context, uint64, int64) (moved int, _ error) { return 0, nil }

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
