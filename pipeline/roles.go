package pipeline

import (
	"context"
	"errors"
)

// Message is one message of EVENTS as the stream holds it.
type Message struct {
	Sequence uint64
	Time     int64               // the stream's timestamp, Unix milliseconds
	Subject  string              // "events.like"
	Header   map[string][]string // may be nil
	Data     []byte              // owned by the receiver
}

// Source reads EVENTS in order.
//
// Next blocks until there is a message, then returns the run of messages at
// hand: consecutive in log order, at least one, bounded in number and bytes,
// gathered for no longer than the source's linger. Sequences do not jump. It
// returns an error that wraps ErrGap where messages have left the front of the
// stream before they were read, one that wraps *Hole where the stream lacks
// messages between others, ctx's error when ctx ends, and any other error when
// the source is beyond use.
// Not for concurrent use.
type Source interface {
	Next(ctx context.Context) ([]Message, error)
	Close() error
}

// Events is EVENTS for a process that reads it and looks after its tail.
type Events interface {
	// Open reads on after from: the message that from.Next names comes first,
	// even if some of its lines have been read. It is an error when messages
	// behind from are gone (ErrGap), and when the stream ends before from.
	Open(ctx context.Context, from Position) (Source, error)

	// Holds is an error when the stream is not the one that was opened first. The error wraps
	// ErrLostTail if the stream ends before the message counted, or has another one there: it
	// is younger than at, log time (Unix ms; 0: not known) when that much was counted.
	Holds(ctx context.Context, counted uint64, at int64) error
}

// Log is DELTAS: one message a window, appended by compare-and-set.
type Log interface {
	// Tail is the last window's header and sequence as the stream's leader
	// holds it; a zero header and sequence for a log that never had one. A log
	// that is gone, has lost its last window, or ends with something that is no
	// window, it recreates: then that log never had one.
	Tail(ctx context.Context) (Header, uint64, error)

	// Append stores one encoded window iff the log is the one that Tail has
	// seen and its last sequence is still `last`, and returns the sequence it got. ErrFenced: another writer was
	// faster, nothing was stored. Any other error: not known whether it was
	// stored; read Tail before doing anything else. window is not kept.
	Append(ctx context.Context, last uint64, window []byte) (uint64, error)

	// First is the header and sequence of the oldest window still there; zeros
	// for a log that holds none. It is an error, and the log recreated, when what
	// it begins with is no window of a router's. From is where the log takes over from what
	// has been purged.
	First(ctx context.Context) (Header, uint64, error)

	// At is the header of the window with a sequence.
	At(ctx context.Context, sequence uint64) (Header, error)
}

// Entry is one message of DELTAS.
type Entry struct {
	Sequence uint64
	Time     int64 // Unix milliseconds of the append
	Window   []byte
}

// Tailer follows DELTAS in order, with Source's rules for Next. What is no
// window of a router's ends it, and the log is recreated.
type Tailer interface {
	Next(ctx context.Context) ([]Entry, error)
	Close() error
}

// Shards are a node's, with what every node holds: what windows are applied to.
// Hand, Sequence and Resume are for one caller at a time, the others for any.
type Shards interface {
	// Hand gives a window to all of them, which apply it some time later, or
	// pass it over (I3). It blocks while too many wait.
	Hand(ctx context.Context, e Entry) error
	// Settle returns when what was handed over is applied by all that go on.
	// It may not return before ctx ends when all have stopped.
	Settle(ctx context.Context) error
	// Sequence is the window of DELTAS after which Hand goes on: the last one
	// handed over, or what Resume said since, or an earlier one, if a shard was
	// taken up since that stands there.
	Sequence() uint64
	Resume(sequence uint64)

	// Positions are where those that go on stand, ascending, each once.
	Positions() []Position
	// Kept are where a crash would leave them, also those that have stopped.
	Kept() []Position
	// Handed is the end of the last window handed over.
	Handed() Position
	// Furthest is how far the furthest has come, stopped or not, and the log
	// time there (Unix ms; 0 when it is not known).
	Furthest() (position Position, time int64)

	// Stopped says that none goes on; Err is why those stopped that have.
	Stopped() bool
	Err() error
}

