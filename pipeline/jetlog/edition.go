package jetlog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// HeaderSeal proves that the writer of a window knows the key of DELTAS.
const HeaderSeal = "Tidemark-Seal"

const (
	// sealKey is where the stream's metadata has the key.
	sealKey      = "tidemark-seal"
	sealKeyBytes = 32
)

// ErrForeign says that a message in DELTAS is not a window that a router
// appended there.
var ErrForeign = errors.New("jetlog: a message in DELTAS is no router's")

// edition is one DELTAS, from when it is made until it is gone. Recreated, it
// has another subject, which nobody can guess, and another key: what is still
// on its way to the one before, and what others publish there, arrives nowhere.
// Both stand in the stream's own configuration, for each process that may read it.
type edition struct {
	created time.Time
	subject string
	key     []byte
	of      Owner // whose windows these are
}

func editionOf(i *jetstream.StreamInfo) edition {
	e := edition{created: i.Created}
	if len(i.Config.Subjects) == 1 {
		e.subject = i.Config.Subjects[0]
	}
	e.key, _ = hex.DecodeString(i.Config.Metadata[sealKey])
	e.of = ownerOf(i.Config)
	return e
}

// newEdition is a configuration of a generation's DELTAS, with a subject and a key
// of its own.
func newEdition(c jetstream.StreamConfig, of Owner) (jetstream.StreamConfig, error) {
	key := make([]byte, sealKeyBytes)
	if _, err := rand.Read(key); err != nil {
		return c, err
	}
	c.Subjects = []string{DeltasSubject + "." + nuid.Next()}
	c.Metadata = map[string]string{sealKey: hex.EncodeToString(key), generationKey: strconv.FormatUint(uint64(of.Number), 10), countsByKey: of.CountsBy}
	return c, nil
}

// isEdition says whether subjects are those of a DELTAS.
func isEdition(subjects []string) bool {
	return len(subjects) == 1 && strings.HasPrefix(subjects[0], DeltasSubject+".")
}

// seal proves that the appender of a window knows the key, and where it appended: a
// copy at another sequence is none.
func (e edition) seal(sequence uint64, window []byte) string {
	h := hmac.New(sha256.New, e.key)
	h.Write(binary.BigEndian.AppendUint64(nil, sequence))
	h.Write(window)
	return hex.EncodeToString(h.Sum(nil))
}

// check is an error unless the message at a sequence is a window of a router's.
func (e edition) check(sequence uint64, header nats.Header, window []byte) error {
	seal := e.seal(sequence, window)
	if len(e.key) != sealKeyBytes || !hmac.Equal([]byte(header.Get(HeaderSeal)), []byte(seal)) {
		return fmt.Errorf("%w: sequence %d, %d bytes", ErrForeign, sequence, len(window))
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
	if errors.Is(why, ErrForeign) {
		s.stats.Foreign.Add(1)
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
	c, err := newEdition(s.configs[s.deltas()], s.of)
	if err == nil {
		_, err = s.js.CreateStream(ctx, c)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("jetlog: create stream %s: %w", s.deltas(), err)
	}
	return true, nil
}
