package cold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Options shape a store in Badger.
type Options struct {
	Shards        int
	Node          string // given to a new store
	MemTableBytes int64
	BlockCache    int64
	IndexCache    int64
	// Free is how many bytes the disk has left; nil: it is not asked. Below
	// [Reserve] nothing is written: Badger writes through memory maps, where a
	// full disk does not return an error but ends the process. Merges leave a
	// checkpoint's share besides.
	Free   func() (bytes uint64, ok bool)
	Logger *slog.Logger
}

// Reserve is what the disk must have free for a checkpoint: the buffers that
// may be written out because of it, and some of what compaction needs.
func (o Options) Reserve() uint64 { return uint64(2*o.MemTableBytes) + 64<<20 }

// Open opens the store in dir, or makes it. The store's schema is the
// configuration's with hidden columns for what it counted before. The caller
// sees to it that no other process opens dir at the same time. Merges begin, and
// go on beside everything else until Close.
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
	s, err := openOn(engine, schema, o)
	if err != nil {
		engine.Close()
		undo()
		return nil, err
	}
	s.mergerDone = make(chan struct{})
	go s.merger()
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

// badgerEngine is an [Engine]: keys in Badger, files in a directory beside its own.
type badgerEngine struct {
	directory
	db      *badger.DB
	dir     string
	o       Options
	version atomic.Uint64 // that the last commit was of
}

func openBadger(dir string, o Options) (*badgerEngine, error) {
	if err := removeEmptyLogs(dir); err != nil {
		return nil, fmt.Errorf("cold: open the database in %s: %w", dir, err)
	}
	err := checkTables(dir, o)
	var db *badger.DB
	if err == nil {
		db, err = badger.OpenManaged(badgerOptions(dir, o))
	}
	if err != nil {
		return nil, fmt.Errorf("cold: open the database in %s: %w; if it is damaged, move it away and run 'tidemark repair --replay'", dir, err)
	}
	e := &badgerEngine{db: db, dir: dir, o: o}
	if e.directory, err = openDirectory(filepath.Join(dir, runsDir)); err != nil {
		db.Close()
		return nil, fmt.Errorf("cold: open the directory of runs: %w", err)
	}
	e.version.Store(db.MaxVersion())
	return e, nil
}

// checkTables compares the checksums of the tables that the manifest lists, before Badger opens
// them: on some that are damaged it panics, in goroutines of its own, which ends the process; and a
// block whose checksum is wrong it passes over when it reads, as if it were empty. Tables are small,
// for rows are in runs. One that is not there Badger names.
func checkTables(dir string, o Options) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil // a new one, or Badger says what is wrong
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, 0, badgerOptions(dir, o))
	if err != nil {
		return nil // Badger says so
	}
	for id := range manifest.Tables {
		name := table.NewFilename(id, dir)
		if err := verifyTable(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: table %s: %w", ErrCorrupt, name, err)
		}
	}
	return nil
}

// recovered makes an error of a panic: Badger panics on some damaged blocks.
func recovered(err *error) {
	if p := recover(); p != nil {
		first, _, _ := strings.Cut(fmt.Sprint(p), "\n")
		*err = fmt.Errorf("%w: Badger panicked: %s", ErrCorrupt, first)
	}
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
		WithBypassLockGuard(true). // Open's caller keeps others out; see TestForkHoldsNoStore
		WithNumVersionsToKeep(1).
		WithCompression(options.None). // rows are packed already
		WithMemTableSize(o.MemTableBytes).
		WithNumMemtables(2).
		WithBlockCacheSize(o.BlockCache).
		WithIndexCacheSize(o.IndexCache).
		WithMetricsEnabled(false)
}

// Get implements [Engine].
func (e *badgerEngine) Get(key []byte) (value []byte, err error) {
	err = e.look(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			value, err = item.ValueCopy([]byte{})
		}
		return err
	})
	return value, err
}

// Scan implements [Engine].
func (e *badgerEngine) Scan(prefix []byte, visit func(key, value []byte) error) error {
	return e.look(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.Prefix, o.PrefetchValues = prefix, false
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Seek(prefix); it.Valid(); it.Next() {
			item := it.Item()
			if err := item.Value(func(value []byte) error { return visit(item.Key(), value) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// look reads what is committed.
func (e *badgerEngine) look(read func(*badger.Txn) error) (err error) {
	if e.db.IsClosed() { // Badger would wait for ever
		return ErrClosed
	}
	txn := e.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	defer recovered(&err)
	return read(txn)
}

// Commit implements [Engine]. Versions are given out here and not by Badger,
// whose own transactions wait for each other: owners must not stall one
// another. Commits side by side have no key in common, so that their order is
// nobody's concern.
func (e *badgerEngine) Commit(writes []Write) error {
	if e.db.IsClosed() { // Badger would wait for ever
		return ErrClosed
	}
	if err := e.Room(0); err != nil {
		return err
	}
	txn := e.db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	for _, w := range writes {
		var err error
		if w.Value == nil {
			err = txn.Delete(w.Key)
		} else {
			err = txn.Set(w.Key, w.Value)
		}
		if err != nil {
			return err
		}
	}
	version := e.version.Add(1)
	if err := txn.CommitAt(version, nil); err != nil {
		return err
	}
	e.db.SetDiscardTs(version) // nobody reads as of before
	return nil
}

// Room implements [Engine].
func (e *badgerEngine) Room(bytes int64) error {
	if e.o.Free == nil {
		return nil
	}
	need := e.o.Reserve() + uint64(bytes)
	if free, ok := e.o.Free(); ok && free < need {
		return fmt.Errorf("%w: it has %d MiB left, and %d MiB are needed", ErrDiskFull, free>>20, need>>20)
	}
	return nil
}

// Sizes implements [Engine].
func (e *badgerEngine) Sizes() (tables, valueLog int64) { return e.db.Size() }

// Create implements [Engine].
func (e *badgerEngine) Create(name string) (NewFile, error) {
	if e.db.IsClosed() {
		return nil, ErrClosed
	}
	if err := e.Room(0); err != nil {
		return nil, err
	}
	return e.directory.Create(name)
}

// Open implements [Engine].
func (e *badgerEngine) Open(name string) (File, error) {
	if e.db.IsClosed() {
		return nil, ErrClosed
	}
	return e.directory.Open(name)
}

// Remove implements [Engine].
func (e *badgerEngine) Remove(name string) error {
	if e.db.IsClosed() {
		return ErrClosed
	}
	return e.directory.Remove(name)
}

// Files implements [Engine].
func (e *badgerEngine) Files() ([]string, error) {
	if e.db.IsClosed() {
		return nil, ErrClosed
	}
	return e.directory.Files()
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
