package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// keyPrefix begins the keys of records in the bucket.
const keyPrefix = "import."

const (
	// saveEvery is how often the record is brought up to date.
	saveEvery = time.Second
	// staleAfter: a process that has not saved for this long sends nothing before it has,
	// and one that has not seen another save for this long takes over.
	staleAfter = 5 * time.Second
	// askTimeout and asks are for the question whether another is at work. A
	// connection whose process has just been killed may swallow the first.
	askTimeout = 250 * time.Millisecond
	asks       = 8
	// listTimeout bounds the look at all imports' names.
	listTimeout = 30 * time.Second
)

// record is what the bucket keeps of an import. Every write is a
// compare-and-set on the one before.
//
// Session is the address at which the process at work answers; the server itself says
// so when that process is gone. Open is false after an orderly end, when the record
// says everything. Of an open one, a successor that gets neither an answer nor that
// word (a process that stands still, a connection that hangs) waits whether the record
// still changes. It then takes over by writing its own session, and the other, should
// it ever wake, finds its next write refused, which it tries before it sends anything.
type record struct {
	Lines  uint64          `json:"lines"`       // in the log without a gap, from the first
	Hash   digest          `json:"hash"`        // of these lines
	Last   client.Position `json:"last,string"` // the highest of theirs
	After  uint64          `json:"after"`       // EVENTS sequence; what stands behind it is not in Lines, or is not known to be
	Stream time.Time       `json:"stream"`      // when the EVENTS of After was created

	Letters lettersBegin `json:"letters"` // dead letters of this import come after it

	Pack  int    `json:"pack"`          // most lines in a pack
	Bytes int    `json:"bytes"`         // most bytes of lines in a pack
	Cut   uint64 `json:"cut,omitempty"` // the input ended with this line once: a pack ends there

	Done    bool   `json:"done,omitempty"` // Lines was the whole input
	Open    bool   `json:"open,omitempty"`
	Session string `json:"session"`         // who wrote this
	Owner   string `json:"owner,omitempty"` // for people: host and process
}