// DeadLetters keeps what cannot be understood.
//
// Keep returns when every letter is stored; a letter kept twice (same
// position and body) is stored once within the stream's duplicate window. It
// retries by itself while ctx lives.
type DeadLetters interface {
	Keep(ctx context.Context, letters []DeadLetter) error
}

// DeadLetter is one event, or one whole message, that could not be
// understood (I9).
type DeadLetter struct {
	Position Position
	Reason   Reason
	Detail   string              // one sentence for a person
	Subject  string              // of the message
	Header   map[string][]string // as it came
	Data     []byte              // the body as it came; of a pack, the line
}

// Reason is the class of a dead letter, the last token of its subject.
type Reason string

// The reasons. A pack is refused whole for ReasonPack only.
const (
	ReasonJSON       Reason = "json"       // not one JSON object
	ReasonType       Reason = "type"       // no type, or one no rule knows
	ReasonContradict Reason = "contradict" // the body's type is not the subject's
	ReasonID         Reason = "id"         // an id is missing, zero or not an unsigned 64-bit integer
	ReasonField      Reason = "field"      // any other field is missing or malformed
	ReasonAsOf       Reason = "as_of"      // a read has one, and nothing that it bears on
	ReasonSelf       Reason = "self"       // a user follows themself
	ReasonUnknown    Reason = "unknown"    // names a counter, column or unread kind that is not configured
	ReasonPack       Reason = "pack"       // more lines than PackMax
)

// Reasons lists them all, for metrics and documentation.
var Reasons = reasons[:]

var reasons = [...]Reason{
	ReasonJSON, ReasonType, ReasonContradict, ReasonID, ReasonField, ReasonAsOf, ReasonSelf, ReasonUnknown, ReasonPack,
}

// Derived is one window with what else came out of its messages.
type Derived struct {
	Header
	Window  []byte // encoded; owned by the receiver
	Letters []DeadLetter
	Changes int // before merging
	Merged  int // in the window
}

// Deriver turns events into windows. It is a pure function of the messages,
// from and the rules (I5); it keeps no state but buffers, and one Deriver is
// used by one goroutine at a time.
//
// Derive covers (from, to] with one or more windows that chain (I2), each
// within the deriver's bounds; lines outside are passed over. to is not past
// EndOf(last message), and after from.
type Deriver interface {
	Derive(from, to Position, messages []Message) ([]Derived, error)
}

// DeriveRun covers (from, EndOf(last message)] and ends a window at each of
// cuts, which ascend, that falls inside: where a shard stands that has to go
// on from there (I3).
func DeriveRun(d Deriver, from Position, messages []Message, cuts []Position) ([]Derived, error) {
	end := EndOf(messages[len(messages)-1].Sequence)
	var out []Derived
	for _, cut := range cuts {
		if cut <= from || cut >= end {
			continue
		}
		part, err := d.Derive(from, cut, messages)
		if err != nil {
			return nil, err
		}
		out, from = append(out, part...), cut
	}
	rest, err := d.Derive(from, end, messages)
	return append(out, rest...), err
}

// Lease says which router is the active one. It saves work, not correctness:
// Log.Append distinguishes two routers that both think they hold it.
type Lease interface {
	// Acquire blocks until the lease is this process's, or ctx ends. The
	// returned context ends when the lease is lost or released.
	Acquire(ctx context.Context) (held context.Context, release func(), err error)
}

// Errors that callers tell apart.
var (
	// ErrFenced: another router has appended to DELTAS; step down.
	ErrFenced = errors.New("pipeline: another router has written to the delta log")
	// ErrGap: the log does not join on to what was read before (I2, I3).
	ErrGap = errors.New("pipeline: gap in the log")
	// ErrLostTail says that EVENTS has lost events that are counted: everything is to be
	// counted again.
	ErrLostTail = errors.New("pipeline: EVENTS has lost its tail, which was counted")
	// ErrFull: EVENTS has no room, and the event was not stored.
	ErrFull = errors.New("pipeline: the log is full")
	// ErrNoLog: nobody took the event, which was not stored: EVENTS has no leader, or
	// is gone.
	ErrNoLog = errors.New("pipeline: the log takes no events now")
)
