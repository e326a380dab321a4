package cold

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Options shape a store in Badger.
type Options struct {
	Shards        int
	Node          string // given to a new store
	MemTableBytes int64
	BlockCache    int64
	IndexCache    int64
	// Free tells how many bytes the disk has left; nil: it is not asked. Below
	// [Reserve] nothing is written: Badger writes through memory maps, where a
	// full disk does not return an error but ends the process.
	Free   func() (bytes uint64, ok bool)
	Logger *slog.Logger
}

// Reserve is what the disk must have free for a checkpoint: the buffers that
// may be written out because of it, and some of what compaction needs.
func (o Options) Reserve() uint64 { return uint64(2*o.MemTableBytes) + 64<<20 }

// ErrDiskFull: the disk has too little left to write a checkpoint.
var ErrDiskFull = errors.New("cold: the disk is full")

// Open opens the store in dir, or makes it. The store's schema is the
// configuration's with hidden columns for what it counted before. The caller
// sees to it that no other process opens dir at the same time.
func Open(dir string, schema *pipeline.Schema, o Options) (*Store, error) {
	fresh := isEmpty(dir)
	undo := func() {
		if fresh {
			os.RemoveAll(dir)
		}
	}
	engine, err := openBadger(dir, o)
	if err != nil {
		undo()
		return nil, err
	}
	s, err := OpenOn(engine, schema, o.Shards, o.Node)
	if err != nil {
		engine.Close()
		undo()
		return nil, err
	}
	return s, nil
}

func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// badgerEngine is an [Engine].
type badgerEngine struct {
	db  *badger.DB
	dir string
	o   Options
}

func openBadger(dir string, o Options) (*badgerEngine, error) {
	if err := removeEmptyLogs(dir); err != nil {
		return nil, fmt.Errorf("cold: open the database in %s: %w", dir, err)
	}
	db, err := badger.OpenManaged(badgerOptions(dir, o))
	if err != nil {
		return nil, fmt.Errorf("cold: open the database in %s: %w; if it is damaged, move it away and run 'tidemark repair --replay'", dir, err)
	}
	return &badgerEngine{db, dir, o}, nil
}

// removeEmptyLogs removes the logs of length 0, which hold nothing. A kill
// leaves them: Badger makes a log, then gives it its length, and takes the
// length away again before it removes a log that it needs no more. Badger
// refuses to open a directory that holds one.
func removeEmptyLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".mem" && ext != ".vlog" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func badgerOptions(dir string, o Options) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(logger{o.Logger}).
		WithSyncWrites(true). // one sync a commit: a log that rotates unsynced could outlive an older one in a power cut (I4)
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		WithCompression(options.None). // rows are packed already
		WithMemTableSize(o.MemTableBytes).
		WithNumMemtables(2).
		WithBlockCacheSize(o.BlockCache).
		WithIndexCacheSize(o.IndexCache).
		WithMetricsEnabled(false)
}

// View implements [Engine].
func (e *badgerEngine) View(as uint64, read func(Reader) error) (err error) {
	if e.db.IsClosed() { // Badger would wait for ever
		return ErrClosed
	}
	txn := e.db.NewTransactionAt(as, false)
	defer txn.Discard()
	defer func() { // Badger panics on some damaged blocks
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Badger panicked: %v", ErrCorrupt, p)
		}
	}()
	return read(badgerReader{txn})
}

type badgerReader struct{ txn *badger.Txn }

// Get implements [Reader].
func (r badgerReader) Get(key []byte) (Item, error) {
	item, err := r.txn.Get(key)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return item, nil
}

// Scan implements [Reader].
func (r badgerReader) Scan(prefix, from []byte, since uint64, visit func(Item) (more bool, err error)) error {
	o := badger.DefaultIteratorOptions
	o.Prefix, o.PrefetchValues, o.SinceTs = prefix, false, max(since, 1)-1 // Badger's is the last that is left out
	it := r.txn.NewIterator(o)
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		if more, err := visit(it.Item()); err != nil || !more {
			return err
		}
	}
	return nil
}

// Begin implements [Engine].
func (e *badgerEngine) Begin() Transaction {
	if e.db.IsClosed() { // Badger would wait for ever
		return closed{}
	}
	return &badgerTransaction{e.db.NewTransactionAt(math.MaxUint64, true), e}
}

type badgerTransaction struct {
	*badger.Txn
	engine *badgerEngine
}

// Commit implements [Transaction].
func (t *badgerTransaction) Commit(version uint64) error {
	if o := t.engine.o; o.Free != nil {
		if free, ok := o.Free(); ok && free < o.Reserve() {
			t.Discard()
			return fmt.Errorf("%w: it has %d MiB left, and a checkpoint needs %d MiB", ErrDiskFull, free>>20, o.Reserve()>>20)
		}
	}
	return t.CommitAt(version, nil)
}

// closed is a transaction of an engine that is closed.
type closed struct{}

func (closed) Set(_, _ []byte) error { return ErrClosed }
func (closed) Delete([]byte) error   { return ErrClosed }
func (closed) Commit(uint64) error   { return ErrClosed }
func (closed) Discard()              {}

// MaxVersion implements [Engine].
func (e *badgerEngine) MaxVersion() uint64 { return e.db.MaxVersion() }

// Forget implements [Engine].
func (e *badgerEngine) Forget(before uint64) {
	if !e.db.IsClosed() {
		e.db.SetDiscardTs(before)
	}
}

// TransactionMax implements [Engine].
func (e *badgerEngine) TransactionMax() (changes, bytes int64) {
	return e.db.MaxBatchCount(), e.db.MaxBatchSize()
}

// Sizes implements [Engine].
func (e *badgerEngine) Sizes() (tables, valueLog int64) { return e.db.Size() }

// DataBytes implements [Engine].
func (e *badgerEngine) DataBytes() (bytes uint64) {
	for _, t := range e.db.Tables() {
		bytes += uint64(t.UncompressedSize)
	}
	return bytes
}

// Close implements [Engine].
func (e *badgerEngine) Close() error { return e.db.Close() }

// logger passes Badger's log on, with its chatter as debug.
type logger struct{ *slog.Logger }

func (l logger) Errorf(f string, v ...any)   { l.Error("badger: " + line(f, v)) }
func (l logger) Warningf(f string, v ...any) { l.Warn("badger: " + line(f, v)) }
func (l logger) Infof(f string, v ...any)    { l.Debug("badger: " + line(f, v)) }
func (l logger) Debugf(f string, v ...any)   { l.Debug("badger: " + line(f, v)) }

func line(f string, v []any) string {
	s := fmt.Sprintf(f, v...)
	for len(s) > 0 && s[len(s)-1] == '\n' {
		s = s[:len(s)-1]
	}
	return s
}
