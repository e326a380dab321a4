package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// Slot is one of the places that a generation has beside another one: a DELTAS,
// and keys in the bucket. EVENTS, DEADLETTER, and what people tell all nodes, are
// everybody's. There are as many as generations at a time, so that what nodes may
// do can be named beforehand.
type Slot uint8

// Slots is how many there are; those before it are valid. The zero is where the
// first generation is.
const Slots = 2

// Deltas is the name of the slot's stream of windows.
func (s Slot) Deltas() string { return [Slots]string{DeltasStream, DeltasStream + "2"}[s] }

func isDeltas(stream string) bool {
	return slices.ContainsFunc([]Slot{0, 1}, func(s Slot) bool { return stream == s.Deltas() })
}

// deltas is the name of the stream of windows.
func (s *Streams) deltas() string { return s.slot.Deltas() }

// Slot is which one the streams were opened for.
func (s *Streams) Slot() Slot { return s.slot }

// generationKey and countsByKey are where the metadata of DELTAS has whose it is:
// the generation's number, and what that counts by (generation.Generation.CountsBy).
const (
	generationKey = "tidemark-generation"
	countsByKey   = "tidemark-counts-by"
)

// ErrGeneration says that the slot's DELTAS is another generation's than the streams
// were opened for. It is neither followed nor appended to, and stays as it is.
var ErrGeneration = errors.New("jetlog: DELTAS is of another generation")

// Owner is whose a DELTAS is.
type Owner = generation.Owner

func ownerOf(c jetstream.StreamConfig) Owner {
	n, err := strconv.ParseUint(c.Metadata[generationKey], 10, 32)
	if err != nil {
		return Owner{}
	}
	return Owner{Number: generation.Number(n), CountsBy: c.Metadata[countsByKey]}
}

// refuseOther is an error unless an edition is of the streams' own generation.
func (s *Streams) refuseOther(e edition) error {
	if e.of.Is(s.of) {
		return nil
	}
	return fmt.Errorf("%w: stream %s is of %v, and this is %v", ErrGeneration, s.deltas(), e.of, s.of)
}

// Generation is which one the streams were opened for.
func (s *Streams) Generation() generation.Number { return s.of.Number }

// SlotOf is whose DELTAS a slot has.
func SlotOf(ctx context.Context, js jetstream.JetStream, s Slot) (Owner, error) {
	stream, err := js.Stream(ctx, s.Deltas())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Owner{}, nil
	}
	if err != nil {
		return Owner{}, fmt.Errorf("jetlog: look whose slot %d is: %w", s, err)
	}
	return ownerOf(stream.CachedInfo().Config), nil
}

// Evict deletes a slot's DELTAS for the generation to which the record gives the
// slot, where a process of an earlier one has made it again: that was cut off while
// the slot was cleared. Numbers only grow in a slot, so a DELTAS of a lower one, or of
// none, is left over, and so is one with the same number that counts by something else.
// It says whether there was one. A later generation's is ErrGeneration, and stays.
func Evict(ctx context.Context, nc *nats.Conn, s Slot, of Owner) (evicted bool, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return false, err
	}
	stream, err := js.Stream(ctx, s.Deltas())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jetlog: look whose slot %d is: %w", s, err)
	}
	switch is := ownerOf(stream.CachedInfo().Config); {
	case is.Is(of):
		return false, nil
	case is.Number > of.Number:
		return false, fmt.Errorf("%w: stream %s is of %v, and this is %v", ErrGeneration, s.Deltas(), is, of)
	}
	if err := js.DeleteStream(ctx, s.Deltas()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("jetlog: delete stream %s, which an earlier generation has made: %w", s.Deltas(), err)
	}
	return true, nil
}
