package cold

import (
	"errors"
	"io"
)

// Engine is what a [Store] keeps its keys and its files in: Badger and a
// directory, or in the simulation a disk that goes wrong. Keys are few and
// small; what is large is in files, which are written once. Its methods may be
// used concurrently. After Close all of them return an error that wraps
// [ErrClosed]; files that are open can be read until they are closed.
type Engine interface {
	// Get returns what a key holds; nil when there is nothing. A panic of the
	// engine's own, at bytes that it cannot take apart, comes back as an error
	// that wraps [ErrCorrupt], as it does from Scan.
	Get(key []byte) (value []byte, err error)

	// Scan visits the keys with a prefix, ascending, until visit fails: its
	// error is returned as it is. key and value are valid during the visit.
	Scan(prefix []byte, visit func(key, value []byte) error) error

	// Commit writes all of it at once: it survives the process, and the
	// machine's power, when Commit returns nil. After an error all of it is
	// there, or nothing, and a later commit of the same keys overwrites it.
	// Commits side by side have no key in common.
	Commit(writes []Write) error

	// Create begins a file. Its name must be new.
	Create(name string) (NewFile, error)

	// Open opens a sealed file.
	Open(name string) (File, error)

	// Remove removes a file. One that is open can be read until it is closed.
	Remove(name string) error

	// Files lists the files that are there, ascending; after a kill those that
	// were not sealed too, whole, torn or not at all.
	Files() (names []string, err error)

	// Room returns an error that wraps [ErrDiskFull] where the disk has less
	// than so many bytes left besides what it must keep for commits.
	Room(bytes int64) error

	// Sizes are the bytes of the keys' files.
	Sizes() (tables, valueLog int64)

	// Verify compares what keys hold with checksums, until more says no.
	Verify(more func() bool, damaged func(Damage))

	Close() error
}

// Write is a change of one key.
type Write struct {
	Key   []byte
	Value []byte // nil: the key goes
}

// NewFile is a file that is being written. It belongs to one goroutine. Seal
// or Abort ends it.
type NewFile interface {
	io.Writer

	// Seal makes the file durable, its name too. After an error it is gone.
	Seal() error

	// Abort removes it.
	Abort()
}

// File is a file that is open. It may be read concurrently.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// ErrClosed: the store is closed.
var ErrClosed = errors.New("cold: the store is closed")

// ErrDiskFull: the disk has too little left to write.
var ErrDiskFull = errors.New("cold: the disk is full")
