package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// "With an empty log, all shards to where it will begin": the router takes the
// last of the guard's cuts, which a shard that has stopped may have put there.
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

// "No sequence of EVENTS means two events", nor for shards on their way to where
// others of the node stand: what those have counted is counted.
func TestMendBesideKnowsWhatIsCounted(t *testing.T) {
	main, beside := &standing{at: EndOf(7), kept: []Position{EndOf(7)}}, &standing{at: EndOf(3), kept: []Position{EndOf(3)}}
	events := &shortened{eventsUpTo: 5}
	g := NewGuard(main, events, emptyLog{}, slog.New(slog.DiscardHandler))
	if err := g.Beside(beside).Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if events.to != 7 {
		t.Errorf("EVENTS, which has 5, is moved to %d, and 7 were counted", events.to)
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
