package jetlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// The names of the streams, the bucket and their subjects.
const (
	EventsStream     = "EVENTS"
	DeltasStream     = "DELTAS" // of the first slot: Slot.Deltas
	DeadLetterStream = "DEADLETTER"
	Bucket           = "TIDEMARK"

	EventsSubject     = "events."     // + type
	DeadLetterSubject = "deadletter." // + reason

	// InternalPrefix begins what nobody but nodes publishes to: one permission
	// covers it, and no request looks like it (those are tidemark.get and so on).
	InternalPrefix = "tidemark.internal."
	DeltasSubject  = InternalPrefix + "deltas" // + a token of each edition

	BucketStream = "KV_" + Bucket

	// clusterUnavailable is the server's code for a cluster without a leader.
	clusterUnavailable = 10008
	// noCluster and noPlacement are its codes for more replicas than servers.
	noCluster   = 10074
	noPlacement = 10005
)

const (
	// DuplicateWindow is how long Nats-Msg-Id is remembered.
	DuplicateWindow = 2 * time.Minute

	// EnvelopeBytes is the room kept between the largest event and the
	// server's max payload, for the headers that a dead letter adds. Both
	// limits count headers and body together, and a letter carries the
	// event's headers again, so this is all it needs (see letterMessage).
	EnvelopeBytes = 16 << 10

	// payloadBytesMin is the least max payload a server must allow.
	payloadBytesMin = 4 * EnvelopeBytes

	// eventBytesMin is the least useful limit on an event's size: a pack of
	// 1,024 plain events.
	eventBytesMin = 256 << 10
)

// ErrTail says that a stream ends before what has been read from it: it lost
// its tail (a power cut), or was deleted and recreated (I10).
var ErrTail = errors.New("jetlog: the stream ends before what was read from it, or was recreated")

// Limits bound one stream.
type Limits struct {
	BytesMax int64
	AgeMax   time.Duration // 0: no limit
}

// StreamOptions are the settings of the streams. Zeros take the defaults.
type StreamOptions struct {
	Replicas       int    // default 1
	Events         Limits // default 16 GiB
	Deltas         Limits // default 4 GiB: purged as checkpoints move on; AgeMax is not used
	DeadLetters    Limits // default 1 GiB, the oldest go first
	BucketBytesMax int64  // default 16 MiB
	Slot           Slot
	Generation     Owner // whose DELTAS the slot's is to be; default: that of number 1

	// Continues is the log that an EVENTS goes on from where it is made, because
	// the one before is lost and its counts were restored.
	Continues Continues

	// Unprotected leaves EVENTS open to deletions, when it is made: for tests of
	// what they do. Otherwise an EVENTS that is there is protected, which cannot be
	// undone. Purges are not denied: Trim purges.
	Unprotected bool
	Logger      *slog.Logger // default: none
}

