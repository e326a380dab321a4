// Package cold keeps what shards have checkpointed in Badger.
package cold

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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

// Store is one node's database. Its methods may be used concurrently.
type Store struct {
	engine Engine
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

// OpenOn opens the store that an engine holds, or makes it; node is its name
// then. An engine that cannot be used stays open.
func OpenOn(engine Engine, schema *pipeline.Schema, shards int, node string) (*Store, error) {
	s := &Store{engine: engine}
	s.versions.last = engine.MaxVersion()
	if err := s.load(schema, shards, node); err != nil {
		return nil, err
	}
	return s, nil
}

// load reads meta, or writes it into a new store, and merges the schema.
func (s *Store) load(schema *pipeline.Schema, shards int, node string) error {
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
		s.meta = Meta{Format: Format, Shards: shards, Node: node}
	case err != nil:
		return fmt.Errorf("cold: read the store's meta: %w", err)
	case s.meta.Format != Format:
		return fmt.Errorf("cold: the data directory has format %d, this version reads format %d: use the version that wrote it, or another data_dir", s.meta.Format, Format)
	case s.meta.Shards != shards:
		return fmt.Errorf("cold: the data directory has %d shards and the configuration says %d: set shards: %d, or rebuild with 'tidemark repair --replay'", s.meta.Shards, shards, s.meta.Shards)
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
	_ = s.View(Newest, func(v *View) error {
		return v.reader.Scan(nil, nil, 0, func(Item) (bool, error) {
			empty = false
			return false, nil
		})
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
	changes, bytes := s.engine.TransactionMax()
	return int(min(changes-2, (bytes-own)/int64(row)))
}

// Sizes are the engine's own figures: bytes of tables and of value logs.
func (s *Store) Sizes() (tables, valueLog int64) { return s.engine.Sizes() }

// DataBytes is how many bytes the tables hold before any compression.
func (s *Store) DataBytes() uint64 { return s.engine.DataBytes() }

// Verify reads all that is stored and compares it with its checksums, until
// more says no.
func (s *Store) Verify(more func() bool, damaged func(Damage)) { s.engine.Verify(more, damaged) }

// Close closes the database; nothing may use the store any more.
func (s *Store) Close() error { return s.engine.Close() }

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
	txn     Transaction
	version uint64
}

// Begin opens a checkpoint. It takes at most BatchRowsMax rows and states.
// Settle must follow, after Commit or Discard.
func (s *Store) Begin() *Checkpoint {
	return &Checkpoint{store: s, txn: s.engine.Begin(), version: s.versions.begin()}
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
	return c.wrap(c.txn.Set(key, value))
}

func (c *Checkpoint) delete(key []byte) error {
	return c.wrap(c.txn.Delete(key))
}

// State adds how far a shard has come with the rows added.
func (c *Checkpoint) State(shard pipeline.Shard, state State) error {
	return c.set(shardKey(shard, kindState), state.encode())
}

// Commit writes the transaction. After an error all of it is there, or nothing.
func (c *Checkpoint) Commit() error { return c.wrap(c.txn.Commit(c.version)) }

// Version is what the checkpoint's changes are written as.
func (c *Checkpoint) Version() uint64 { return c.version }

// Settle says that nobody reads as of before this checkpoint any more.
func (c *Checkpoint) Settle() { c.store.engine.Forget(c.store.versions.settle(c.version)) }

// Discard lets an uncommitted checkpoint go.
func (c *Checkpoint) Discard() { c.txn.Discard() }

func (c *Checkpoint) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("cold: checkpoint: %w", err)
	}
	return nil
}
