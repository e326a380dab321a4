package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What the metadata of EVENTS says of its beginning.
const (
	trimmedKey   = "tidemark-trimmed"   // "<sequence> <place>": Trimmed
	idsKey       = "tidemark-ids"       // what IDPrefix begins with: made at random with the stream
	continuesKey = "tidemark-continues" // "<sequence> <when the EVENTS before was created> <place>": Continues
	archiveKey   = "tidemark-archive"   // StreamState.Archive
	backupsKey   = "tidemark-backups"   // StreamState.Backups
)

// SetArchive has EVENTS say in which directory it is archived. From then on only what
// is there is trimmed.
func (s *Streams) SetArchive(ctx context.Context, directory string) error {
	return s.setEvents(ctx, archiveKey, directory)
}

// SetBackups has EVENTS say where the nodes back it up (backup.to). From then on it is
// trimmed by the backups there.
func (s *Streams) SetBackups(ctx context.Context, place string) error {
	return s.setEvents(ctx, backupsKey, place)
}

// setEvents has the metadata of EVENTS say something, for good.
func (s *Streams) setEvents(ctx context.Context, key, value string) error {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return fmt.Errorf("jetlog: write %s to the metadata of %s: %w", key, EventsStream, err)
	}
	if err := s.setMark(ctx, stream.CachedInfo().Created, key, func(string) string { return value }); err != nil {
		return err
	}
	_, err = s.changeEvents(ctx, func(*jetstream.StreamConfig, jetstream.StreamState) {})
	return err
}

// Trimmed says that EVENTS was trimmed.
type Trimmed struct {
	Below uint64 // sequence: what was before it was trimmed, or is going to be at once; 0: never
	Place string // of the backup that has what those events counted
}

func trimmedOf(c jetstream.StreamConfig) Trimmed { return trimmedBy(c.Metadata[trimmedKey]) }

func trimmedBy(mark string) (t Trimmed) {
	below, place, _ := strings.Cut(mark, " ")
	t.Below, _ = strconv.ParseUint(below, 10, 64) // somebody else's text is none
	t.Place = place
	return t
}

// text is the mark; "": never trimmed.
func (t Trimmed) text() string {
	if t == (Trimmed{}) {
		return ""
	}
	return fmt.Sprintf("%d %s", t.Below, t.Place)
}

// Continues says that an EVENTS goes on from one that is lost: the counts were kept, or
// restored from a backup.
type Continues struct {
	After  uint64    // sequence, up to which all is counted; 0: from the first
	Events time.Time // when the EVENTS that is lost was created; zero: it does not
	// Place is where the backup is that the counts were restored from; "": not known.
	Place string
}

func continuesOf(c jetstream.StreamConfig) (out Continues) {
	words := append(strings.SplitN(c.Metadata[continuesKey], " ", 3), "", "") // a place may have spaces
	n, err := strconv.ParseUint(words[0], 10, 64)
	at, bad := time.Parse(time.RFC3339Nano, words[1])
	if err != nil || bad != nil {
		return out
	}
	return Continues{n, at, words[2]}
}

// mark has an EVENTS that is made begin after what is counted: no sequence is used
// twice (I10).
func (c Continues) mark(stream *jetstream.StreamConfig) {
	if !c.Events.IsZero() {
		stream.FirstSeq = c.After + 1
		stream.Metadata[continuesKey] = c.text()
	}
}

func (c Continues) text() string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s %s", c.After, c.Events.UTC().Format(time.RFC3339Nano), c.Place), " ")
}

// OlderThan is the first sequence of EVENTS that is not older than an age, by the
// stream's timestamps and its leader's clock; what is before it is older. In an
// EVENTS without messages it is the next sequence.
func (s *Streams) OlderThan(ctx context.Context, age time.Duration) (uint64, error) {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return 0, fmt.Errorf("jetlog: %w", err)
	}
	info := stream.CachedInfo()
	limit := info.TimeStamp.Add(-age)
	low, high := max(info.State.FirstSeq, 1), info.State.LastSeq+1 // the answer is low to high
	for low < high {
		middle := low + (high-low)/2
		m, err := NextStored(ctx, s.nc, EventsStream, middle, ">")
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			high = middle
		case err != nil:
			return 0, fmt.Errorf("jetlog: look for what is older than %v in %s: %w", age, EventsStream, err)
		case m.Time.Before(limit):
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return low, nil
}

