// Package cold keeps what shards have checkpointed: runs in files, and in
// Badger which of them are a shard's.
//
//	checkpoint.go  what changed in some shards becomes a run of each, in one file;
//	               gather.go sorts it
//	stack.go       a shard's state and its runs, newest above oldest
//	view.go        reads a shard's runs as of one moment; walk.go goes over all of them
//	plan.go        which runs to merge; merge.go merges them
//	sets.go        reads the members of sets
//	files.go       which files are open, and which go
//	open.go        what is found at a start; list.go the value of a shard's key
//	verify.go      compares what is stored with its checksums
//	export.go      a shard as of a checkpoint, to be copied; import.go takes it over,
//	               copy.go run by run, and Store.Drop forgets one; manifest.go says what it is and whether it fits
//	scratch.go     a store that lasts as long as its process, above what was exported, where that lies
//	engine.go      what it lies on: badger.go keys, directory.go files
//
// Large because checkpoints, merges, imports and drops all change the list of a
// shard's runs under one lock, and all reading is of such a list.
package cold

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Format is the layout of keys and values. A store of another one is refused.
const Format = 1

// ErrCorrupt wraps every complaint about stored bytes.
var ErrCorrupt = run.ErrCorrupt

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

// Store is one node's disk. Its methods may be used concurrently.
type Store struct {
	Stats Stats

	engine Engine
	log    *slog.Logger
	metaMu sync.Mutex
	meta   Meta // Dictionary and Streams change, under metaMu
	// metaEdit is held while meta is written. unwritten says that writing it failed:
	// what is on disk may be another, and must not stay so under rows that are
	// numbered by this one.
	metaEdit  lock
	unwritten atomic.Bool
	schema    *pipeline.Schema
	stacks    []*Stack // by shard; the last is the commons'
	files     files

	counters []counterCodec // by the schema's counter index
	byNumber []int          // dictionary counter → schema counter; -1: it is a set
	cellsMax int            // columns of the widest counter
	sets     []setCodec     // in the order of the disk
	setOf    []int          // column → index of sets; -1: it has none

	pause      func(time.Duration) // [time.Sleep], for Verify
	closed     atomic.Bool
	merging    lock          // one merge at a time
	wake, stop chan struct{} // the merger
	mergerDone chan struct{} // nil: there is none
}

// counterCodec translates between a row in memory and on disk.
type counterCodec struct {
	number  uint8
	numbers []int // cell → dictionary column
	places  []int // dictionary column → cell
}

// OpenOn opens the store that an engine holds, or makes it; node is its name
// then. Nothing merges but [Store.MergeOnce]. An engine that cannot be used
// stays open.
func OpenOn(engine Engine, schema *pipeline.Schema, shards int, node string) (*Store, error) {
	return openOn(engine, schema, Options{Shards: shards, Node: node, Logger: slog.New(slog.DiscardHandler)})
}

func openOn(engine Engine, schema *pipeline.Schema, o Options) (*Store, error) {
	s := &Store{engine: engine, log: o.Logger, pause: time.Sleep, merging: newLock(), metaEdit: newLock(), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	s.files.engine, s.files.log, s.files.most = engine, o.Logger, FilesOpenMax
	s.files.reads = &s.Stats.Reads
	if err := s.load(schema, o.Shards, o.Node); err != nil {
		return nil, err
	}
	if err := s.openStacks(); err != nil {
		return nil, err
	}
	return s, nil
}

// load reads meta, or writes it into a new store, and merges the schema.
func (s *Store) load(schema *pipeline.Schema, shards int, node string) error {
	value, err := s.engine.Get(metaKey)
	found := value != nil
	if found {
		err = json.Unmarshal(value, &s.meta)
	}
	fresh := err == nil && !found
	switch {
	case fresh && !s.empty():
		return errors.New("cold: the database is not one of Tidemark's: it holds keys but not what says whose they are; use another data_dir, or, if Badger's MANIFEST was damaged, move generations/ away and run 'tidemark repair --replay'")
	case fresh:
		s.meta = Meta{Format: Format, Shards: shards, Node: node}
	case err != nil:
		return fmt.Errorf("cold: read the store's meta: %w", err)
	case s.meta.Format != Format:
		return fmt.Errorf("cold: the store has format %d, and this version reads format %d: 'tidemark repair --replay' counts EVENTS again; or use the version that wrote it", s.meta.Format, Format)
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

// empty says whether there is no key at all, and no file.
func (s *Store) empty() bool {
	names, err := s.engine.Files()
	return err == nil && len(names) == 0 && s.engine.Scan(nil, func(_, _ []byte) error { return errEnd }) == nil
}

// adopt merges the configuration's schema with the dictionary; changed says
// whether the dictionary has new names, which must be stored before any row.
func (s *Store) adopt(schema *pipeline.Schema) (changed bool, err error) {
	merged, err := s.meta.Dictionary.merge(schema)
	if err != nil {
		return false, err
	}
	dictionary, changed, err := s.meta.Dictionary.extend(merged)
	if err != nil {
		return false, err
	}
	s.schema = merged
	s.setDictionary(dictionary)
	s.translate()
	return changed, nil
}

func (s *Store) setDictionary(d Dictionary) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta.Dictionary = d
}

func (s *Store) writeMeta() error {
	s.metaEdit.Lock()
	defer s.metaEdit.Unlock()
	s.unwritten.Store(true)
	value, err := json.Marshal(s.Meta())
	if err != nil {
		return err
	}
	// Synced: rows written by new numbers must not survive without them.
	if err := s.engine.Commit([]Write{{metaKey, value}}); err != nil {
		return fmt.Errorf("cold: write the store's meta: %w", err)
	}
	s.unwritten.Store(false)
	return nil
}

func (s *Store) translate() {
	s.byNumber = slices.Repeat([]int{-1}, len(s.meta.Dictionary))
	s.counters = make([]counterCodec, len(s.schema.Counters))
	for i, counter := range s.schema.Counters {
		at := s.meta.Dictionary.find(counter.Name)
		s.byNumber[at] = i
		c := &s.counters[i]
		c.number = uint8(at)
		s.cellsMax = max(s.cellsMax, int(counter.Count))
		c.numbers = make([]int, counter.Count)
		c.places = make([]int, counter.Count)
		for number, name := range s.meta.Dictionary[at].Columns {
			column, _ := s.schema.Find(counter.Name + "." + name)
			c.places[number] = int(column - counter.First)
			c.numbers[column-counter.First] = number
		}
	}
	s.translateSets()
}

// Schema is the merged schema: what this store's shards hold.
func (s *Store) Schema() *pipeline.Schema { return s.schema }

// Meta is what the store says of itself.
func (s *Store) Meta() Meta {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	return s.meta
}

// SetStreams records the streams that the states refer to from now on.
func (s *Store) SetStreams(streams Streams) error {
	s.metaMu.Lock()
	s.meta.Streams = streams
	s.metaMu.Unlock()
	return s.writeMeta()
}

// Sizes are the bytes of the engine's own files, those of keys.
func (s *Store) Sizes() (tables, valueLog int64) { return s.engine.Sizes() }

// Close ends merging and closes the store; nothing may use it after that. A merge
// that goes on is given up. To close it again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.stop)
	if s.mergerDone != nil {
		<-s.mergerDone
	}
	s.files.sweep()
	s.files.close()
	return s.engine.Close()
}
