package jetlog

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ErrNoWindow says that a message in DELTAS is no window of this DELTAS: its checksum is
// wrong, or it stands under the subject of another one.
var ErrNoWindow = errors.New("jetlog: a message in DELTAS is no window")

// edition is one DELTAS, from when it is made until it is gone. Recreated, it has
// another subject: what is still on its way to the one before arrives nowhere. The subject
// stands in the stream's own configuration.
type edition struct {
	created time.Time
	subject string
	of      Owner // whose windows these are
}

func editionOf(i *jetstream.StreamInfo) edition {
	e := edition{created: i.Created}
	if len(i.Config.Subjects) == 1 {
		e.subject = i.Config.Subjects[0]
	}
	e.of = ownerOf(i.Config)
	return e
}

// newEdition is a configuration of a generation's DELTAS, with a subject of its own.
func newEdition(c jetstream.StreamConfig, of Owner) jetstream.StreamConfig {
	c.Subjects = []string{DeltasSubject + "." + nuid.Next()}
	c.Metadata = map[string]string{generationKey: strconv.FormatUint(uint64(of.Number), 10), countsByKey: of.CountsBy}
	return c
}

// isEdition says whether subjects are those of a DELTAS.
func isEdition(subjects []string) bool {
	return len(subjects) == 1 && strings.HasPrefix(subjects[0], DeltasSubject+".")
}

// check is an error unless the message at a sequence is a window of e, of whatever version.
func (e edition) check(sequence uint64, subject string, window []byte) error {
	err := pipeline.CheckWindow(window)
	if err == nil && subject != e.subject {
		err = fmt.Errorf("it was published to %s", subject)
	}
	if err != nil {
		return fmt.Errorf("%w: sequence %d, %d bytes: %w", ErrNoWindow, sequence, len(window), err)
	}
	return nil
}

// edition is the DELTAS there is now, and how it stands. All that follows DELTAS,
// appends to it, purges or deletes it, looks here before: an error wraps
// ErrGeneration where it is another generation's.
func (s *Streams) edition(ctx context.Context) (edition, StreamState, error) {
	stream, err := s.js.Stream(ctx, s.deltas())
	if err != nil {
		return edition{}, StreamState{}, fmt.Errorf("jetlog: look at stream %s: %w", s.deltas(), err)
	}
	i := stream.CachedInfo()
	e := editionOf(i)
	return e, stateOf(i), s.refuseOther(e)
}

// renewWithin is over how long nodes that find an edition useless spread.
const renewWithin = 300 * time.Millisecond

// renew recreates DELTAS in the place of an edition that is useless or gone, and says
// so, unless another node has done it.
func (s *Streams) renew(ctx context.Context, useless edition, why error) error {
	// All nodes find out at once. One after the other they see that it is done: a
	// server that deletes a stream and makes it, for several at a time, has been seen
	// to fail at it, and once to stop answering.
	select {
	case <-time.After(mathrand.N(renewWithin)):
	case <-ctx.Done():
		return ctx.Err()
	}
	recreated, err := s.recreate(ctx, useless)
	if err != nil || !recreated {
		return err
	}
	if errors.Is(why, ErrNoWindow) {
		s.stats.NoWindow.Add(1)
	}
	s.remade(s.deltas(), "its windows are derived again from EVENTS", why)
	return nil
}

// recreate deletes an edition of DELTAS, if it is the one there is, and makes the
// next one, if there is none. It says whether it made one.
//
// NATS deletes by name alone: of two nodes that find an edition useless at once, the
// slower one may delete what the faster one has just made, if that comes between the
// look and the delete. No count is wrong then: DELTAS is a cache, and a process that
// appends to an edition that is gone, or follows it, finds that out (DeltaLog.Append,
// reader). What is promised is that there is a DELTAS at the end, and that it is not
// the useless one.
func (s *Streams) recreate(ctx context.Context, useless edition) (recreated bool, err error) {
	now, _, err := s.edition(ctx)
	if err == nil && !now.created.Equal(useless.created) {
		return false, nil
	}
	if err == nil {
		err = s.js.DeleteStream(ctx, s.deltas())
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("jetlog: recreate stream %s: %w", s.deltas(), err)
	}
	return s.createDeltas(ctx)
}

// createDeltas makes DELTAS, and says whether it did: that another node was
// faster is as good.
func (s *Streams) createDeltas(ctx context.Context) (made bool, err error) {
	_, err = s.js.CreateStream(ctx, newEdition(s.configs[s.deltas()], s.of))
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jetlog: create stream %s: %w", s.deltas(), err)
	}
	return true, nil
}