// Trim takes from EVENTS what is before a sequence, which must be in a backup at place,
// and says how many messages went. Before it does, the stream's metadata say so: a
// process that finds it shorter knows that it was meant, and where the rest is. Between
// the two it calls last, nil for nothing, which says whether the trim still may, and
// does what must be done before the events go (SettleBelow); with an error nothing
// goes, and the metadata are as before. So of two, one that trims and one that notes
// somewhere that it needs all of EVENTS and then looks at the metadata, one at least
// learns of the other.
func (s *Streams) Trim(ctx context.Context, below uint64, place string, last func(context.Context) error) (messages uint64, err error) {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return 0, fmt.Errorf("jetlog: trim %s: %w", EventsStream, err)
	}
	info := stream.CachedInfo()
	switch {
	case below <= info.State.FirstSeq || info.State.Msgs == 0:
		return 0, nil
	case below > info.State.LastSeq+1:
		return 0, fmt.Errorf("jetlog: trim %s below %d: it ends with %d", EventsStream, below, info.State.LastSeq)
	}
	_, wrote, was, err := s.markTrimmed(ctx, stream, below, place)
	if err == nil && last != nil {
		err = last(ctx)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmarkMax) // it may be why nothing goes
		defer cancel()
		return 0, errors.Join(err, s.unmarkTrimmed(ctx, stream, wrote, was))
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(below)); err != nil {
		return 0, fmt.Errorf("jetlog: trim %s below %d: %w", EventsStream, below, err)
	}
	after, _, _, err := s.markTrimmed(ctx, stream, below, place)
	if err != nil {
		return 0, err
	}
	return after.State.FirstSeq - info.State.FirstSeq, nil
}

// unmarkMax bounds the tries to take the mark back when a trim is given up.
const unmarkMax = 2 * time.Second

// markTrimmed has the metadata say what is trimmed, and returns what EVENTS is then, the
// mark that it wrote, or tried to, and the one that was there; wrote is the zero where the
// mark was there, and is another's.
func (s *Streams) markTrimmed(ctx context.Context, stream jetstream.Stream, below uint64, place string) (info *jetstream.StreamInfo, wrote, was Trimmed, err error) {
	info, err = stream.Info(ctx)
	if err != nil {
		return nil, wrote, was, fmt.Errorf("jetlog: trim %s: %w", EventsStream, err)
	}
	err = s.setMark(ctx, info.Created, trimmedKey, func(mark string) string {
		was = trimmedOf(info.Config)
		if noted := trimmedBy(mark); noted.Below >= was.Below && mark != "" {
			was = noted
		}
		wrote = Trimmed{max(below, was.Below), place}
		if wrote == was {
			wrote = Trimmed{}
			return was.text()
		}
		return wrote.text()
	})
	if err == nil {
		info, err = s.changeEvents(ctx, func(*jetstream.StreamConfig, jetstream.StreamState) {})
	}
	return info, wrote, was, err
}

// unmarkTrimmed takes a mark back that was written, unless it is another one by now.
func (s *Streams) unmarkTrimmed(ctx context.Context, stream jetstream.Stream, mark, was Trimmed) error {
	if mark == (Trimmed{}) {
		return nil
	}
	err := s.setMark(ctx, stream.CachedInfo().Created, trimmedKey, func(is string) string {
		if is != mark.text() {
			return is
		}
		return was.text()
	})
	if err == nil {
		_, err = s.changeEvents(ctx, func(c *jetstream.StreamConfig, _ jetstream.StreamState) {
			switch {
			case trimmedOf(*c) != mark:
			case was == (Trimmed{}):
				delete(c.Metadata, trimmedKey)
			default:
				c.Metadata[trimmedKey] = was.text()
			}
		})
	}
	return err
}