// identify names the import: as asked, or after the content.
//
// A name from the content is the length and the hash of the input's beginning.
// The input may have been shorter at an earlier run: so an import whose name
// fits to the beginning of this beginning is the same one.
func (s *session) identify(ctx context.Context, name string, prefix []byte) (string, error) {
	if name != "" {
		return plainName(name), nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	keys, err := s.bucket.ListKeysFiltered(ctx, keyPrefix+"*")
	if err != nil {
		return "", fmt.Errorf("list imports: %w", err)
	}
	defer func() { _ = keys.Stop() }()
	longest := 0
	for key := range keys.Keys() {
		id := strings.TrimPrefix(key, keyPrefix)
		length, _, _ := strings.Cut(id, "-")
		n, err := strconv.Atoi(length)
		if err == nil && n > longest && n <= len(prefix) && id == contentName(prefix[:n]) {
			longest = n
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if longest == 0 {
		longest = len(prefix)
	}
	return contentName(prefix[:longest]), nil
}

// Imported says what the log has of the import of a name: found is false when
// none has begun, Result.Already true when all of it is there.
func Imported(ctx context.Context, nc *nats.Conn, name string) (r Result, found bool, err error) {
	s, err := dial(ctx, nc, nc.NewInbox())
	if err != nil {
		return r, false, err
	}
	defer s.close()
	id := plainName(name)
	record, revision, err := s.load(ctx, id)
	if err != nil || revision == 0 {
		return r, false, err
	}
	if !record.Stream.Equal(s.created) {
		return r, false, fmt.Errorf("import %s went into a stream EVENTS that was made anew since (on %s); give it another name to import into the new one (--name)",
			id, s.created.Format(time.DateTime))
	}
	r = Result{Import: id, Skipped: record.Lines, Last: record.Last, Already: record.Done && !record.Open}
	r.refusals = &refusals{id, record.Letters, new(numbers)}
	return r, true, nil
}

func contentName(prefix []byte) string {
	sum := sha256.Sum256(prefix)
	return fmt.Sprintf("%d-%x", len(prefix), sum[:8])
}

// ID is the name of an import in its key and its headers.
func ID(name string) string { return plainName(name) }

var notPlain = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// plainName makes a key and a header of any name. Different names stay
// different.
func plainName(name string) string {
	plain := notPlain.ReplaceAllString(name, "-")
	if len(plain) > 64 {
		plain = plain[:64]
	}
	if plain == name {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return plain + "-" + hex.EncodeToString(sum[:4])
}

// claim makes the record ours. clean says that the log holds nothing of the
// import that the record does not tell.
func (r *run) claim(ctx context.Context, s *session) (clean bool, err error) {
	for {
		found, revision, err := s.load(ctx, r.id)
		if err != nil {
			return false, err
		}
		mine := revision != 0 && found.Session == r.address
		switch {
		case r.packs != nil && !mine:
			return false, fatal{fmt.Errorf("%w: %s has taken it over after line %d", ErrRunning, found.Owner, r.record.Lines)}
		case mine:
			// What this run knows is newer.
		case revision == 0:
			r.record = record{
				Letters: s.lettersEnd(ctx),
				Hash:    newCutter(0, 0, 0, nil).hash(), Stream: s.created, After: s.last,
				Pack: r.o.Pack, Bytes: min(packBytesMax, s.lineBytesMax),
			}
			clean = true
		default:
			if err := r.judge(ctx, s, found, revision); err != nil {
				return false, err
			}
			r.record, clean = found, !found.Open
			if clean {
				r.record.After = max(found.After, s.last)
			}
		}
		// A position in a lost tail is not there any more.
		r.record.Last = min(r.record.Last, pipeline.EndOf(s.last))
		next := r.record
		next.Open, next.Session, next.Owner = true, r.address, owner()
		r.revision = revision
		err = r.write(ctx, s, next)
		if errors.Is(err, errRevision) {
			continue // another process was faster: see which
		}
		return clean, err
	}
}

// judge says whether a record that is another's may be taken.
func (r *run) judge(ctx context.Context, s *session, found record, revision uint64) error {
	if !found.Stream.Equal(s.created) {
		return fatal{fmt.Errorf("import %s went into a stream EVENTS that was made anew since (on %s); give it another name to import into the new one (--name)",
			r.id, s.created.Format(time.DateTime))}
	}
	if found.After > s.last {
		r.log.Warn("import: EVENTS has lost its tail, which may have held lines of this import; they are not sent again",
			"import", r.id, "lines", found.Lines, "expected", found.After, "last", s.last)
	}
	if !found.Open {
		return nil
	}
	switch alive, err := s.ask(ctx, found.Session); {
	case err != nil:
		return err
	case alive == gone:
		return nil
	case alive == silent:
		r.log.Info("import: waiting whether the process that began it is still there", "import", r.id, "owner", found.Owner)
		if kit.Sleep(ctx, staleAfter) != nil {
			return ctx.Err()
		}
		_, now, err := s.load(ctx, r.id)
		if err != nil || now == revision {
			return err
		}
	}
	return fatal{fmt.Errorf("%w: %s (import %s, line %d so far)", ErrRunning, found.Owner, r.id, found.Lines)}
}

type liveness int

const (
	gone   liveness = iota // nobody listens there
	silent                 // somebody may
	alive                  // he answered
)

func (s *session) ask(ctx context.Context, address string) (liveness, error) {
	for range asks {
		one, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := s.nc.RequestWithContext(one, address, nil)
		cancel()
		switch {
		case err == nil:
			return alive, nil
		case errors.Is(err, nats.ErrNoResponders):
			return gone, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return 0, err
		}
	}
	return silent, nil
}

// save brings the record up to date, a little late at most.
func (r *run) save(ctx context.Context, s *session) error {
	err := r.write(ctx, s, r.record)
	if !errors.Is(err, errRevision) {
		return err
	}
	// An earlier write may have arrived without our hearing of it.
	found, revision, err := s.load(ctx, r.id)
	if err != nil {
		return err
	}
	if found.Session != r.address {
		return fatal{fmt.Errorf("%w: %s has taken it over after line %d", ErrRunning, found.Owner, r.record.Lines)}
	}
	r.revision = revision
	return r.write(ctx, s, r.record)
}

// errRevision: the record was written since.
var errRevision = errors.New("the import's record was changed meanwhile")

func (r *run) write(ctx context.Context, s *session, next record) error {
	ctx, cancel := context.WithTimeout(ctx, staleAfter)
	defer cancel()
	b, err := json.Marshal(next)
	if err != nil {
		return err
	}
	now := time.Now()
	key, revision := keyPrefix+r.id, uint64(0)
	if r.revision == 0 {
		revision, err = s.bucket.Create(ctx, key, b)
	} else {
		revision, err = s.bucket.Update(ctx, key, b, r.revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return errRevision
	}
	if err != nil {
		return fmt.Errorf("save the import's record: %w", err)
	}
	r.record, r.revision, r.saved = next, revision, now
	return nil
}

// load reads the record; revision 0 when there is none.
func (s *session) load(ctx context.Context, id string) (found record, revision uint64, err error) {
	e, err := s.bucket.Get(ctx, keyPrefix+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record{}, 0, nil
	}
	if err != nil {
		return record{}, 0, fmt.Errorf("load the import's record: %w", err)
	}
	if err := json.Unmarshal(e.Value(), &found); err != nil || found.Pack < 1 || found.Bytes < 1 {
		return record{}, 0, fatal{fmt.Errorf("key %s of bucket %s is no record of an import: %.100q", e.Key(), e.Bucket(), e.Value())}
	}
	return found, e.Revision(), nil
}

func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}
