package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/internal/pull"
)

// generationsKey is where the bucket has which generations there are.
const generationsKey = "generations"

const (
	// generationsHeartbeat is that of the watch: of one that is lost, nothing is heard
	// for at most twice as long.
	generationsHeartbeat = time.Second
	// generationsWaitMax bounds the pause before a watch begins again.
	generationsWaitMax = 500 * time.Millisecond
	// restoreTries bounds how often Restore and Create begin again because the key has
	// changed, and restorePause is the first wait before that; each next one is twice as
	// long. The key is read from any server, and one may lag behind the leader.
	restoreTries = 8
	restorePause = 10 * time.Millisecond
	// generationsLook is how often it is looked whether the key is there still: one
	// that is purged out of the stream leaves no mark that would be heard.
	generationsLook = 3 * time.Second
)

// Generations is the record of which generations there are, a key of the bucket that
// this process watches. It may be missing, malformed, or older than what was there before:
// a caller keeps a copy of what it acts on, and puts that back (Restore). Safe for
// concurrent use.
type Generations struct {
	// Version is that of pipeline.FormatRecord in which the record is written; nil: the
	// oldest. It is set before anything is written.
	Version func() int

	streams *jetlog.Streams
	logger  *slog.Logger
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	seen    record
	changed chan struct{} // closed with the next change
}

// record is what the key is. The zero: it is not there.
type record struct {
	set      generation.Set
	revision uint64
	written  time.Time // by the server's clock
	err      error     // it is malformed, and set the zero
}

func readRecord(value []byte, revision uint64, written time.Time) record {
	r := record{revision: revision, written: written}
	if r.set, r.err = generation.Decode(value); r.err != nil {
		r.err = fmt.Errorf("bucket: key %s of bucket %s: %w", generationsKey, jetlog.Bucket, r.err)
	}
	return r
}

// OpenGenerations begins to watch, and returns when it has seen what there is. It
// needs nothing but the bucket, so streams that were attached do. A nil logger logs
// nothing.
func OpenGenerations(ctx context.Context, s *jetlog.Streams, logger *slog.Logger) (*Generations, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	g := &Generations{streams: s, logger: logger, done: make(chan struct{}), changed: make(chan struct{})}
	first := g.Changed()
	watching, stop := context.WithCancel(context.Background())
	g.stop = stop
	go g.watch(watching)
	select {
	case <-first:
		return g, nil
	case <-ctx.Done():
		g.Close()
		return nil, fmt.Errorf("bucket: watch the generations: %w", ctx.Err())
	}
}

// Close ends watching. Closing twice is fine.
func (g *Generations) Close() {
	g.stop()
	<-g.done
}

// Seen is the last record seen; the zero: there is none. An error says what is wrong
// with what is there, and wraps generation.ErrMalformed. While the bucket is not to be
// had, it is what was seen before.
func (g *Generations) Seen() (generation.Set, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.set, g.seen.err
}

// Written is when the record was written that was seen last, by the server's clock
// (StreamState.Now is its now); the zero: there is none. Putting a copy back writes
// it. Of a record that comes between Seen and this it is later, never earlier.
func (g *Generations) Written() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.written
}

// Changed is closed when another record is seen. Take it before Seen, so that no
// change is missed.
func (g *Generations) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Load asks what the record is now. An error that wraps
// generation.ErrMalformed is about what is there; any other, that nobody answers. In a
// cluster it may be as old as the copy of the server that answers; no write relies
// on that.
func (g *Generations) Load(ctx context.Context) (generation.Set, error) {
	r, err := g.load(ctx)
	if err != nil {
		return generation.Set{}, err
	}
	return r.set, r.err
}

func (g *Generations) load(ctx context.Context) (record, error) {
	var r record
	switch e, err := g.streams.KeyValue().Get(ctx, generationsKey); {
	case err == nil:
		r = readRecord(e.Value(), e.Revision(), e.Created())
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return r, fmt.Errorf("bucket: load the generations: %w", err)
	}
	return r, nil
}

// Write puts next in the place of from, which the caller has seen or loaded. ErrDecided:
// somebody was faster, or what is there is not from; nothing was written. Any other
// error: not known, look again.
func (g *Generations) Write(ctx context.Context, from, next generation.Set) error {
	r, err := g.load(ctx)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return err
	}
	if !r.set.Equal(from) {
		return fmt.Errorf("%w: the generations are at epoch %d, not as at %d", ErrDecided, r.set.Epoch, from.Epoch)
	}
	return g.put(ctx, next, r.revision)
}

// Create puts the first record of a system where there is none, or a malformed one. It
// says whether it did: of nodes that start at the same moment one does.
func (g *Generations) Create(ctx context.Context, first generation.Set) (created bool, err error) {
	return g.replace(ctx, first, func(generation.Set) bool { return true })
}

// Restore puts own, which this node acts on, where there is no record, one that is
// malformed, or an older one (generation.Newest). It says whether it did anything.
func (g *Generations) Restore(ctx context.Context, own generation.Set) (restored bool, err error) {
	return g.replace(ctx, own, func(there generation.Set) bool { return generation.Newest(own, there).Equal(there) })
}