func (o StreamOptions) withDefaults() StreamOptions {
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Events.BytesMax = cmp.Or(o.Events.BytesMax, 16<<30)
	o.Deltas.BytesMax = cmp.Or(o.Deltas.BytesMax, 4<<30)
	o.DeadLetters.BytesMax = cmp.Or(o.DeadLetters.BytesMax, 1<<30)
	o.BucketBytesMax = cmp.Or(o.BucketBytesMax, 16<<20)
	o.Generation.Number = cmp.Or(o.Generation.Number, generation.First)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// BytesMax is what all streams may take together, the least
// ServerOptions.StoreBytesMax: the server reserves it when they are created.
func (o StreamOptions) BytesMax() int64 {
	o = o.withDefaults()
	return o.Events.BytesMax + o.Deltas.BytesMax + o.DeadLetters.BytesMax + o.BucketBytesMax
}

// Streams are the opened streams. Safe for concurrent use.
type Streams struct {
	js      jetstream.JetStream
	nc      *nats.Conn
	bucket  jetstream.KeyValue
	logger  *slog.Logger
	slot    Slot
	of      Owner
	created time.Time // EVENTS, when opened; never changes
	// hadEvents: EVENTS was there when the streams were opened, so that the
	// others have been, too.
	hadEvents bool
	configs   map[string]jetstream.StreamConfig // as they are made
	stats     StreamStats
	idPrefix  atomic.Pointer[string]     // IDPrefix, once it was needed
	lastWrite atomic.Pointer[eventWrite] // to EVENTS, by a Publisher
}

// Stats are figures of the streams since they were opened.
func (s *Streams) Stats() *StreamStats { return &s.stats }

// Conn is the connection that the streams were opened on.
func (s *Streams) Conn() *nats.Conn { return s.nc }

// JetStream is what the streams are read and written with, on that connection.
func (s *Streams) JetStream() jetstream.JetStream { return s.js }

// KeyValue is the bucket.
func (s *Streams) KeyValue() jetstream.KeyValue { return s.bucket }

// Logger is never nil.
func (s *Streams) Logger() *slog.Logger { return s.logger }

// OpenStreams creates the streams and the bucket that are missing. Of existing
// ones no limit is ever changed: one that does not fit is a refusal that lists
// every difference of every stream, before anything is created; so is a DELTAS of
// another generation (ErrGeneration). What an earlier version has made is brought up
// to this one: EVENTS is protected. The connection stays the caller's, and is used by all that is opened on
// the streams.
func OpenStreams(ctx context.Context, nc *nats.Conn, o StreamOptions) (*Streams, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetlog: open streams: %w", err)
	}
	o = o.withDefaults()
	s := newStreams(nc, js, o.Slot, o.Generation, o.Logger)
	if payload := s.nc.MaxPayload(); payload < payloadBytesMin {
		return nil, fmt.Errorf("jetlog: open streams: the server's max payload is %d bytes, must be at least %d", payload, payloadBytesMin)
	}
	configs := o.configs(s.nc.MaxPayload())
	for _, c := range configs {
		s.configs[c.Name] = c
	}
	if err := s.refuseMisfits(ctx, configs); err != nil {
		return nil, err
	}
	if _, _, err := s.edition(ctx); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	for _, c := range configs {
		if err := s.openStream(ctx, c); err != nil {
			return nil, err
		}
	}
	bucket, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, fmt.Errorf("jetlog: open bucket %s: %w", Bucket, err)
	}
	s.bucket = bucket
	s.firstMarks(ctx)
	if err := s.recheckDamage(ctx); err != nil {
		s.logger.Warn("jetlog: whether stream EVENTS is still damaged is not known", "error", err)
	}
	return s, nil
}

func newStreams(nc *nats.Conn, js jetstream.JetStream, slot Slot, of Owner, logger *slog.Logger) *Streams {
	of.Number = cmp.Or(of.Number, generation.First)
	return &Streams{
		js: js, nc: nc, slot: slot, of: of, logger: logger, configs: make(map[string]jetstream.StreamConfig),
		stats: StreamStats{remade: make(map[string]uint64), told: make(map[string]time.Time), untold: make(map[string]remaking)},
	}
}

func (s *Streams) openStream(ctx context.Context, c jetstream.StreamConfig) error {
	stream, err := s.js.Stream(ctx, c.Name)
	if err == nil {
		err = s.bringUp(ctx, stream.CachedInfo(), c)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		var made bool
		made, err = s.create(ctx, c)
		switch {
		case err == nil && !made: // another node was faster: its limits may be others
			err = s.refuseMisfits(ctx, []jetstream.StreamConfig{c})
		case err == nil && s.hadEvents:
			s.logger.Warn("stream " + c.Name + " was not there, and EVENTS was: it is created")
		}
	} else if err == nil && c.Name == EventsStream {
		s.hadEvents = true
	}
	if err == nil {
		stream, err = s.js.Stream(ctx, c.Name)
	}
	if err == nil && isDeltas(c.Name) { // another node may have been faster
		err = s.refuseOther(editionOf(stream.CachedInfo()))
	}
	if err := s.noRoom(ctx, c, err); errors.Is(err, ErrNoRoom) {
		return err
	}
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && c.Replicas > 1 &&
		(api.ErrorCode == noCluster || api.ErrorCode == noPlacement) {
		return fmt.Errorf("jetlog: create stream %s: the server has no place for %d copies (%w): lower nats.replicas, or let its cluster have as many servers", c.Name, c.Replicas, err)
	}
	if err != nil {
		return fmt.Errorf("jetlog: open stream %s: %w", c.Name, err)
	}
	if c.Name == EventsStream {
		s.created = stream.CachedInfo().Created
	}
	return nil
}

