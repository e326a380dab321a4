package cold

import "errors"

// Engine is what a [Store] keeps its keys in: Badger, or in the simulation a
// disk that goes wrong. It holds of each key the values it had as of versions;
// which version a commit is of, the Store says. Its methods may be used
// concurrently. After Close all of them return an error that wraps
// [ErrClosed], or do nothing.
type Engine interface {
	// View calls read with what was committed as of a version ([Newest]: up to
	// each single look). A panic of the engine's own, at bytes that it cannot
	// take apart, comes back as an error that wraps [ErrCorrupt].
	View(as uint64, read func(Reader) error) error

	// Begin opens a transaction; Commit or Discard must follow. It belongs to
	// one goroutine.
	Begin() Transaction

	// MaxVersion is the newest version that anything was committed as.
	MaxVersion() uint64

	// Forget says that nobody reads as of before a version any more: of each
	// key the newest value up to there stays.
	Forget(before uint64)

	// TransactionMax bounds a transaction in changes and in bytes, of keys,
	// values and what the engine adds to each; both must stay below.
	TransactionMax() (changes, bytes int64)

	// Sizes are the bytes of the engine's files; DataBytes what tables hold
	// before any compression.
	Sizes() (tables, valueLog int64)
	DataBytes() uint64

	// Verify compares what is stored with its checksums, until more says no.
	Verify(more func() bool, damaged func(Damage))

	Close() error
}

// Reader looks at an engine as of one version. It belongs to one goroutine,
// and to one call of [Engine.View].
type Reader interface {
	// Get returns what a key holds; nil when there is nothing.
	Get(key []byte) (Item, error)

	// Scan visits the keys with a prefix, from a key on, ascending, that were
	// last changed as of a version or later, until visit says no or fails: its
	// error is returned as it is.
	Scan(prefix, from []byte, since uint64, visit func(Item) (more bool, err error)) error
}

// Item is a key and what it holds. It, the key and the value are valid until
// the next look, and must not be changed.
type Item interface {
	Key() []byte
	Value(read func([]byte) error) error
	Version() uint64
}

// Transaction gathers changes. It keeps keys and values: whoever adds them
// must not write to them any more.
type Transaction interface {
	Set(key, value []byte) error
	Delete(key []byte) error

	// Commit writes all of it as one version, at once: it survives the process
	// when Commit returns nil. After an error all of it is there, or nothing.
	// Transactions of several goroutines may commit side by side, in any order
	// of versions; they have no key in common.
	Commit(version uint64) error
	Discard()
}

// ErrClosed: the store is closed.
var ErrClosed = errors.New("cold: the store is closed")
