// Package cold keeps what shards have checkpointed in Badger.
package cold

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Format is the number of the layout of keys and values. A store of another
// format is refused.
const Format = 1

// Meta is what a store says of itself. It is the first thing written and
// decides whether this process may use the store.
type Meta struct {
	Format     int        `json:"format"`
	Shards     int        `json:"shards"`
	Node       string     `json:"node"` // this data directory's name among all nodes
	Dictionary Dictionary `json:"dictionary"`
	Streams    Streams    `json:"streams"`
}

// Streams are the streams whose positions and sequences the store's states
// refer to. A stream that was made anew is another stream (I10).
type Streams struct {
	Events time.Time `json:"events"` // when EVENTS was created; zero before the first start
	Deltas time.Time `json:"deltas"`
}

// Options shape a store.
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

// Store is one node's Badger database. Its methods may be used concurrently.
type Store struct {
	db     *badger.DB
	dir    string
	o      Options
	meta   Meta
	schema *pipeline.Schema

	// Versions are given out here and not by Badger, whose own transactions
	// wait for each other to commit: owners must not stall one another.
	versions versions

	counters []counterCodec // by the schema's counter index
	byNumber []int          // dictionary counter → schema counter
}

// counterCodec translates between a row in memory and on disk.
type counterCodec struct {
	number  uint8
	numbers []uint64 // cell → dictionary column
	places  []int    // dictionary column → cell
}

// Open opens the store in dir, or makes it. The store's schema is the
// configuration's with hidden columns for what it counted before.
func Open(dir string, schema *pipeline.Schema, o Options) (*Store, error) {
	fresh := isEmpty(dir)
	db, err := badger.OpenManaged(badgerOptions(dir, o))
	if err != nil {
		if fresh {
			os.RemoveAll(dir)
		}
		return nil, fmt.Errorf("cold: open the database in %s: %w; if it is damaged, move it away and run 'tidemark repair --replay'", dir, err)
	}
	s := &Store{db: db, dir: dir, o: o}
	s.versions.last = db.MaxVersion()
	if err := s.load(schema, o); err != nil {
		db.Close()
		if fresh {
			os.RemoveAll(dir)
		}
		return nil, err
	}
	return s, nil
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

func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// load reads meta, or writes it into a new store, and merges the schema.
func (s *Store) load(schema *pipeline.Schema, o Options) error {
	found := false
	err := s.View(Newest, func(v *View) (err error) {
		found, err = v.get(metaKey, func(b []byte) error { return json.Unmarshal(b, &s.meta) })
		return err
	})
	fresh := err == nil && !found
	switch {
	case fresh && !s.empty():
		return errors.New("cold: the database is not one of Tidemark's: it holds keys but not what says whose they are; use another data_dir")
	case fresh:
		s.meta = Meta{Format: Format, Shards: o.Shards, Node: o.Node}
	case err != nil:
		return fmt.Errorf("cold: read the store's meta: %w", err)
	case s.meta.Format != Format:
		return fmt.Errorf("cold: the data directory has format %d, this version reads format %d: use the version that wrote it, or another data_dir", s.meta.Format, Format)
	case s.meta.Shards != o.Shards:
		return fmt.Errorf("cold: the data directory has %d shards and the configuration says %d: set shards: %d, or rebuild with 'tidemark repair --replay'", s.meta.Shards, o.Shards, s.meta.Shards)
	}
	changed, err := s.adopt(schema)
	if err != nil {
		return err
	}
	if changed || fresh {
		return s.writeMeta()
	}
	return nil
}

// empty says whether the database has no key at all.
func (s *Store) empty() bool {
	empty := true
	_ = s.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		it.Rewind()
		empty = !it.Valid()
		return nil
	})
	return empty
}

// adopt merges the configuration's schema with the dictionary; changed says
// whether the dictionary has new names, which must be stored before any row.
func (s *Store) adopt(schema *pipeline.Schema) (changed bool, err error) {
	s.schema, err = s.meta.Dictionary.merge(schema)
	if err != nil {
		return false, err
	}
	s.meta.Dictionary, changed, err = s.meta.Dictionary.extend(s.schema)
	if err != nil {
		return false, err
	}
	s.translate()
	return changed, nil
}

func (s *Store) writeMeta() error {
	value, err := json.Marshal(s.meta)
	if err != nil {
		return err
	}
	c := s.Begin()
	defer c.Settle()
	if err := c.set(metaKey, value); err != nil {
		return fmt.Errorf("cold: write the store's meta: %w", err)
	}
	if err := c.Commit(); err != nil { // synced: rows written by new numbers must not survive without them
		return fmt.Errorf("cold: write the store's meta: %w", err)
	}
	return nil
}

func (s *Store) translate() {
	s.byNumber = make([]int, len(s.meta.Dictionary))
	s.counters = make([]counterCodec, len(s.schema.Counters))
	for i, counter := range s.schema.Counters {
		at := s.meta.Dictionary.find(counter.Name)
		s.byNumber[at] = i
		c := &s.counters[i]
		c.number = uint8(at)
		c.numbers = make([]uint64, counter.Count)
		c.places = make([]int, counter.Count)
		for number, name := range s.meta.Dictionary[at].Columns {
			column, _ := s.schema.Find(counter.Name + "." + name)
			c.places[number] = int(column - counter.First)
			c.numbers[column-counter.First] = uint64(number)
		}
	}
}