// bringUp changes a stream that somebody else has made.
func (s *Streams) bringUp(ctx context.Context, is *jetstream.StreamInfo, want jetstream.StreamConfig) error {
	have := is.Config
	switch {
	case want.Name == EventsStream && (have.Metadata[idsKey] == "" || want.DenyDelete && !have.DenyDelete):
		if have.Metadata = maps.Clone(have.Metadata); have.Metadata == nil {
			have.Metadata = map[string]string{}
		}
		have.Metadata[idsKey] = cmp.Or(have.Metadata[idsKey], want.Metadata[idsKey])
		have.DenyDelete = have.DenyDelete || want.DenyDelete
		if _, err := s.js.UpdateStream(ctx, have); err != nil {
			return fmt.Errorf("protect it from deletions: %w", err)
		}
		s.logger.Info("stream EVENTS is protected from now on: no message can be deleted from its middle")
	}
	return nil
}

// configs are the four streams as they are created. The bucket is a stream
// like the others, laid out as nats.go lays out its buckets.
func (o StreamOptions) configs(payloadBytesMax int64) []jetstream.StreamConfig {
	base := jetstream.StreamConfig{
		Storage:      jetstream.FileStorage,
		Retention:    jetstream.LimitsPolicy,
		Discard:      jetstream.DiscardNew,
		Replicas:     o.Replicas,
		MaxMsgs:      -1,
		MaxConsumers: -1,
		MaxMsgSize:   -1,
		Duplicates:   DuplicateWindow,
	}
	with := func(name, subject string, l Limits) jetstream.StreamConfig {
		c := base
		c.Name, c.Subjects = name, []string{subject}
		c.MaxBytes, c.MaxAge = l.BytesMax, l.AgeMax
		c.MaxMsgsPerSubject = -1
		if l.AgeMax > 0 {
			c.Duplicates = min(c.Duplicates, l.AgeMax)
		}
		return c
	}
	events := with(EventsStream, EventsSubject+">", o.Events)
	events.Metadata = map[string]string{idsKey: nuid.Next()}
	events.DenyDelete = !o.Unprotected
	o.Continues.mark(&events)
	events.MaxMsgSize = int32(payloadBytesMax - EnvelopeBytes)
	deltas := with(o.Slot.Deltas(), DeltasSubject+".*", Limits{BytesMax: o.Deltas.BytesMax})
	letters := with(DeadLetterStream, DeadLetterSubject+">", o.DeadLetters)
	letters.Discard = jetstream.DiscardOld // a full one must not stop the pipeline (I9)
	bucket := with(BucketStream, "$KV."+Bucket+".>", Limits{BytesMax: o.BucketBytesMax})
	bucket.MaxMsgsPerSubject = 1
	bucket.AllowRollup, bucket.DenyDelete, bucket.AllowDirect = true, true, true
	return []jetstream.StreamConfig{events, deltas, letters, bucket}
}

// Passing says of an error of OpenStreams or State that it may be over in a
// moment: a cluster is choosing a leader, of itself or of a stream, or has just
// started and its leader has not heard of all servers. One that leads no more and
// has not heard so, or not heard of what was just made, says that it is not there.
func Passing(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) ||
		errors.As(err, &api) && (api.ErrorCode == clusterUnavailable || api.ErrorCode == noPlacement)
}

// Leaderless says the same of an error of a read or a write, of streams that
// OpenStreams has found: while a stream has no leader, NATS says at once that
// nobody answers for it.
func Leaderless(err error) bool {
	return Passing(err) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// StreamState is what identifies a stream and its extent (I10). A stream that
// has never had a message has First and Last 0 or First 1; an emptied one has
// First = Last + 1.
type StreamState struct {
	Name            string
	Created         time.Time
	First, Last     uint64 // sequences
	Messages, Bytes uint64
	FirstTime       time.Time // of the first message; zero for none
	Now             time.Time // when the leader said all this, by its clock
	Leader          string    // the server that said it; "" where there is one server only
	// Heard is how long before that the leader had been in contact with each other server
	// that has a copy (pipeline.LogEnd).
	Heard     []time.Duration
	Trimmed   Trimmed        // of EVENTS
	Continues Continues      // of EVENTS
	Archive   string         // directory in which EVENTS is archived; "": it never was
	Backups   string         // place in which the nodes back EVENTS up; "": they never did
	Damaged   pipeline.Holes // of EVENTS: what readers have found missing, damageMax at most
}

// Begins is the first sequence that the stream has as far as was meant, by Trim or
// where it was made to go on; 1 otherwise.
func (s StreamState) Begins() uint64 {
	return max(1, s.Trimmed.Below, s.Continues.After+1)
}

// State asks the stream's leader.
func (s *Streams) State(ctx context.Context, stream string) (StreamState, error) {
	return stateBy(ctx, s.js, stream)
}

func stateBy(ctx context.Context, js jetstream.JetStream, stream string) (StreamState, error) {
	h, err := js.Stream(ctx, stream)
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == clusterUnavailable:
		return StreamState{}, fmt.Errorf("jetlog: stream %s has no leader now: it is about to have one, or most of its NATS servers are gone: %w", stream, err)
	case err != nil:
		return StreamState{}, fmt.Errorf("jetlog: state of stream %s: %w", stream, err)
	}
	return stateOf(h.CachedInfo()), nil
}