// replace puts own in the place of a record that is malformed, missing, or may not stay.
func (g *Generations) replace(ctx context.Context, own generation.Set, stays func(there generation.Set) bool) (replaced bool, err error) {
	for try := range restoreTries {
		if try > 0 {
			select {
			case <-time.After(restorePause << (try - 1)):
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		r, err := g.load(ctx)
		if err != nil {
			return false, err
		}
		if r.revision != 0 && r.err == nil && stays(r.set) {
			return false, nil
		}
		if err = g.put(ctx, own, r.revision); !errors.Is(err, ErrDecided) {
			return err == nil, err
		}
	}
	return false, fmt.Errorf("%w: the record of the generations, in each of %d tries", ErrDecided, restoreTries)
}

// put replaces a revision of the key; 0 makes it.
func (g *Generations) put(ctx context.Context, s generation.Set, revision uint64) error {
	version := pipeline.FormatRecord.Oldest
	if g.Version != nil {
		version = g.Version()
	}
	value, err := s.EncodeIn(version)
	if err != nil {
		return fmt.Errorf("bucket: write the generations: %w", err)
	}
	if most := g.streams.Conn().MaxPayload() - jetlog.EnvelopeBytes; int64(len(value)) > most {
		return fmt.Errorf("bucket: write the generations: with their configurations they have %d bytes, and messages may have %d: raise the NATS server's max_payload", len(value), most)
	}
	if revision == 0 {
		_, err = g.streams.KeyValue().Create(ctx, generationsKey, value)
	} else {
		_, err = g.streams.KeyValue().Update(ctx, generationsKey, value, revision)
	}
	switch {
	case jetlog.WrongSequence(err), errors.Is(err, jetstream.ErrKeyExists):
		return ErrDecided
	case err != nil:
		return fmt.Errorf("bucket: write the generations, epoch %d: %w", s.Epoch, err)
	}
	return nil
}

// watch follows the key until ctx ends.
func (g *Generations) watch(ctx context.Context) {
	defer close(g.done)
	rewatch(ctx, g.follow, generationsWaitMax, func(err error) {
		g.logger.Warn("bucket: the generations cannot be watched", "error", err)
	})
}

// follow reads what the key is and what comes after, through a consumer of its own. It
// returns when that is of no more use; listed says that it has seen what there was.
func (g *Generations) follow(ctx context.Context) (listed bool, err error) {
	status := g.streams.Conn().StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer g.streams.Conn().RemoveStatusListener(status)
	opening, cancel := context.WithTimeout(ctx, watchOpenWithin)
	pull, err := pull.Open(opening, g.streams.JetStream(), jetlog.BucketStream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{keyPrefix + generationsKey},
	}, pull.Options{Heartbeat: generationsHeartbeat})
	cancel()
	if err != nil {
		return false, err
	}
	defer pull.Close()
	if listed = pull.Waiting == 0; listed {
		g.see(record{}, true)
	}
	silence := time.NewTimer(2 * generationsHeartbeat)
	defer silence.Stop()
	look := time.NewTicker(generationsLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return listed, ctx.Err()
		case <-status:
			return listed, errors.New("connected again") // what was asked for is forgotten
		case <-silence.C:
			return listed, errors.New("nothing heard")
		case <-look.C:
			if listed && g.gone(ctx) {
				return listed, errors.New("the key is gone")
			}
		case msg := <-pull.Arrived:
			silence.Reset(2 * generationsHeartbeat)
			a, stored, err := pull.Take(msg)
			if stored {
				g.take(msg, a, !listed)
				listed = true
			}
			if err != nil {
				return listed, err
			}
		}
	}
}

// gone says whether a key that was seen is not there. What answers may be behind: the
// next watch finds the key then.
func (g *Generations) gone(ctx context.Context) bool {
	g.mu.Lock()
	there := g.seen.revision != 0
	g.mu.Unlock()
	if !there {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, generationsHeartbeat)
	defer cancel()
	_, err := g.streams.KeyValue().Get(ctx, generationsKey)
	return errors.Is(err, jetstream.ErrKeyNotFound)
}

func (g *Generations) take(msg *nats.Msg, a pull.Ack, listing bool) {
	var r record
	if msg.Header.Get(keyOperation) == "" {
		r = readRecord(msg.Data, a.Stream, time.Unix(0, a.Nanos).UTC())
	}
	g.see(r, listing)
}

// see notes what the key is now, and wakes waiting callers if it has changed. What was
// there when the watch began wakes them too: a caller may wait for the first value.
func (g *Generations) see(r record, listing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	same := r.revision == g.seen.revision && r.written.Equal(g.seen.written)
	g.seen = r
	if same && !listing {
		return
	}
	close(g.changed)
	g.changed = make(chan struct{})
	if r.err != nil && !same {
		g.logger.Warn("bucket: what the bucket says of the generations is not obeyed", "error", fmt.Sprintf("%.500v", r.err))
	}
}

// LoadGenerations asks once which generations there are, for a command: the zero
// stands for none. ErrNoBucket: no node has run on this server yet.
func LoadGenerations(ctx context.Context, nc *nats.Conn) (generation.Set, error) {
	s, err := jetlog.Attach(ctx, nc, 0, jetlog.Owner{}, nil)
	if err != nil {
		return generation.Set{}, err
	}
	r, err := (&Generations{streams: s}).load(ctx)
	return r.set, errors.Join(err, r.err)
}

// SlotOfServing is the slot of the generation that serves.
func SlotOfServing(s generation.Set) jetlog.Slot {
	return jetlog.Slot(s.All[s.Serving].Slot)
}