// Schema is the merged schema: what this store's shards hold.
func (s *Store) Schema() *pipeline.Schema { return s.schema }

// Meta is what the store says of itself.
func (s *Store) Meta() Meta { return s.meta }

// SetStreams records the streams that the states refer to from now on.
func (s *Store) SetStreams(streams Streams) error {
	s.meta.Streams = streams
	return s.writeMeta()
}

// BatchRowsMax is how many rows, entries and states one transaction takes,
// whatever they hold. Badger bounds a transaction in entries and in bytes, both
// exclusive, and one entry is its own.
func (s *Store) BatchRowsMax() int {
	const own, perEntry = 64, 12 // bytes of Badger's own, at most
	row := 0
	for _, c := range s.counters {
		value := 0
		for _, number := range c.numbers {
			value += len(binary.AppendUvarint(nil, number)) + binary.MaxVarintLen64
		}
		row = max(row, rowKeyBytes+value+perEntry)
	}
	row = max(row, rowKeyBytes+3*binary.MaxVarintLen64+perEntry)                      // a state
	row = max(row, kindEnd+8+pipeline.ChannelBytesMax+binary.MaxVarintLen64+perEntry) // a cursor: the longest entry
	return int(min(s.db.MaxBatchCount()-2, (s.db.MaxBatchSize()-own)/int64(row)))
}

// Sizes are Badger's own figures: bytes of tables and of value logs.
func (s *Store) Sizes() (tables, valueLog int64) { return s.db.Size() }

// DataBytes is how many bytes the tables hold before any compression.
func (s *Store) DataBytes() (bytes uint64) {
	for _, t := range s.db.Tables() {
		bytes += uint64(t.UncompressedSize)
	}
	return bytes
}

// Close closes the database; nothing may use the store any more.
func (s *Store) Close() error { return s.db.Close() }

// State reads how far a shard has come; the zero State if it never did.
func (s *Store) State(shard pipeline.Shard) (state State, err error) {
	err = s.View(Newest, func(v *View) error {
		_, err := v.get(shardKey(shard, kindState), func(b []byte) (err error) {
			state, err = decodeState(b)
			return err
		})
		return err
	})
	if err != nil {
		return state, fmt.Errorf("cold: read the state of shard %d: %w", shard, err)
	}
	return state, nil
}

// Checkpoint is one transaction: changed rows of some shards and those
// shards' states, together or not at all (I4).
//
// Its version stays reserved until Settle: what it overwrites can be read, as
// of the version before, until then.
type Checkpoint struct {
	store   *Store
	txn     *badger.Txn
	version uint64
}

// Begin opens a checkpoint. It takes at most BatchRowsMax rows and states.
// Settle must follow, after Commit or Discard.
func (s *Store) Begin() *Checkpoint {
	c := &Checkpoint{store: s, version: s.versions.begin()}
	if !s.db.IsClosed() { // Badger would wait for ever
		c.txn = s.db.NewTransactionAt(math.MaxUint64, true)
	}
	return c
}

// Row adds one row; a row of zeros is taken off the disk.
func (c *Checkpoint) Row(shard pipeline.Shard, counter int, id uint64, cells []int64) error {
	codec := &c.store.counters[counter]
	key := rowKey(shard, codec.number, id)
	value := appendCells(nil, codec.numbers, cells)
	if len(value) == 0 {
		return c.delete(key)
	}
	return c.set(key, value)
}

func (c *Checkpoint) set(key, value []byte) error {
	if c.txn == nil {
		return c.wrap(badger.ErrDBClosed)
	}
	return c.wrap(c.txn.Set(key, value))
}

func (c *Checkpoint) delete(key []byte) error {
	if c.txn == nil {
		return c.wrap(badger.ErrDBClosed)
	}
	return c.wrap(c.txn.Delete(key))
}

// State adds how far a shard has come with the rows added.
func (c *Checkpoint) State(shard pipeline.Shard, state State) error {
	return c.set(shardKey(shard, kindState), state.encode())
}

// Commit writes the transaction. After an error nothing of it is there.
func (c *Checkpoint) Commit() error {
	if c.txn == nil {
		return c.wrap(badger.ErrDBClosed)
	}
	if o := c.store.o; o.Free != nil {
		if free, ok := o.Free(); ok && free < o.Reserve() {
			c.txn.Discard()
			return c.wrap(fmt.Errorf("%w: it has %d MiB left, and a checkpoint needs %d MiB", ErrDiskFull, free>>20, o.Reserve()>>20))
		}
	}
	return c.wrap(c.txn.CommitAt(c.version, nil))
}

// Version is what the checkpoint's changes are written as.
func (c *Checkpoint) Version() uint64 { return c.version }

// Settle says that nobody reads as of before this checkpoint any more.
func (c *Checkpoint) Settle() {
	if keep := c.store.versions.settle(c.version); c.txn != nil && !c.store.db.IsClosed() {
		c.store.db.SetDiscardTs(keep) // of each key the newest version up to here stays
	}
}

// Discard lets an uncommitted checkpoint go.
func (c *Checkpoint) Discard() {
	if c.txn != nil {
		c.txn.Discard()
	}
}

func (c *Checkpoint) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("cold: checkpoint: %w", err)
	}
	return nil
}

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