func stateOf(i *jetstream.StreamInfo) StreamState {
	s := StreamState{
		Name: i.Config.Name, Created: i.Created,
		First: i.State.FirstSeq, Last: i.State.LastSeq, FirstTime: i.State.FirstTime, Now: i.TimeStamp,
		Messages: i.State.Msgs, Bytes: i.State.Bytes,
		Trimmed: trimmedOf(i.Config), Continues: continuesOf(i.Config),
		Archive: i.Config.Metadata[archiveKey], Backups: i.Config.Metadata[backupsKey], Damaged: damagedOf(i.Config.Metadata[damagedKey]),
	}
	if i.Cluster != nil && i.Config.Replicas > 1 {
		s.Leader, s.Heard = i.Cluster.Leader, heardOf(i.Cluster.Replicas, i.Config.Replicas)
	}
	return s
}

// heardOf is when the leader of a stream with so many copies was in contact with the
// servers of the others. The server says 0 of one that it has never been in contact
// with, and may name fewer while copies are made.
func heardOf(others []*jetstream.PeerInfo, copies int) (heard []time.Duration) {
	for _, other := range others {
		if other.Active > 0 {
			heard = append(heard, other.Active)
		} else {
			heard = append(heard, pipeline.HeardNever)
		}
	}
	for len(heard) < copies-1 {
		heard = append(heard, pipeline.HeardNever)
	}
	return heard
}

// EventsEnd asks where EVENTS ends, over a connection of its own choice: what is asked
// often must not wait behind megabytes of events.
type EventsEnd struct {
	js      jetstream.JetStream
	created time.Time // zero: whichever EVENTS there is
}

// EndOver asks over a connection, which outlives it.
func (s *Streams) EndOver(nc *nats.Conn) (*EventsEnd, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetlog: ask where stream %s ends: %w", EventsStream, err)
	}
	return &EventsEnd{js, s.created}, nil
}

// State asks the leader of EVENTS. When the stream was recreated since OpenStreams, the
// error wraps ErrTail.
func (e *EventsEnd) State(ctx context.Context) (StreamState, error) {
	state, err := stateBy(ctx, e.js, EventsStream)
	if err == nil && !e.created.IsZero() {
		err = state.same(e.created)
	}
	return state, err
}

// sameState is State for a stream that must still be the one created then.
func (s *Streams) sameState(ctx context.Context, stream string, created time.Time) (StreamState, error) {
	state, err := s.State(ctx, stream)
	if err == nil {
		err = state.same(created)
	}
	return state, err
}

// same checks that the stream is the one created then.
func (s StreamState) same(created time.Time) error {
	if s.Created.Equal(created) {
		return nil
	}
	return fmt.Errorf("%w: %s was created %v, the one opened %v", ErrTail, s.Name, s.Created, created)
}

// Joins checks that reading can go on after the message `after`: the one after it is
// still there or yet to come, and the stream has not lost `after` itself. The first
// fault wraps pipeline.ErrGap, the second ErrTail.
//
// A message that an operator deleted is distinguished from one never stored only
// between First and Last; at the front of the stream it counts as a gap.
func (s StreamState) Joins(after uint64) error {
	switch {
	case after > s.Last:
		return fmt.Errorf("%w: %s ends at sequence %d, but %d has been read", ErrTail, s.Name, s.Last, after)
	case after+1 < s.First:
		return fmt.Errorf("%w: %s begins at sequence %d, but %d is the next to read", pipeline.ErrGap, s.Name, s.First, after+1)
	}
	return nil
}
